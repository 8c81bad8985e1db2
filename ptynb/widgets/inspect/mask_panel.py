"""The mask: bad pixels found and taken over, painted by brush, undone, saved and used."""

from __future__ import annotations

import ipywidgets
import numpy as np

from ptynb.analysis import BadPixels, find_bad_pixels, painted, with_mask
from ptynb.analysis.mask_drawing import MaskHistory
from ptynb.data.snapshot import Array
from ptynb.io.mask_file import load_mask, save_mask
from ptynb.widgets.elements import put
from ptynb.widgets.inspect.inspect_state import InspectorPanel, InspectorState, real, row
from ptynb.widgets.inspect.pattern_display import centred, is_shifted, mask_picture, pattern_of, show
from ptynb.widgets.viewer.viewer import Viewer

PICTURE = "mask"


class MaskPanel(InspectorPanel):
    """The mask in hand: it becomes the scan's when it is used. Within, it is centred as what is shown is."""

    title = "Mask"

    def __init__(self, state: InspectorState) -> None:
        self._history = MaskHistory(_mask_of(state))
        self._lines: list[str] = []
        self._found: BadPixels | None = None
        self._view = Viewer(columns=1, height=420)
        self._paint = ipywidgets.ToggleButton(value=False, description="Paint", icon="paint-brush")
        self._paint.tooltip = "Paint on the picture; the brush and the eraser are in its tools"
        self._paint.layout.width = "auto"
        self._y, self._x = (
            real(name, side // 2, 0, side - 1) for name, side in zip(("y", "x"), state.scan.pattern_shape, strict=True)
        )
        self._radius = real("Disc radius", 5, 0.5, 1e4)
        self._file = ipywidgets.Text(value="mask.npy", description="File", placeholder="mask.npy or mask.h5")
        self._words = ipywidgets.HTML()
        self._take = self.button("Take over", self._take_over, "Masks the pixels that were found", "arrow-down")
        self._undo = self.button("Undo", self._undone, "Back to the mask before the last change", "undo")
        self._take.disabled = self._undo.disabled = True
        super().__init__(
            state,
            [
                row(
                    self._paint,
                    self._undo,
                    self.button(
                        "Find bad pixels", self._find, "Hot, dead, stuck ones and those without numbers", "search"
                    ),
                    self._take,
                    self.button("Use mask", self._use, "Gives the scan this mask", "check"),
                ),
                row(
                    self._y,
                    self._x,
                    self._radius,
                    self.button("Mask disc", lambda: self._disc(good=False), "Masks the pixels within the radius"),
                    self.button("Free disc", lambda: self._disc(good=True), "Makes the pixels within the radius good"),
                ),
                row(self._file, self.button("Save", self._save, icon="save"), self.button("Load", self._load)),
                self._words,
                self._view,
            ],
        )
        self._paint.observe(lambda change: self._view.paint(PICTURE if change["new"] else None), "value")
        self._view.on_stroke(self._stroked)
        self._view.on_click(self._clicked)

    @property
    def mask(self) -> Array:
        """The mask in hand (y, x), in the order of the scan's patterns."""
        mask = self._history.mask
        return np.fft.ifftshift(mask) if is_shifted(self.state.scan) else mask

    def draw(self) -> None:
        """The mean pattern (the chosen one, before anything is known) with the mask over it."""
        scan, seen, good = self.state.scan, self.state.seen, self._history.mask
        counts = pattern_of(scan, self.state.index) if seen is None else centred(scan, seen.mean)
        found = None if self._found is None else ~centred(scan, self._found.mask)
        show(self._view, [mask_picture(np.maximum(counts, 0), good, found, PICTURE, "mean pattern and mask")])
        new = 0 if found is None else int((found & good).sum())
        kinds = "" if self._found is None else f" Found: {str(self._found)[12:-1]}; {new} not masked yet (blue)."
        put(self._words, f"{int((~good).sum()):,} of {good.size:,} pixels masked (orange).{kinds}")
        self._take.disabled, self._undo.disabled = not new, not self._history.changed

    def renew(self) -> None:
        """The mask of the new scan."""
        self._history, self._found = MaskHistory(_mask_of(self.state)), None
        self._lines = []
        for field, side in zip((self._y, self._x), self.state.scan.pattern_shape, strict=True):
            field.max = side - 1

    def _change(self, mask: Array, line: str) -> None:
        if self._history.change(mask):
            self._tell_first_line()
            self._lines.append(line)
            self.state.say(line)
        self.draw()

    def _tell_first_line(self) -> None:
        """Before a line that uses `mask`: what it is at first, where no line told it yet."""
        if not self._lines:
            self.state.say(self._first_line())

    def _first_line(self) -> str:
        if self.state.scan.mask is None:
            return "mask = np.ones(scan.pattern_shape, bool)"
        return f"mask = {'np.fft.fftshift(scan.mask)' if is_shifted(self.state.scan) else 'scan.mask'}"

    def _stroked(self, name: str, path: Array, radius: float, erase: bool) -> None:
        # The viewer's places count from a pixel's corner, those of a mask from its middle.
        self.state.asked(lambda: self._stroke(path - 0.5, radius, erase))

    def _stroke(self, path: Array, radius: float, good: bool) -> None:
        end = ", good=True" if good else ""
        line = f"mask = pt.analysis.painted(mask, {np.round(path, 2).tolist()}, {radius:g}{end})"
        self._change(painted(self._history.mask, np.round(path, 2), radius, good), line)

    def _disc(self, *, good: bool) -> None:
        self._stroke(np.array([[self._y.value, self._x.value]]), self._radius.value, good)

    def _clicked(self, name: str, y: float, x: float) -> None:
        self._y.value, self._x.value = float(int(y)), float(int(x))

    def _undone(self) -> None:
        if self._history.changed:
            self._history.undo()
            self._lines.pop()
            for line in (self._first_line(), *self._lines):
                self.state.say(line)
        self.draw()

    def _find(self) -> None:
        self._found = find_bad_pixels(self.state.scan, self.state.need_survey())
        self.state.say("found = pt.analysis.find_bad_pixels(scan)")
        self.draw()

    def _take_over(self) -> None:
        if self._found is not None:
            found = "pt.analysis.find_bad_pixels(scan).mask"
            found = f"np.fft.fftshift({found})" if is_shifted(self.state.scan) else found
            self._change(self._history.mask & centred(self.state.scan, self._found.mask), f"mask = mask & {found}")

    def _in_order(self) -> str:
        return "np.fft.ifftshift(mask)" if is_shifted(self.state.scan) else "mask"

    def _save(self) -> None:
        save_mask(self.mask, self._file.value)
        self._tell_first_line()
        self.state.say(f"pt.save_mask({self._in_order()}, {self._file.value!r})")
        put(self._words, f"Saved in {self._file.value}: True where the detector works, in the order of the patterns.")

    def _load(self) -> None:
        loaded = load_mask(self._file.value)
        with_mask(self.state.scan, loaded)  # refuses one that does not fit
        shift = is_shifted(self.state.scan)
        load = f"pt.load_mask({self._file.value!r})"
        self._change(centred(self.state.scan, loaded), f"mask = {f'np.fft.fftshift({load})' if shift else load}")

    def _use(self) -> None:
        mask = self.mask
        whole = bool(mask.all())
        line = f"scan = pt.analysis.with_mask(scan, {'None' if whole else self._in_order()})"
        told = (self._first_line(), *self._lines)
        used = with_mask(self.state.scan, None if whole else mask)
        self._tell_first_line()
        self.state.replace(used, [line], told=told)


def _mask_of(state: InspectorState) -> Array:
    scan = state.scan
    return np.ones(scan.pattern_shape, bool) if scan.mask is None else centred(scan, scan.mask)
