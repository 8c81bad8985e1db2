"""Preparation of scans: functions from a scan to a scan. Patterns are not copied; they are transformed when read.

Mask, positions, guesses, geometry and ground truth are changed together with the patterns, so that a model that fits
before also fits afterwards. Docstrings of functions that read the patterns say so.
"""

from ptynb.preparation.binning import bin as bin
from ptynb.preparation.binning import resample as resample
from ptynb.preparation.bright_field_disc import Disc as Disc
from ptynb.preparation.bright_field_disc import bright_field_disc as bright_field_disc
from ptynb.preparation.bright_field_disc import calibrate_from_disc as calibrate_from_disc
from ptynb.preparation.center_of_mass import centre as centre
from ptynb.preparation.center_of_mass import centre_of_mass as centre_of_mass
from ptynb.preparation.center_of_mass import mean_pattern as mean_pattern
from ptynb.preparation.combination import combine as combine
from ptynb.preparation.counts import divide_flat as divide_flat
from ptynb.preparation.counts import normalise as normalise
from ptynb.preparation.counts import remove_negatives as remove_negatives
from ptynb.preparation.counts import subtract_dark as subtract_dark
from ptynb.preparation.crop_and_pad import crop as crop
from ptynb.preparation.crop_and_pad import pad as pad
from ptynb.preparation.lens_probe import lens_probe as lens_probe
from ptynb.preparation.noise_and_blur import add_poisson_noise as add_poisson_noise
from ptynb.preparation.noise_and_blur import blur as blur
from ptynb.preparation.orientation import flip as flip
from ptynb.preparation.orientation import transpose as transpose
from ptynb.preparation.pixel_mask import find_bad_pixels as find_bad_pixels
from ptynb.preparation.pixel_mask import mask_bad_pixels as mask_bad_pixels
from ptynb.preparation.pixel_mask import mask_pixels as mask_pixels
from ptynb.preparation.rotation_fit import ScanRotation as ScanRotation
from ptynb.preparation.rotation_fit import estimate_rotation as estimate_rotation
from ptynb.preparation.scan_positions import affine_matrix as affine_matrix
from ptynb.preparation.scan_positions import affine_positions as affine_positions
from ptynb.preparation.scan_positions import flip_positions as flip_positions
from ptynb.preparation.scan_positions import rotate_positions as rotate_positions
from ptynb.preparation.scan_positions import transpose_positions as transpose_positions
from ptynb.preparation.selection import select as select
