"""How good a reconstruction is: against a known truth, between two halves of a scan, and of many from one scan."""

from ptynb.quality.compare import Comparison as Comparison
from ptynb.quality.compare import compare as compare
from ptynb.quality.correlation import RingCorrelation as RingCorrelation
from ptynb.quality.correlation import fourier_ring_correlation as fourier_ring_correlation
from ptynb.quality.correlation import spectral_snr as spectral_snr
from ptynb.quality.halves import split_scan as split_scan
from ptynb.quality.phase import unwrapped_phase as unwrapped_phase
from ptynb.quality.phase import without_ramp as without_ramp
from ptynb.quality.probes import caustic as caustic
from ptynb.quality.probes import focus_distance as focus_distance
from ptynb.quality.probes import mode_powers as mode_powers
from ptynb.quality.probes import orthogonal_modes as orthogonal_modes
from ptynb.quality.registration import Registered as Registered
from ptynb.quality.registration import register as register
from ptynb.quality.together import Difference as Difference
from ptynb.quality.together import Together as Together
from ptynb.quality.together import facts_of as facts_of
from ptynb.quality.together import settings_that_differ as settings_that_differ
from ptynb.quality.transfer import TransferFunction as TransferFunction
from ptynb.quality.transfer import object_transfer_function as object_transfer_function
from ptynb.quality.transfer import phase_retrieval_transfer_function as phase_retrieval_transfer_function
