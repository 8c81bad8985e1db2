"""Looking at scans: surveys that never hold more than a portion, bad pixels, suspicious patterns, rotation, masks.

Nothing here changes a scan but `with_mask` and `leave_out`, which give a new one, as all of `ptynb.preparation` does.
"""

from ptynb.inspection.mask import painted as painted
from ptynb.inspection.mask import with_mask as with_mask
from ptynb.inspection.pixels import BadPixels as BadPixels
from ptynb.inspection.pixels import find_bad_pixels as find_bad_pixels
from ptynb.inspection.rotation import ScanRotation as ScanRotation
from ptynb.inspection.rotation import scan_rotation as scan_rotation
from ptynb.inspection.surveyor import Survey as Survey
from ptynb.inspection.surveyor import bright_radius as bright_radius
from ptynb.inspection.surveyor import survey as survey
from ptynb.inspection.suspicious import Suspicious as Suspicious
from ptynb.inspection.suspicious import find_suspicious as find_suspicious
from ptynb.inspection.suspicious import leave_out as leave_out
