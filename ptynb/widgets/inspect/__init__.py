"""Looking at a scan before reconstructing it: patterns at their places, statistics, mask, rotation, preparation."""

from ptynb.widgets.inspect.facts import facts as facts
from ptynb.widgets.inspect.widget import Inspect as Inspect
from ptynb.widgets.inspect.widget import inspect as inspect
