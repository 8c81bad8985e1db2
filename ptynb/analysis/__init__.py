"""Analysis of scans and reconstructions: survey, bad pixels, resolution, probes, comparisons, measurements.

No function changes a scan; `with_mask` and `leave_out` return a new one, as functions of `ptynb.preparation` do.
"""

from ptynb.analysis.bad_pixels import BadPixels as BadPixels
from ptynb.analysis.bad_pixels import find_bad_pixels as find_bad_pixels
from ptynb.analysis.error_map import ErrorMap as ErrorMap
from ptynb.analysis.error_map import error_map as error_map
from ptynb.analysis.faults.diagnosis import Diagnosis as Diagnosis
from ptynb.analysis.faults.diagnosis import Finding as Finding
from ptynb.analysis.half_scans import split_scan as split_scan
from ptynb.analysis.image_measurements import AmplitudeSpectrum as AmplitudeSpectrum
from ptynb.analysis.image_measurements import LineProfile as LineProfile
from ptynb.analysis.image_measurements import RegionStatistics as RegionStatistics
from ptynb.analysis.image_measurements import amplitude_spectrum as amplitude_spectrum
from ptynb.analysis.image_measurements import line_profile as line_profile
from ptynb.analysis.image_measurements import region_statistics as region_statistics
from ptynb.analysis.mask_drawing import painted as painted
from ptynb.analysis.mask_drawing import with_mask as with_mask
from ptynb.analysis.orthogonal_cuts import OrthogonalCuts as OrthogonalCuts
from ptynb.analysis.orthogonal_cuts import orthogonal_cuts as orthogonal_cuts
from ptynb.analysis.outliers import Suspicious as Suspicious
from ptynb.analysis.outliers import find_suspicious as find_suspicious
from ptynb.analysis.outliers import leave_out as leave_out
from ptynb.analysis.phase_unwrapping import flat_phase as flat_phase
from ptynb.analysis.phase_unwrapping import unwrapped_phase as unwrapped_phase
from ptynb.analysis.phase_unwrapping import without_ramp as without_ramp
from ptynb.analysis.position_refinement import PositionRefinement as PositionRefinement
from ptynb.analysis.position_refinement import position_refinement as position_refinement
from ptynb.analysis.probe_modes import caustic as caustic
from ptynb.analysis.probe_modes import focus_distance as focus_distance
from ptynb.analysis.probe_modes import mode_powers as mode_powers
from ptynb.analysis.probe_modes import orthogonal_modes as orthogonal_modes
from ptynb.analysis.registration import Comparison as Comparison
from ptynb.analysis.registration import Registered as Registered
from ptynb.analysis.registration import compare as compare
from ptynb.analysis.registration import register as register
from ptynb.analysis.result_comparison import Difference as Difference
from ptynb.analysis.result_comparison import Together as Together
from ptynb.analysis.result_comparison import facts_of as facts_of
from ptynb.analysis.result_comparison import settings_that_differ as settings_that_differ
from ptynb.analysis.ring_correlation import RingCorrelation as RingCorrelation
from ptynb.analysis.ring_correlation import fourier_ring_correlation as fourier_ring_correlation
from ptynb.analysis.ring_correlation import spectral_snr as spectral_snr
from ptynb.analysis.scan_survey import Survey as Survey
from ptynb.analysis.scan_survey import bright_radius as bright_radius
from ptynb.analysis.scan_survey import survey as survey
from ptynb.analysis.transfer_function import TransferFunction as TransferFunction
from ptynb.analysis.transfer_function import object_transfer_function as object_transfer_function
from ptynb.analysis.transfer_function import phase_retrieval_transfer_function as phase_retrieval_transfer_function
