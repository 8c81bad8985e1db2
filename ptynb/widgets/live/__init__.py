"""The live view of a reconstruction, and the controls that steer it."""

from ptynb.widgets.live.view import Live as Live
from ptynb.widgets.live.view import live as live
