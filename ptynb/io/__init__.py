"""Files in and out: one format a file; `load` finds the right one by the file's content."""

from ptynb.io.load import load as load
from ptynb.io.result import load_result as load_result
from ptynb.io.result import save_result as save_result
