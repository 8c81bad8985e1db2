"""ptynb: an interactive workbench for ptychographic reconstruction.

Public names are imported when they are first used. An engine then loads no widgets and no figures (1.3 s and 60 MB
less each), and `ptynb --help` no torch.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ptynb.driver.cluster import Cluster as Cluster
    from ptynb.driver.devices import ClusterError as ClusterError
    from ptynb.driver.session import Reconstruction as Reconstruction
    from ptynb.driver.session import ReconstructionError as ReconstructionError
    from ptynb.geometry import Geometry as Geometry
    from ptynb.io.hdf5 import FileError as FileError
    from ptynb.io.load import load as load
    from ptynb.io.native import save_scan as save_scan
    from ptynb.io.result import load_result as load_result
    from ptynb.io.result import save_result as save_result
    from ptynb.physics.simulate import simulate as simulate
    from ptynb.report.figure import figure as figure
    from ptynb.scan import Scan as Scan
    from ptynb.scan import ScanError as ScanError
    from ptynb.settings import Object as Object
    from ptynb.settings import Probe as Probe
    from ptynb.settings import Settings as Settings
    from ptynb.settings import SettingsError as SettingsError
    from ptynb.snapshot import Epoch as Epoch
    from ptynb.snapshot import Result as Result
    from ptynb.widgets.inspect import inspect as inspect
    from ptynb.widgets.live import live as live

_HOMES = {
    "Cluster": "ptynb.driver.cluster",
    "ClusterError": "ptynb.driver.devices",
    "Epoch": "ptynb.snapshot",
    "FileError": "ptynb.io.hdf5",
    "Geometry": "ptynb.geometry",
    "Object": "ptynb.settings",
    "Probe": "ptynb.settings",
    "Reconstruction": "ptynb.driver.session",
    "ReconstructionError": "ptynb.driver.session",
    "Result": "ptynb.snapshot",
    "Scan": "ptynb.scan",
    "ScanError": "ptynb.scan",
    "Settings": "ptynb.settings",
    "SettingsError": "ptynb.settings",
    "figure": "ptynb.report.figure",
    "inspect": "ptynb.widgets.inspect",
    "live": "ptynb.widgets.live",
    "load": "ptynb.io.load",
    "load_result": "ptynb.io.result",
    "save_result": "ptynb.io.result",
    "save_scan": "ptynb.io.native",
    "simulate": "ptynb.physics.simulate",
}
__all__ = [*_HOMES]
__version__ = version("ptynb")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"ptynb has no {name!r}; it has {', '.join(_HOMES)}.")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*_HOMES, "__version__"]
