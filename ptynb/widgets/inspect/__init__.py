"""Inspection of a scan before reconstruction: patterns, statistics, mask, rotation, preparation."""

from ptynb.widgets.inspect.inspect_view import Inspect as Inspect
from ptynb.widgets.inspect.inspect_view import inspect as inspect
