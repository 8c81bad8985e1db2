"""Readers put to files that were spoilt at random: each answers with a scan or one sentence, soon, and survives.

`tests/io/test_fuzz.py` does a few in every run; `python -m tests.fuzz --minutes 30` goes on for as long as it is told
and keeps the files that some reader could not bear.
"""
