"""The live view of a reconstruction, and the controls that steer it."""

from ptynb.widgets.live.live_view import Live as Live
from ptynb.widgets.live.live_view import live as live
