"""Settings of a reconstruction: frozen, validated models."""

from ptynb.exceptions import SettingsError as SettingsError
from ptynb.settings.base_models import LIVE as LIVE
from ptynb.settings.base_models import Part as Part
from ptynb.settings.base_models import Rate as Rate
from ptynb.settings.base_models import SettingsModel as SettingsModel
from ptynb.settings.checkpointing import Checkpointing as Checkpointing
from ptynb.settings.model_parts import OPR as OPR
from ptynb.settings.model_parts import PART_OF_COMPONENT as PART_OF_COMPONENT
from ptynb.settings.model_parts import PARTS as PARTS
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
from ptynb.settings.settings import FULL_STEPS as FULL_STEPS
from ptynb.settings.settings import PROJECTIONS as PROJECTIONS
from ptynb.settings.settings import THIN_ONLY as THIN_ONLY
from ptynb.settings.settings import WHOLE_PASSES as WHOLE_PASSES
from ptynb.settings.settings import Optimiser as Optimiser
from ptynb.settings.settings import Schedule as Schedule
from ptynb.settings.settings import Settings as Settings
