"""ptynb: an interactive workbench for ptychographic reconstruction.

Public names are imported when they are first used. An engine then loads no widgets and no figures (1.3 s and 60 MB
less each), and `ptynb --help` no torch.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ptynb import electrons as electrons
    from ptynb import inspection as inspection
    from ptynb import preparation as preparation
    from ptynb import quality as quality
    from ptynb import report as report
    from ptynb.bench.forms import settings_form as settings_form
    from ptynb.bench.tuner import tuner as tuner
    from ptynb.bench.workbench import workbench as workbench
    from ptynb.driver.advice import Advice as Advice
    from ptynb.driver.advice import advise as advise
    from ptynb.driver.again import Reproduction as Reproduction
    from ptynb.driver.again import reproduce as reproduce
    from ptynb.driver.cluster import Cluster as Cluster
    from ptynb.driver.coming_back import attach as attach
    from ptynb.driver.coming_back import resume as resume
    from ptynb.driver.errors import ClusterError as ClusterError
    from ptynb.driver.estimate import Estimate as Estimate
    from ptynb.driver.estimate import estimate as estimate
    from ptynb.driver.link import ReconstructionError as ReconstructionError
    from ptynb.driver.preview import preview as preview
    from ptynb.driver.scaling import scaling_test as scaling_test
    from ptynb.driver.session import Reconstruction as Reconstruction
    from ptynb.driver.study import Study as Study
    from ptynb.driver.study import tune as tune
    from ptynb.geometry import Geometry as Geometry
    from ptynb.geometry import NearField as NearField
    from ptynb.io.export import export as export
    from ptynb.io.hdf5 import FileError as FileError
    from ptynb.io.info import FileInfo as FileInfo
    from ptynb.io.info import info as info
    from ptynb.io.load import load as load
    from ptynb.io.mask import load_mask as load_mask
    from ptynb.io.mask import save_mask as save_mask
    from ptynb.io.native import save_scan as save_scan
    from ptynb.io.result import load_result as load_result
    from ptynb.io.result import save_result as save_result
    from ptynb.io.starts.start import InitialGuessWarning as InitialGuessWarning
    from ptynb.io.starts.start_from import load_initial_guess as load_initial_guess
    from ptynb.physics import illumination as illumination
    from ptynb.physics.expose import simulate_diffraction as simulate_diffraction
    from ptynb.physics.from_result import simulate_from_result as simulate_from_result
    from ptynb.physics.piece import CustomConstraint as CustomConstraint
    from ptynb.physics.piece import ModelComponent as ModelComponent
    from ptynb.physics.simulate import simulate as simulate
    from ptynb.record import Change as Change
    from ptynb.record import Epoch as Epoch
    from ptynb.record import Thumbnail as Thumbnail
    from ptynb.report.figure import figure as figure
    from ptynb.report.scaling import scaling_figure as scaling_figure
    from ptynb.results import Result as Result
    from ptynb.scan import Scan as Scan
    from ptynb.scan import ScanError as ScanError
    from ptynb.settings import constraints as constraints
    from ptynb.settings import terms as regularizers  # noqa: F401
    from ptynb.settings.base import SettingsError as SettingsError
    from ptynb.settings.keep import Checkpointing as Checkpointing
    from ptynb.settings.parts import OPR as OPR
    from ptynb.settings.parts import Affine as Affine
    from ptynb.settings.parts import Background as Background
    from ptynb.settings.parts import Detector as Detector
    from ptynb.settings.parts import Object as Object
    from ptynb.settings.parts import PatternIntensities as PatternIntensities
    from ptynb.settings.parts import Positions as Positions
    from ptynb.settings.parts import Probe as Probe
    from ptynb.settings.parts import ProbeOffset as ProbeOffset
    from ptynb.settings.parts import Slices as Slices
    from ptynb.settings.parts import Tilt as Tilt
    from ptynb.settings.presets import preset as preset
    from ptynb.settings.ranges import between as between
    from ptynb.settings.settings import Schedule as Schedule
    from ptynb.settings.settings import Settings as Settings
    from ptynb.snapshot import RenderRequest as RenderRequest
    from ptynb.tilted_geometry import TiltedGeometry as TiltedGeometry
    from ptynb.trials import ScalingTest as ScalingTest
    from ptynb.warned import PtynbWarning as PtynbWarning
    from ptynb.widgets.compare.view import compare as compare
    from ptynb.widgets.history import history as history
    from ptynb.widgets.inspect.widget import inspect as inspect
    from ptynb.widgets.live.view import live as live
    from ptynb.widgets.watch import watch as watch

_HOMES = {
    "Advice": "ptynb.driver.advice",
    "Affine": "ptynb.settings.parts",
    "Background": "ptynb.settings.parts",
    "Change": "ptynb.record",
    "Checkpointing": "ptynb.settings.keep",
    "Cluster": "ptynb.driver.cluster",
    "ClusterError": "ptynb.driver.errors",
    "CustomConstraint": "ptynb.physics.piece",
    "Detector": "ptynb.settings.parts",
    "Epoch": "ptynb.record",
    "Estimate": "ptynb.driver.estimate",
    "FileError": "ptynb.io.hdf5",
    "FileInfo": "ptynb.io.info",
    "Geometry": "ptynb.geometry",
    "InitialGuessWarning": "ptynb.io.starts.start",
    "ModelComponent": "ptynb.physics.piece",
    "NearField": "ptynb.geometry",
    "OPR": "ptynb.settings.parts",
    "Object": "ptynb.settings.parts",
    "PatternIntensities": "ptynb.settings.parts",
    "Positions": "ptynb.settings.parts",
    "Probe": "ptynb.settings.parts",
    "ProbeOffset": "ptynb.settings.parts",
    "PtynbWarning": "ptynb.warned",
    "Reconstruction": "ptynb.driver.session",
    "ReconstructionError": "ptynb.driver.link",
    "RenderRequest": "ptynb.snapshot",
    "Reproduction": "ptynb.driver.again",
    "Result": "ptynb.results",
    "ScalingTest": "ptynb.trials",
    "Scan": "ptynb.scan",
    "ScanError": "ptynb.scan",
    "Schedule": "ptynb.settings.settings",
    "Settings": "ptynb.settings.settings",
    "SettingsError": "ptynb.settings.base",
    "Slices": "ptynb.settings.parts",
    "Study": "ptynb.driver.study",
    "Thumbnail": "ptynb.record",
    "Tilt": "ptynb.settings.parts",
    "TiltedGeometry": "ptynb.tilted_geometry",
    "advise": "ptynb.driver.advice",
    "attach": "ptynb.driver.coming_back",
    "between": "ptynb.settings.ranges",
    "compare": "ptynb.widgets.compare.view",
    "estimate": "ptynb.driver.estimate",
    "export": "ptynb.io.export",
    "figure": "ptynb.report.figure",
    "history": "ptynb.widgets.history",
    "info": "ptynb.io.info",
    "inspect": "ptynb.widgets.inspect.widget",
    "live": "ptynb.widgets.live.view",
    "load": "ptynb.io.load",
    "load_initial_guess": "ptynb.io.starts.start_from",
    "load_mask": "ptynb.io.mask",
    "load_result": "ptynb.io.result",
    "preset": "ptynb.settings.presets",
    "preview": "ptynb.driver.preview",
    "reproduce": "ptynb.driver.again",
    "resume": "ptynb.driver.coming_back",
    "save_mask": "ptynb.io.mask",
    "save_result": "ptynb.io.result",
    "save_scan": "ptynb.io.native",
    "scaling_figure": "ptynb.report.scaling",
    "scaling_test": "ptynb.driver.scaling",
    "settings_form": "ptynb.bench.forms",
    "simulate": "ptynb.physics.simulate",
    "simulate_diffraction": "ptynb.physics.expose",
    "simulate_from_result": "ptynb.physics.from_result",
    "tune": "ptynb.driver.study",
    "tuner": "ptynb.bench.tuner",
    "watch": "ptynb.widgets.watch",
    "workbench": "ptynb.bench.workbench",
}
_MODULES = {
    "constraints": "ptynb.settings.constraints",
    "electrons": "ptynb.electrons",
    "illumination": "ptynb.physics.illumination",
    "inspection": "ptynb.inspection",
    "preparation": "ptynb.preparation",
    "quality": "ptynb.quality",
    "report": "ptynb.report",
    "regularizers": "ptynb.settings.terms",
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
