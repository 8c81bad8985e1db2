"""The live view of a reconstruction and its controls."""

from ptynb.widgets.live.live_view import Live as Live
from ptynb.widgets.live.live_view import live as live
