"""The view of results side by side: pictures with one zoom, two in one pane, a difference, curves and tables."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ptynb.analysis.comparison_images import QUANTITIES, ComparisonPictures, Quantity, objects, probes, value_text
from ptynb.analysis.result_comparison import Together
from ptynb.data.engine_records import Array, Result
from ptynb.exceptions import InvalidValueError
from ptynb.io.named_results import Given, named
from ptynb.supervised_thread import SupervisedThread
from ptynb.widgets import elements
from ptynb.widgets.actions import Actions
from ptynb.widgets.compare.comparison_tables import difference_facts, facts_table, loss_curves, settings_table
from ptynb.widgets.compare.picture_look import Limits, Look, look_line
from ptynb.widgets.compare.position_marks import mark_positions, remove_marks
from ptynb.widgets.compare.slice_cuts import SliceCuts
from ptynb.widgets.shared_widgets import complaint, note, put
from ptynb.widgets.viewer.viewer import Viewer

Pair = tuple[str, str]
TELL_SECONDS = 0.6
"""Time after which a choice of colours that stays is told as a line of Python."""
SECTIONS = ("Difference", "Losses", "Settings", "Facts")
ALL, NONE, OFF = "all", "none", "off"
"""Choices besides slices and pairs; not None, which a field shows as empty."""
ONE_PANE = {"slider": "swipe", "flicker": "flicker"}
"""Fields that show two results in one pane, and the pairing of the viewer for each."""


class Compare(elements.VBox):
    """Results side by side; see `compare`.

    results: by name. tell: called with the line of Python equivalent to a click, for a view named `view`. looks: colour
    maps and limits that were chosen, by quantity.
    """

    def __init__(self, results: Mapping[str, Result], looks: Mapping[str, Look] | None = None) -> None:
        self.results = dict(results)
        self.looks: dict[str, Look] = dict(looks or {})
        self.tell: Callable[[str], None] | None = None
        self._together: dict[int | str, Together] = {}
        self._values: dict[str, Array] = {}
        self._units: dict[str, str] = {}
        self._quantity = ""
        self._told_cuts: dict[str, str] = {}
        self._telling, self._waiting_lines = threading.Lock(), dict[str, threading.Event]()
        self._viewer = Viewer(share=0.52, value_at=self._value_at, figure_of=self._figure_of)
        this = weakref.ref(self)  # the viewer must not keep the view alive
        self._viewer.tell = lambda line: _tell(this, line)
        self._message, self._notes, self._cut_notes, self._busy = (elements.HTML() for _ in range(4))
        # The first pair is the second result minus the first.
        pairs = {f"{one} − {other}": (one, other) for other, one in itertools.permutations(results, 2)}
        between = {f"{one} | {other}": (one, other) for one, other in itertools.combinations(results, 2)}
        slices = max(len(result.slices) for result in results.values())
        depths = {ALL: ALL, **({str(number): number for number in range(slices)} if slices > 1 else {})}
        self._controls = {
            "picture": _dropdown("Show", {quantity: quantity for quantity in QUANTITIES}, "phase"),
            "slice": _dropdown("Slice", depths, ALL),
            "pair": _dropdown("Difference", {**pairs, NONE: NONE}, next(iter(pairs.values()))),
            "slider": _dropdown("Slider", {OFF: OFF, **between}, OFF),
            "flicker": _dropdown("Flicker", {OFF: OFF, **between}, OFF),
            "registered": elements.Checkbox(True, description="Registered", indent=False, layout=_width("auto")),
            "positions": elements.Checkbox(False, description="Positions", indent=False, layout=_width("auto")),
            "cuts": elements.Checkbox(False, description="Cuts", indent=False, layout=_width("auto")),
        }
        self._controls["positions"].tooltip = "Shows positions over the objects, with arrows to the refined ones."
        self._controls[
            "cuts"
        ].tooltip = "Shows cuts along the beam through all slices, at a crosshair that clicks move."
        self._controls["cuts"].layout.display = None if slices > 1 else "none"
        self._controls[
            "registered"
        ].tooltip = "Aligns all objects with the first one, in position, phase and amplitude."
        self._controls["slider"].tooltip = "Shows two results in one pane, with a slider between them."
        self._controls["flicker"].tooltip = "Shows two results in one pane, in turn."
        self._controls["slice"].disabled = slices == 1
        self._difference, self._losses, self._settings, self._facts = (elements.HTML() for _ in SECTIONS)
        self._sections = elements.Tab(
            [self._difference, self._losses, self._settings, self._facts], titles=SECTIONS, selected_index=0
        )
        controls = elements.HBox(
            [*self._controls.values(), self._busy],
            layout=elements.Layout(flex_flow="row wrap", align_items="center", overflow="visible"),
        )
        self._cuts = SliceCuts(self._viewer, lambda: _move_cuts(this))
        pictures = [self._viewer, self._cuts.place, self._cut_notes]
        super().__init__([controls, self._message, self._notes, *pictures, self._sections])
        self.add_class("ptynb-compare")
        self._actions = Actions("ptynb compare", self._complain, self._end)
        self._following = False
        self._viewer.observe(lambda _: _follow(this), ["swipe", "pairing"])
        self._viewer.observe(lambda change: _coloured(this, change), ["colours", "limits", "linked_colours"])
        for name, control in self._controls.items():
            control.observe(lambda change, name=name: self._chosen(name, change["new"]), "value")
        self._actions.put(self._show_facts)
        self._actions.put(self._draw, instead_of="draw")

    @property
    def values(self) -> dict[str, Array]:
        """Arrays (y, x) of the pictures, by name, once all choices are shown."""
        self.settle()
        return self._values

    def close(self) -> None:
        """Close the view and end its thread."""
        self._actions.close()
        with self._telling:
            for followed in self._waiting_lines.values():
                followed.set()
        super().close()
        self._cuts.viewer.close()  # which is no child while there are no cuts

    def show(
        self,
        *,
        picture: Quantity | None = None,
        slice: int | str | None = None,
        pair: Pair | str | None = None,
        slider: Pair | str | None = None,
        flicker: Pair | str | None = None,
        registered: bool | None = None,
        positions: bool | None = None,
        cuts: bool | None = None,
        colours: str | Mapping[str, str] | None = None,
        limits: Limits | Mapping[str, Limits] | str | None = None,
        linked: bool | None = None,
    ) -> None:
        """Choose what is shown, as the fields above the pictures do; None leaves a choice unchanged.

        Parameters
        ----------
        picture : str, optional
            "phase", "amplitude", "complex" or "probe".
        slice : int or str, optional
            Index of a slice, or "all".
        pair : tuple of str, optional
            Names of two results, of which the second is subtracted from the first, or "none".
        slider : tuple of str, optional
            Names of two results in one pane with a slider between them, or "off".
        flicker : tuple of str, optional
            Names of two results in one pane that are shown in turn, or "off". It ends a slider, and a slider ends it.
        registered : bool, optional
            Whether all results are registered on the first one.
        positions : bool, optional
            Whether positions are shown over the objects, with arrows to the refined ones.
        cuts : bool, optional
            Whether cuts along the beam are shown below thick objects; a click on an object moves them.
        colours : str or mapping of str to str, optional
            Colour map of all results, in the quantity that is shown: "gray", "viridis", "cividis", "magma", "PuOr",
            "twilight", or another one of matplotlib; or of single pictures by name ("difference" is one).
        limits : (float, float), mapping of str to these, or "auto", optional
            Values at the ends of the colours, likewise; "auto": the automatic ones, of all pictures.
        linked : bool, optional
            Whether a choice of colours or limits on one picture holds for all pictures of its quantity.

        Raises
        ------
        InvalidValueError
            If there is no such picture, slice or result.
        """
        chosen: dict[str, Any] = {
            "picture": picture,
            "slice": slice,
            "pair": pair,
            "slider": slider,
            "flicker": flicker,
        }
        choices = {name: value for name, value in chosen.items() if value is not None}
        for name, value in choices.items():
            options = dict(self._controls[name].options)
            if value not in options.values():
                raise InvalidValueError(
                    f"{name} is {value!r}; expected one of {', '.join(map(repr, options.values()))}.",
                    code="argument.invalid-value",
                )
        for name, value in choices.items():
            self._controls[name].value = value
        for name, ticked in (("registered", registered), ("positions", positions), ("cuts", cuts)):
            if ticked is not None:
                self._controls[name].value = ticked
        if colours is not None or limits is not None:
            self._actions.put(lambda: self._look(colours, limits))
        if linked is not None:
            self._viewer.linked_colours = linked

    def settle(self, seconds: float = 60.0) -> None:
        """Wait until all choices are shown.

        Parameters
        ----------
        seconds : float, optional
            Time limit [s].

        Raises
        ------
        TimeoutError
            If the time limit is exceeded.
        """
        self._actions.settle(seconds)

    def _chosen(self, name: str, value: Any) -> None:
        if self._following:
            return
        if self.tell is not None:
            self.tell(f"view.show({name}={value!r})")
        if name in ONE_PANE:
            self._choose_pair(name if value != OFF else "", value)
            self._actions.put(lambda: self._pair_up(chosen=True), instead_of="pair up")
        else:
            self._actions.put(self._draw, instead_of="draw")

    def _look(
        self, colours: str | Mapping[str, str] | None, limits: Limits | Mapping[str, Limits] | str | None
    ) -> None:
        """Show pictures of the present quantity with colour maps and limits."""
        viewer, names = self._viewer, [name for name in self._values if name in self.results]
        if colours is not None:
            chosen = dict(colours) if isinstance(colours, Mapping) else dict.fromkeys(names, colours)
            viewer.colours = {**viewer.colours, **chosen}
        if limits == "auto":
            viewer.limits = {}
        elif limits is not None:
            ends = dict(limits) if isinstance(limits, Mapping) else dict.fromkeys(names, limits)
            viewer.limits = {**viewer.limits, **{name: [*values] for name, values in ends.items()}}

    def _tell_soon(self, what: str, line: str) -> None:
        """Tell a line once no other one of the same kind follows it, as during a drag."""
        with self._telling:
            before = self._waiting_lines.get(what)
            if before is not None:
                before.set()
            followed = self._waiting_lines[what] = threading.Event()
            SupervisedThread("ptynb line", _tell_unless, followed, weakref.ref(self), line).start()

    def _keep_look(self) -> None:
        """Remember what is chosen for the present quantity."""
        if self._quantity:
            self.looks[self._quantity] = Look(dict(self._viewer.colours), dict(self._viewer.limits))

    def _choose_pair(self, chosen: str, pair: Pair | str) -> None:
        """Set the fields for two results in one pane: at most one of them has a pair."""
        self._following = True
        try:
            for name in ONE_PANE:
                options = dict(self._controls[name].options).values()
                found = next((one for one in (pair, pair[::-1]) if one in options), OFF)
                self._controls[name].value = found if name == chosen else OFF
        finally:
            self._following = False

    def _show_facts(self) -> None:
        put(self._facts, facts_table(self.results))
        put(self._settings, settings_table(self.results))
        put(self._losses, loss_curves(self.results))

    def _draw(self) -> None:
        quantity, depth, chosen, registered = (
            self._controls[name].value for name in ("picture", "slice", "pair", "registered")
        )
        together = None
        pair = None if chosen == NONE else chosen
        put(self._notes, "")
        if quantity == "probe":
            shown = probes(self.results)
        else:
            if depth not in self._together:  # one at a time: its differences are as large as the objects
                self._together = {depth: Together(self.results, None if depth == ALL else depth)}
            together = self._together[depth]
            shown = objects(together, quantity, registered, pair)
            self._show_difference(together, pair)
        self._show(shown)
        self._overlay(together)

    def _overlay(self, together: Together | None) -> None:
        """Draw positions and cuts as they are chosen. together: of the objects that are shown; None: probes are."""
        registered = self._controls["registered"].value
        if together is None or not self._controls["positions"].value:
            remove_marks(self._viewer, [*self._viewer.points])
        else:
            mark_positions(self._viewer, together, registered)
        if together is None or not self._controls["cuts"].value:
            self._cuts.hide()
            put(self._cut_notes, "")
            return
        panes = [name for name in self._values if name not in together.left_out]
        problems = self._cuts.draw(together, self._controls["picture"].value, registered, panes)
        put(self._cut_notes, "".join(note(text) for text in problems))
        for name, line in self._cuts.lines.items():
            if self._told_cuts.get(name) != line:
                self._told_cuts[name] = line
                self._tell_soon(f"cuts {name}", line)

    def _show(self, shown: ComparisonPictures) -> None:
        self._values, self._units = shown.values, {picture.name: picture.unit for picture in shown.pictures}
        put(self._notes, "".join(note(text) for text in shown.notes))
        quantity = self._controls["picture"].value
        if quantity != self._quantity:  # pictures of another quantity have the same names
            self._keep_look()
            self._quantity = ""
            look = self.looks.get(quantity, Look())
            with self._viewer.hold_sync():
                self._viewer.colours, self._viewer.limits = look.colours, look.limits
            self._quantity = quantity
        self._viewer.expressions = {name: _array_line(name, values) for name, values in shown.values.items()}
        self._viewer.show(shown.pictures)
        self._pair_up()

    def _show_difference(self, together: Together, pair: Pair | None) -> None:
        if pair is None:
            put(self._difference, "<p>No pair is selected.</p>")
            return
        try:
            put(self._difference, difference_facts(together.difference(*pair), pair, together.pixel_size))
        except ValueError as error:
            put(self._difference, note(str(error)))

    def _pair_up(self, chosen: bool = False) -> None:
        """Show two results in one pane as the fields say.

        chosen: whether a field was changed; otherwise pairs for which they have no choice, such as one with the
        difference, stay.
        """
        for name, pairing in ONE_PANE.items():
            pair = self._controls[name].value
            if pair != OFF:
                with self._viewer.hold_sync(), self._viewer.hold_trait_notifications():
                    self._viewer.pairing, self._viewer.swipe = pairing, list(pair)
                return
        viewer = self._viewer
        if viewer.pairing in ONE_PANE.values() and (chosen or {*viewer.swipe} <= {*self.results}):
            viewer.swipe = []

    def _figure_of(self, name: str) -> tuple[Array, str]:
        return self.values[name], f"view.values[{name!r}]"

    def _value_at(self, name: str, y: int, x: int) -> str:
        values = self._values.get(name)
        inside = values is not None and 0 <= y < values.shape[0] and 0 <= x < values.shape[1]
        return f"{value_text(values[y, x])} {self._units[name]}".rstrip() if values is not None and inside else ""

    def _end(self) -> None:
        put(self._busy, "")

    def _complain(self, error: Exception | None) -> None:
        """Show an error; None, at the begin of an action, removes it."""
        put(self._message, complaint(error))
        if error is None:
            put(self._busy, '<span role="status">comparing …</span>')


def compare(*results: Given) -> Compare:
    """Return a view of two or more results side by side.

    The first result is the reference: the others are resampled to its pixels and, optionally, registered on it.
    Objects are shown over their common area, with one zoom. The computations are `ptynb.analysis.Together`,
    `settings_that_differ` and `facts_of`.

    Parameters
    ----------
    *results : Result, Checkpoint, str, Path or mapping of str to these
        Results, checkpoints of a reconstruction (`recon.checkpoints`), paths of files of either, or mappings of names
        to them. Checkpoints are read from their files, without engines, and named "epoch 40 (main)".

    Returns
    -------
    Compare
        The view. `show` chooses what is shown; `close` ends it and its thread.

    Raises
    ------
    InvalidValueError
        For fewer than two results.
    InvalidTypeError
        For an argument of another type.
    FileError
        For a file that is neither a result nor a checkpoint.
    """
    return Compare(named(results))


def _array_line(name: str, values: Array) -> str:
    """Return the Python of what a picture shows and can be measured."""
    line = f"view.values[{name!r}]"
    return f"np.abs({line})" if np.iscomplexobj(values) else line


def _tell_unless(followed: threading.Event, reference: weakref.ref[Compare], line: str) -> None:
    if not followed.wait(TELL_SECONDS):
        _tell(reference, line)


def _tell(reference: weakref.ref[Compare], line: str) -> None:
    view = reference()
    if view is not None and view.tell is not None:
        view.tell(line)


def _follow(reference: weakref.ref[Compare]) -> None:
    """Set the fields to what the viewer's own tools chose."""
    view = reference()
    if view is not None:
        viewer = view._viewer
        chosen = next((name for name, pairing in ONE_PANE.items() if viewer.swipe and pairing == viewer.pairing), "")
        view._choose_pair(chosen, (viewer.swipe[0], viewer.swipe[1]) if chosen else OFF)


def _move_cuts(reference: weakref.ref[Compare]) -> None:
    """Draw the cuts where the crosshair was moved to."""
    view = reference()
    if view is not None:
        view._actions.put(lambda: view._overlay(next(iter(view._together.values()), None)), instead_of="cuts")


def _coloured(reference: weakref.ref[Compare], change: Any) -> None:
    """Keep a choice of the viewer's tools, and tell its line of Python once it stays."""
    view = reference()
    if view is not None and view._quantity:
        view._keep_look()
        shown = {*view._values} & {*view.results}
        view._tell_soon(change["name"], look_line(change["name"], change["old"], change["new"], shown))


def _dropdown(description: str, options: Mapping[str, Any], value: Any) -> elements.Dropdown:
    style = {"description_width": "initial"}
    return elements.Dropdown(
        options=list(options.items()), value=value, description=description, style=style, layout=_width("auto")
    )


def _width(width: str) -> elements.Layout:
    return elements.Layout(width=width, margin="2px 14px 2px 2px")
