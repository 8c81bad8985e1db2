"""The mask panel: detection of bad pixels, painting with a brush, undo, files."""

from __future__ import annotations

import numpy as np

from ptynb.analysis import BadPixels, find_bad_pixels, painted, with_mask
from ptynb.analysis.mask_drawing import MaskHistory
from ptynb.data.engine_records import Array
from ptynb.io.mask_file import load_mask, save_mask
from ptynb.widgets import elements
from ptynb.widgets.inspect.inspect_state import InspectorPanel, InspectorState, real, row
from ptynb.widgets.inspect.pattern_display import centred, is_shifted, mask_picture, pattern_of, show
from ptynb.widgets.shared_widgets import put
from ptynb.widgets.viewer.viewer import Viewer

PICTURE = "mask"


class MaskPanel(InspectorPanel):
    """Editor of a mask, which "Use mask" sets in the scan. It is stored centred, as the picture."""

    title = "Mask"

    def __init__(self, state: InspectorState) -> None:
        self._history = MaskHistory(_mask_of(state))
        self._lines: list[str] = []
        self._found: BadPixels | None = None
        self._view = Viewer(columns=1, height=420, share=0.65)
        self._paint = elements.ToggleButton(value=False, description="Paint", icon="paintbrush")
        self._paint.tooltip = "Paint on the picture; brush and eraser are among its tools"
        self._paint.layout.width = "auto"
        self._y, self._x = (
            real(name, side // 2, 0, side - 1) for name, side in zip(("y", "x"), state.scan.pattern_shape, strict=True)
        )
        self._radius = real("Disc radius [pixels]", 5, 0.5, 1e4)
        self._file = elements.Text(value="mask.npy", description="File", placeholder="mask.npy or mask.h5")
        self._summary = elements.HTML()
        self._add_found = self.button(
            "Mask found", self._mask_found, "Masks the bad pixels that were found", "arrow-down"
        )
        self._undo = self.button("Undo", self._undone, "Restores the mask before the last change", "undo")
        self._add_found.disabled = self._undo.disabled = True
        super().__init__(
            state,
            [
                row(
                    self._paint,
                    self._undo,
                    self.button("Find bad pixels", self._find, "Hot, dead, stuck and not finite pixels", "search"),
                    self._add_found,
                    self.button("Use mask", self._use, "Sets the mask of the scan", "check"),
                ),
                row(
                    self._y,
                    self._x,
                    self._radius,
                    self.button("Mask disc", lambda: self._disc(good=False), "Masks the pixels in the disc"),
                    self.button("Unmask disc", lambda: self._disc(good=True), "Unmasks the pixels in the disc"),
                ),
                row(self._file, self.button("Save", self._save, icon="save"), self.button("Load", self._load)),
                self._summary,
                self._view,
            ],
        )
        self._paint.observe(lambda change: self._view.paint(PICTURE if change["new"] else None), "value")
        self._view.on_stroke(self._stroked)
        self._view.on_click(self._clicked)

    @property
    def mask(self) -> Array:
        """The edited mask (y, x), in the order of the scan's patterns."""
        mask = self._history.mask
        return np.fft.ifftshift(mask) if is_shifted(self.state.scan) else mask

    def draw(self) -> None:
        """Draw the mean pattern, or the chosen one before the survey, with the mask over it."""
        scan, survey, good = self.state.scan, self.state.survey, self._history.mask
        counts = pattern_of(scan, self.state.index) if survey is None else centred(scan, survey.mean)
        found = None if self._found is None else ~centred(scan, self._found.mask)
        show(self._view, [mask_picture(np.maximum(counts, 0), good, found, PICTURE, "mean pattern and mask")])
        new = 0 if found is None else int((found & good).sum())
        kinds = "" if self._found is None else f" Found: {_counts(self._found)}; {new} not masked yet (blue)."
        put(self._summary, f"{int((~good).sum()):,} of {good.size:,} pixels masked (orange).{kinds}")
        self._add_found.disabled, self._undo.disabled = not new, not self._history.changed

    def renew(self) -> None:
        """Reset the panel to the mask of another scan."""
        self._history, self._found = MaskHistory(_mask_of(self.state)), None
        self._lines = []
        for field, side in zip((self._y, self._x), self.state.scan.pattern_shape, strict=True):
            field.max = side - 1

    def _change(self, mask: Array, line: str) -> None:
        if self._history.change(mask):
            self._say_first_line()
            self._lines.append(line)
            self.state.say(line)
        self.draw()

    def _say_first_line(self) -> None:
        """Add the line that defines `mask` before the first line that uses it."""
        if not self._lines:
            self.state.say(self._first_line())

    def _first_line(self) -> str:
        if self.state.scan.mask is None:
            return "mask = np.ones(scan.pattern_shape, bool)"
        return f"mask = {'np.fft.fftshift(scan.mask)' if is_shifted(self.state.scan) else 'scan.mask'}"

    def _stroked(self, name: str, path: Array, radius: float, erase: bool) -> None:
        # Coordinates of the viewer refer to the corner of a pixel, those of a mask to its centre.
        self.state.run(lambda: self._stroke(path - 0.5, radius, erase))

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

    def _mask_found(self) -> None:
        if self._found is not None:
            found = "pt.analysis.find_bad_pixels(scan).mask"
            found = f"np.fft.fftshift({found})" if is_shifted(self.state.scan) else found
            self._change(self._history.mask & centred(self.state.scan, self._found.mask), f"mask = mask & {found}")

    def _in_order(self) -> str:
        return "np.fft.ifftshift(mask)" if is_shifted(self.state.scan) else "mask"

    def _save(self) -> None:
        save_mask(self.mask, self._file.value)
        self._say_first_line()
        self.state.say(f"pt.save_mask({self._in_order()}, {self._file.value!r})")
        put(self._summary, f"Saved to {self._file.value}: True for good pixels, in the order of the patterns.")

    def _load(self) -> None:
        loaded = load_mask(self._file.value)
        with_mask(self.state.scan, loaded)  # raises an error for another shape
        shift = is_shifted(self.state.scan)
        load = f"pt.load_mask({self._file.value!r})"
        self._change(centred(self.state.scan, loaded), f"mask = {f'np.fft.fftshift({load})' if shift else load}")

    def _use(self) -> None:
        mask = self.mask
        whole = bool(mask.all())
        line = f"scan = pt.analysis.with_mask(scan, {'None' if whole else self._in_order()})"
        earlier_lines = (self._first_line(), *self._lines)
        used = with_mask(self.state.scan, None if whole else mask)
        self._say_first_line()
        self.state.replace(used, [line], earlier_lines=earlier_lines)


def _mask_of(state: InspectorState) -> Array:
    scan = state.scan
    return np.ones(scan.pattern_shape, bool) if scan.mask is None else centred(scan, scan.mask)


def _counts(found: BadPixels) -> str:
    """Return the number of bad pixels by kind: "3 hot, 0 dead, ..."."""
    kinds = {"hot": found.hot, "dead": found.dead, "stuck": found.stuck, "not finite": found.lost}
    return ", ".join(f"{int(pixels.sum())} {kind}" for kind, pixels in kinds.items())
