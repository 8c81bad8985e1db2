"""Frames: stored diffraction patterns, in memory or in a file that each engine opens."""

from ptynb.data.patterns.derived import ArrivingFrames as ArrivingFrames
from ptynb.data.patterns.derived import SelectedFrames as SelectedFrames
from ptynb.data.patterns.derived import StackedFrames as StackedFrames
from ptynb.data.patterns.derived import TransformedFrames as TransformedFrames
from ptynb.data.patterns.frames import FileFrames as FileFrames
from ptynb.data.patterns.frames import Frames as Frames
from ptynb.data.patterns.frames import HDF5Frames as HDF5Frames
from ptynb.data.patterns.frames import PlacedFrames as PlacedFrames
from ptynb.data.patterns.in_memory import AbsentFrames as AbsentFrames
from ptynb.data.patterns.in_memory import ArrayFrames as ArrayFrames
from ptynb.data.patterns.in_memory import frames_of as frames_of
