"""Where diffraction patterns are: in memory or in a file that each engine opens by itself."""

from ptynb.frames.base import FileFrames as FileFrames
from ptynb.frames.base import Frames as Frames
from ptynb.frames.derived import SelectedFrames as SelectedFrames
from ptynb.frames.derived import StackedFrames as StackedFrames
from ptynb.frames.derived import TransformedFrames as TransformedFrames
from ptynb.frames.hdf5 import HDF5Frames as HDF5Frames
from ptynb.frames.memory import AbsentFrames as AbsentFrames
from ptynb.frames.memory import ArrayFrames as ArrayFrames
from ptynb.frames.memory import frames_of as frames_of
from ptynb.frames.placed import PlacedFrames as PlacedFrames
