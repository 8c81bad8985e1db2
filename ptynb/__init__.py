"""ptynb: an interactive workbench for ptychographic reconstruction."""

from importlib.metadata import version

from ptynb.driver.cluster import Cluster as Cluster
from ptynb.driver.devices import ClusterError as ClusterError
from ptynb.driver.session import Reconstruction as Reconstruction
from ptynb.driver.session import ReconstructionError as ReconstructionError
from ptynb.geometry import Geometry as Geometry
from ptynb.io import load as load
from ptynb.io import load_result as load_result
from ptynb.io import save_result as save_result
from ptynb.io.hdf5 import FileError as FileError
from ptynb.io.native import save_scan as save_scan
from ptynb.physics.simulate import simulate as simulate
from ptynb.scan import Scan as Scan
from ptynb.scan import ScanError as ScanError
from ptynb.settings import Object as Object
from ptynb.settings import Probe as Probe
from ptynb.settings import Settings as Settings
from ptynb.settings import SettingsError as SettingsError
from ptynb.snapshot import Epoch as Epoch
from ptynb.snapshot import Result as Result

__version__ = version("ptynb")
