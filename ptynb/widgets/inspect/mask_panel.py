"""The mask panel: detection of bad pixels, painting with a brush, undo, files."""

from __future__ import annotations

import numpy as np
import traitlets

from ptynb.analysis import BadPixels, find_bad_pixels, painted, with_mask
from ptynb.analysis.mask_drawing import MaskHistory
from ptynb.data.engine_records import Array
from ptynb.io.mask_file import load_mask, save_mask
from ptynb.widgets.element_tree import shown
from ptynb.widgets.inspect.inspect_state import InspectorPanel, InspectorState, action
from ptynb.widgets.inspect.scan_display import centred, is_shifted, mask_picture, pattern_of, show
from ptynb.widgets.viewer.viewer import Viewer

PICTURE = "mask"


class MaskPanel(InspectorPanel):
    """Editor of a mask, which `use` sets in the scan. It is stored centred, as the picture; True marks good pixels.

    painting: whether a drag on the picture paints. disc: {"y", "x", "radius"} for `set_disc` [pixels]. new: number of
    bad pixels that were found and are not masked; changed: whether there is a change to undo.
    """

    component = "inspectMask"

    shape = shown(traitlets.List())
    text, new, changed = shown(traitlets.Unicode("")), shown(traitlets.Int(0)), shown(traitlets.Bool(False))
    painting = traitlets.Bool(False).tag(sync=True)
    disc = traitlets.Dict(value_trait=traitlets.Float()).tag(sync=True)

    def __init__(self, state: InspectorState) -> None:
        super().__init__(state, Viewer(columns=1, height=420, share=0.65))
        self.view.on_stroke(self._stroked)
        self.view.on_click(self._clicked)

    @property
    def mask(self) -> Array:
        """The edited mask (y, x), in the order of the scan's patterns."""
        mask = self._history.mask
        return np.fft.ifftshift(mask) if is_shifted(self.state.scan) else mask

    def renew(self) -> None:
        """Edit the mask of another scan."""
        scan = self.state.scan
        height, width = self.shape = [*scan.pattern_shape]
        whole = np.ones(scan.pattern_shape, bool)
        self._history = MaskHistory(whole if scan.mask is None else centred(scan, scan.mask))
        self._found: BadPixels | None = None
        self._note = ""
        shifted = is_shifted(scan)
        self._centred = "np.fft.fftshift({})" if shifted else "{}"
        self._in_order = "np.fft.ifftshift(mask)" if shifted else "mask"
        whole_line = "mask = np.ones(scan.pattern_shape, bool)"
        self._first = whole_line if scan.mask is None else f"mask = {self._centred.format('scan.mask')}"
        self._lines: list[str] = []
        disc = self.disc or {"y": height // 2, "x": width // 2, "radius": 5}
        self.disc = {**disc, "y": min(disc["y"], height - 1), "x": min(disc["x"], width - 1)}

    def draw(self) -> None:
        """Draw the mean pattern, or the chosen one before the survey, with the mask over it."""
        scan, survey, good = self.state.scan, self.state.survey, self._history.mask
        counts = pattern_of(scan, self.state.index) if survey is None else centred(scan, survey.mean)
        found = None if self._found is None else ~centred(scan, self._found.mask)
        show(self.view, [mask_picture(np.maximum(counts, 0), good, found, PICTURE, "mean pattern and mask")])
        self.new, self.changed = 0 if found is None else int((found & good).sum()), self._history.changed
        kinds = "" if self._found is None else f" Found: {_counts(self._found)}; {self.new} not masked yet (blue)."
        self.text = f"{self._note}{int((~good).sum()):,} of {good.size:,} pixels masked (orange).{kinds}"
        self._note = ""

    @traitlets.observe("painting")
    def _painting_changed(self, _: object) -> None:
        self.view.paint(PICTURE if self.painting else None)

    @action
    def set_disc(self, good: bool) -> None:
        """Mask the pixels in the disc; good: unmask them."""
        self._paint(np.array([[self.disc["y"], self.disc["x"]]]), self.disc["radius"], good)

    @action
    def undo(self) -> None:
        """Restore the mask before its last change."""
        if self._history.changed:
            self._history.undo()
            self._lines.pop()
            for line in (self._first, *self._lines):
                self.state.say(line)

    @action
    def find(self) -> None:
        """Find hot, dead, stuck and not finite pixels."""
        self._found = find_bad_pixels(self.state.scan, self.state.need_survey())
        self.state.say("found = pt.analysis.find_bad_pixels(scan)")

    @action
    def mask_found(self) -> None:
        """Mask the bad pixels that were found."""
        if self._found is not None:
            found = self._centred.format("pt.analysis.find_bad_pixels(scan).mask")
            self._change(self._history.mask & centred(self.state.scan, self._found.mask), f"mask = mask & {found}")

    @action
    def save(self, path: str) -> None:
        """Save the edited mask, in the order of the patterns."""
        save_mask(self.mask, path)
        self._say_with_mask(f"pt.save_mask({self._in_order}, {path!r})")
        self._note = f"Saved to {path}: True for good pixels, in the order of the patterns. "

    @action
    def load(self, path: str) -> None:
        """Edit the mask of a file."""
        loaded = load_mask(path)
        with_mask(self.state.scan, loaded)  # raises an error for another shape
        line = self._centred.format(f"pt.load_mask({path!r})")
        self._change(centred(self.state.scan, loaded), f"mask = {line}")

    @action
    def use(self) -> None:
        """Set the mask of the scan."""
        mask = None if self.mask.all() else self.mask
        used = with_mask(self.state.scan, mask)
        line = f"scan = pt.analysis.with_mask(scan, {None if mask is None else self._in_order})"
        earlier_lines = (self._first, *self._lines)
        if not self._lines:
            self.state.say(self._first)
        self.state.replace(used, [line], earlier_lines=earlier_lines)

    @action
    def _stroked(self, name: str, path: Array, radius: float, erase: bool) -> None:
        # Coordinates of the viewer refer to the corner of a pixel, those of a mask to its centre.
        self._paint(path - 0.5, radius, erase)

    def _clicked(self, name: str, y: float, x: float) -> None:
        self.disc = {**self.disc, "y": int(y), "x": int(x)}

    def _paint(self, path: Array, radius: float, good: bool) -> None:
        path = np.round(path, 2)
        end = ", good=True" if good else ""
        line = f"mask = pt.analysis.painted(mask, {path.tolist()}, {radius:g}{end})"
        self._change(painted(self._history.mask, path, radius, good), line)

    def _change(self, mask: Array, line: str) -> None:
        if self._history.change(mask):
            self._say_with_mask(line)
            self._lines.append(line)

    def _say_with_mask(self, line: str) -> None:
        """Say a line that uses `mask`, after the one that defines it."""
        for one in (line,) if self._lines else (self._first, line):
            self.state.say(one)


def _counts(found: BadPixels) -> str:
    """Return the number of bad pixels by kind: "3 hot, 0 dead, ..."."""
    kinds = {"hot": found.hot, "dead": found.dead, "stuck": found.stuck, "not finite": found.lost}
    return ", ".join(f"{int(pixels.sum())} {kind}" for kind, pixels in kinds.items())
