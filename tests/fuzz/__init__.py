"""Fuzzing of readers and of parsers of messages: damaged input must give a scan or an error of one line, within limits.

`tests/io/test_fuzz.py` reads a few in every run; `python -m tests.fuzz --minutes 30` runs for that time and, with
`--keep`, stores the files that a reader failed on.
"""
