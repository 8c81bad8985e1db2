"""Emulators: a stored scan, sent as a detector, a file writer or a control system would, with faults to choose.

They are for tests, for benchmarks, and for trying a beamline's connection without a beamline. They listen on the
loopback address only, unless another is given.
"""
