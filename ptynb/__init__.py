"""ptynb: an interactive workbench for ptychographic reconstruction.

Public names are imported when they are first used. An engine then loads no widgets and no figures (1.3 s and 60 MB
less each), and `ptynb --help` no torch.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ptynb import analysis as analysis
    from ptynb import preparation as preparation
    from ptynb import report as report
    from ptynb.app.settings_form import settings_form as settings_form
    from ptynb.app.tuner_app import tuner as tuner
    from ptynb.app.workbench_app import workbench as workbench
    from ptynb.cluster.cluster import Cluster as Cluster
    from ptynb.data import electrons as electrons
    from ptynb.data.geometry import Geometry as Geometry
    from ptynb.data.geometry import NearField as NearField
    from ptynb.data.record import Change as Change
    from ptynb.data.record import Epoch as Epoch
    from ptynb.data.record import Thumbnail as Thumbnail
    from ptynb.data.result import Result as Result
    from ptynb.data.scaling_result import ScalingTest as ScalingTest
    from ptynb.data.scan import Scan as Scan
    from ptynb.data.snapshot import RenderRequest as RenderRequest
    from ptynb.data.tilted_geometry import TiltedGeometry as TiltedGeometry
    from ptynb.exceptions import ClusterError as ClusterError
    from ptynb.exceptions import FileError as FileError
    from ptynb.exceptions import PtynbWarning as PtynbWarning
    from ptynb.exceptions import ReconstructionError as ReconstructionError
    from ptynb.exceptions import ScanError as ScanError
    from ptynb.exceptions import SettingsError as SettingsError
    from ptynb.io.export import export as export
    from ptynb.io.file_info import FileInfo as FileInfo
    from ptynb.io.file_info import info as info
    from ptynb.io.initial_guess.guess_loader import load_initial_guess as load_initial_guess
    from ptynb.io.initial_guess.imported_guess import InitialGuessWarning as InitialGuessWarning
    from ptynb.io.load import load as load
    from ptynb.io.mask_file import load_mask as load_mask
    from ptynb.io.mask_file import save_mask as save_mask
    from ptynb.io.result_file import load_result as load_result
    from ptynb.io.result_file import save_result as save_result
    from ptynb.io.scan_file import save_scan as save_scan
    from ptynb.physics.components.component import ModelComponent as ModelComponent
    from ptynb.physics.constraints import CustomConstraint as CustomConstraint
    from ptynb.planning.advice import Advice as Advice
    from ptynb.planning.advice import advise as advise
    from ptynb.planning.estimate import Estimate as Estimate
    from ptynb.planning.estimate import estimate as estimate
    from ptynb.report.figures.figure import figure as figure
    from ptynb.report.scaling_figure import scaling_figure as scaling_figure
    from ptynb.session.preview import preview as preview
    from ptynb.session.reconstruction import Reconstruction as Reconstruction
    from ptynb.session.reproduce import Reproduction as Reproduction
    from ptynb.session.reproduce import reproduce as reproduce
    from ptynb.session.resume import attach as attach
    from ptynb.session.resume import resume as resume
    from ptynb.settings import constraints as constraints
    from ptynb.settings import regularizers as regularizers
    from ptynb.settings.checkpointing import Checkpointing as Checkpointing
    from ptynb.settings.model_parts import OPR as OPR
    from ptynb.settings.model_parts import Affine as Affine
    from ptynb.settings.model_parts import Background as Background
    from ptynb.settings.model_parts import Detector as Detector
    from ptynb.settings.model_parts import Object as Object
    from ptynb.settings.model_parts import PatternIntensities as PatternIntensities
    from ptynb.settings.model_parts import Positions as Positions
    from ptynb.settings.model_parts import Probe as Probe
    from ptynb.settings.model_parts import ProbeOffset as ProbeOffset
    from ptynb.settings.model_parts import Slices as Slices
    from ptynb.settings.model_parts import Tilt as Tilt
    from ptynb.settings.presets import preset as preset
    from ptynb.settings.ranges import between as between
    from ptynb.settings.settings import Schedule as Schedule
    from ptynb.settings.settings import Settings as Settings
    from ptynb.simulation import illumination as illumination
    from ptynb.simulation.diffraction import simulate_diffraction as simulate_diffraction
    from ptynb.simulation.from_result import simulate_from_result as simulate_from_result
    from ptynb.simulation.simulated_scan import simulate as simulate
    from ptynb.tuning.scaling_test import scaling_test as scaling_test
    from ptynb.tuning.study import Study as Study
    from ptynb.tuning.study import tune as tune
    from ptynb.widgets.compare.compare_view import compare as compare
    from ptynb.widgets.history import history as history
    from ptynb.widgets.inspect.inspect_view import inspect as inspect
    from ptynb.widgets.live.live_view import live as live
    from ptynb.widgets.watch_view import watch as watch

_HOMES = {
    "Advice": "ptynb.planning.advice",
    "Affine": "ptynb.settings.model_parts",
    "Background": "ptynb.settings.model_parts",
    "Change": "ptynb.data.record",
    "Checkpointing": "ptynb.settings.checkpointing",
    "Cluster": "ptynb.cluster.cluster",
    "ClusterError": "ptynb.exceptions",
    "CustomConstraint": "ptynb.physics.constraints",
    "Detector": "ptynb.settings.model_parts",
    "Epoch": "ptynb.data.record",
    "Estimate": "ptynb.planning.estimate",
    "FileError": "ptynb.exceptions",
    "FileInfo": "ptynb.io.file_info",
    "Geometry": "ptynb.data.geometry",
    "InitialGuessWarning": "ptynb.io.initial_guess.imported_guess",
    "ModelComponent": "ptynb.physics.components.component",
    "NearField": "ptynb.data.geometry",
    "OPR": "ptynb.settings.model_parts",
    "Object": "ptynb.settings.model_parts",
    "PatternIntensities": "ptynb.settings.model_parts",
    "Positions": "ptynb.settings.model_parts",
    "Probe": "ptynb.settings.model_parts",
    "ProbeOffset": "ptynb.settings.model_parts",
    "PtynbWarning": "ptynb.exceptions",
    "Reconstruction": "ptynb.session.reconstruction",
    "ReconstructionError": "ptynb.exceptions",
    "RenderRequest": "ptynb.data.snapshot",
    "Reproduction": "ptynb.session.reproduce",
    "Result": "ptynb.data.result",
    "ScalingTest": "ptynb.data.scaling_result",
    "Scan": "ptynb.data.scan",
    "ScanError": "ptynb.exceptions",
    "Schedule": "ptynb.settings.settings",
    "Settings": "ptynb.settings.settings",
    "SettingsError": "ptynb.exceptions",
    "Slices": "ptynb.settings.model_parts",
    "Study": "ptynb.tuning.study",
    "Thumbnail": "ptynb.data.record",
    "Tilt": "ptynb.settings.model_parts",
    "TiltedGeometry": "ptynb.data.tilted_geometry",
    "advise": "ptynb.planning.advice",
    "attach": "ptynb.session.resume",
    "between": "ptynb.settings.ranges",
    "compare": "ptynb.widgets.compare.compare_view",
    "estimate": "ptynb.planning.estimate",
    "export": "ptynb.io.export",
    "figure": "ptynb.report.figures.figure",
    "history": "ptynb.widgets.history",
    "info": "ptynb.io.file_info",
    "inspect": "ptynb.widgets.inspect.inspect_view",
    "live": "ptynb.widgets.live.live_view",
    "load": "ptynb.io.load",
    "load_initial_guess": "ptynb.io.initial_guess.guess_loader",
    "load_mask": "ptynb.io.mask_file",
    "load_result": "ptynb.io.result_file",
    "preset": "ptynb.settings.presets",
    "preview": "ptynb.session.preview",
    "reproduce": "ptynb.session.reproduce",
    "resume": "ptynb.session.resume",
    "save_mask": "ptynb.io.mask_file",
    "save_result": "ptynb.io.result_file",
    "save_scan": "ptynb.io.scan_file",
    "scaling_figure": "ptynb.report.scaling_figure",
    "scaling_test": "ptynb.tuning.scaling_test",
    "settings_form": "ptynb.app.settings_form",
    "simulate": "ptynb.simulation.simulated_scan",
    "simulate_diffraction": "ptynb.simulation.diffraction",
    "simulate_from_result": "ptynb.simulation.from_result",
    "tune": "ptynb.tuning.study",
    "tuner": "ptynb.app.tuner_app",
    "watch": "ptynb.widgets.watch_view",
    "workbench": "ptynb.app.workbench_app",
}
_MODULES = {
    "analysis": "ptynb.analysis",
    "constraints": "ptynb.settings.constraints",
    "electrons": "ptynb.data.electrons",
    "illumination": "ptynb.simulation.illumination",
    "preparation": "ptynb.preparation",
    "report": "ptynb.report",
    "regularizers": "ptynb.settings.regularizers",
}
"""Modules of which users take single names: `pt.constraints.OrthogonalModes()`."""
__all__ = [*_HOMES, *_MODULES]
__version__ = version("ptynb")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"ptynb has no {name!r}; it has {', '.join(__all__)}.")
    value = import_module(_MODULES[name]) if name in _MODULES else getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
