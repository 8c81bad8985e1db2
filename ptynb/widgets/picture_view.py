"""PictureView: pictures from rank 0 in the notebook, never more of them under way than the browser keeps up with.

A frame is one message with all pictures. The browser confirms each frame once it is on the screen, and the next is
sent while at most one is unconfirmed; a browser that is slow, hidden or gone slows the pictures, not the kernel. While
a cell runs, the kernel may not handle confirmations at all, so after `PATIENCE` seconds a frame is sent regardless.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from ptynb.snapshot import Pictures

UNCONFIRMED = 1
PATIENCE = 1.0


class PictureView(anywidget.AnyWidget):
    """The newest pictures of a reconstruction."""

    _esm = Path(__file__).with_name("picture_view.js")
    _css = Path(__file__).with_name("picture_view.css")

    frame: traitlets.Dict[str, Any] = traitlets.Dict({"number": 0}).tag(sync=True)
    shown = traitlets.Int(0).tag(sync=True)

    def __init__(self) -> None:
        super().__init__()
        self._sent_at = 0.0

    @property
    def ready(self) -> bool:
        """Whether another frame may be sent now."""
        waiting = self.frame["number"] - self.shown
        return waiting <= UNCONFIRMED or time.monotonic() - self._sent_at > PATIENCE

    def show(self, pictures: Pictures) -> None:
        """Sends one frame."""
        limits = pictures.limits
        powers = ", ".join(f"{power:.1%}" for power in pictures.powers)
        self._sent_at = time.monotonic()
        self.frame = {
            "number": self.frame["number"] + 1,
            "epoch": pictures.epoch,
            "update": pictures.update,
            "amplitude": pictures.amplitude,
            "phase": pictures.phase,
            "probe": pictures.probe,
            "notes": {
                "amplitude": f"{limits['amplitude'][0]:.3f} to {limits['amplitude'][1]:.3f}",
                "phase": f"{limits['phase'][0]:.3f} to {limits['phase'][1]:.3f} rad, ramp removed",
                "probe": f"hue: phase, brightness: amplitude; power {powers}",
            },
        }
