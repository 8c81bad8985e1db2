"""The view of results side by side: pictures with one zoom, two in one pane, a difference, curves and tables."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import traitlets

from ptynb.analysis.comparison_images import QUANTITIES, SIDE, ComparisonPictures, Quantity, objects, probes, value_text
from ptynb.analysis.result_comparison import Together
from ptynb.data.engine_records import Array, Picture, Result
from ptynb.data.images import part_of, reduction_for
from ptynb.exceptions import InvalidValueError
from ptynb.io.named_results import Given, named
from ptynb.supervised_thread import SupervisedThread
from ptynb.widgets.actions import Actions
from ptynb.widgets.compare import comparison_facts
from ptynb.widgets.compare.overlays import SliceCuts, mark_positions, remove_marks
from ptynb.widgets.element_tree import Element, command, shown
from ptynb.widgets.viewer.viewer import Viewer

Pair = tuple[str, str]
Limits = tuple[float, float]
TELL_SECONDS = 0.6
"""Time after which a choice of colours that stays is told as a line of Python."""
ALL, NONE, OFF = "all", "none", "off"
"""Choices besides slices and pairs."""
ONE_PANE = {"slider": "swipe", "flicker": "flicker"}
"""Choices of two results in one pane, and the pairing of the viewer for each."""


@dataclass(frozen=True)
class Look:
    """Colour maps and limits by picture."""

    colours: dict[str, str] = field(default_factory=dict)
    limits: dict[str, list[float]] = field(default_factory=dict)


class Compare(Element):
    """Results side by side; see `compare`.

    results: by name. tell: called with the line of Python equivalent to a click, for a view named `view`. looks: colour
    maps and limits that were chosen, by quantity.

    chosen: what is shown, by the names of the arguments of `show`: one of the texts in `options`, or whether it is.
    thick: whether an object has slices. cuts: viewer of cuts, while they are shown. difference, losses: curves with
    their sentences; settings, facts: rows of tables with a column for each result.
    """

    component = "compare"
    columns: traitlets.List[str] = shown(traitlets.List())
    options: traitlets.Dict[str, list[str]] = shown(traitlets.Dict())
    chosen: traitlets.Dict[str, str | bool] = shown(traitlets.Dict())
    thick = shown(traitlets.Bool(False))
    viewer = shown(traitlets.Instance(Viewer))
    cuts = shown(traitlets.Instance(Viewer, allow_none=True))
    busy = shown(traitlets.Bool(False))
    message = shown(traitlets.Unicode(""))
    notes: traitlets.List[str] = shown(traitlets.List())
    cut_notes: traitlets.List[str] = shown(traitlets.List())
    difference: traitlets.Dict[str, Any] = shown(traitlets.Dict())
    losses: traitlets.Dict[str, Any] = shown(traitlets.Dict())
    settings: traitlets.List[comparison_facts.Row] = shown(traitlets.List())
    facts: traitlets.List[comparison_facts.Row] = shown(traitlets.List())

    def __init__(self, results: Mapping[str, Result], looks: Mapping[str, Look] | None = None) -> None:
        self.results = dict(results)
        self.looks: dict[str, Look] = dict(looks or {})
        self._together: dict[int | str, Together] = {}
        self._values: dict[str, Array] = {}
        self._units: dict[str, str] = {}
        self._pictures: tuple[Picture, ...] = ()
        self._quantity = ""
        self._told_cuts: dict[str, str] = {}
        self._lock, self._waiting_lines = threading.Lock(), dict[str, threading.Event]()
        # The first pair is the second result minus the first.
        pairs = {f"{one} − {other}": (one, other) for other, one in itertools.permutations(results, 2)}
        between: dict[str, Any] = {OFF: OFF}
        between |= {f"{one} | {other}": (one, other) for one, other in itertools.combinations(results, 2)}
        slices = max(len(result.slices) for result in results.values())
        offered: dict[str, dict[str, Any]] = {
            "picture": {quantity: quantity for quantity in QUANTITIES},
            "slice": {ALL: ALL, **({str(number): number for number in range(slices)} if slices > 1 else {})},
            "pair": {**pairs, NONE: NONE},
            "slider": between,
            "flicker": between,
        }
        switches = {"registered": True, "positions": False, "cuts": False}
        self._offered: dict[str, dict[Any, Any]] = {**offered, **{one: {True: True, False: False} for one in switches}}
        super().__init__(
            columns=[*results],
            options={name: [*texts] for name, texts in offered.items()},
            chosen={**{name: next(iter(texts)) for name, texts in offered.items()}, **switches},
            thick=slices > 1,
            viewer=Viewer(share=0.52, value_at=self._value_at, figure_of=self._figure_of, shows_regions=True),
        )
        self.viewer.tell = self._say
        self._actions = Actions("ptynb compare", self._complain, self._end)
        self._cuts = SliceCuts(self.viewer, lambda: self._actions.put(self._overlay, instead_of="cuts"))
        self.viewer.observe(lambda _: self._follow(), ["swipe", "pairing"])
        self.viewer.observe(lambda _: self._actions.put(self._show_region, instead_of="region"), ["region", "coarse"])
        self.viewer.observe(self._coloured, ["colours", "limits", "linked_colours"])
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
        with self._lock:
            for followed in self._waiting_lines.values():
                followed.set()
        for viewer in (self.viewer, self._cuts.viewer):
            viewer.close()
        super().close()

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
        given: dict[str, Any] = {
            "picture": picture, "slice": slice, "pair": pair, "slider": slider, "flicker": flicker,
            "registered": registered, "positions": positions, "cuts": cuts,
        }  # fmt: skip
        choices = {name: value for name, value in given.items() if value is not None}
        for name, value in choices.items():
            offered = self._offered[name].values()
            if value not in offered:
                raise InvalidValueError(
                    f"{name} is {value!r}; expected one of {', '.join(map(repr, offered))}.",
                    code="argument.invalid-value",
                )
        for name, value in choices.items():
            self._choose(name, value)
        if colours is not None or limits is not None:
            self._actions.put(lambda: self._look(colours, limits))
        if linked is not None:
            self.viewer.linked_colours = linked

    @command
    def choose(self, name: str, choice: str | bool) -> None:
        """Choose what is shown by a text of `options`, or by True and False."""
        self._choose(name, self._offered[name][choice])

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

    # Choices

    def _chosen(self, name: str) -> Any:
        return self._offered[name][self.chosen[name]]

    def _choose(self, name: str, value: Any) -> None:
        if self._chosen(name) == value:
            return
        if name in ONE_PANE:
            self._choose_pair(name if value != OFF else "", value)
            self._actions.put(lambda: self._pair_up(chosen=True), instead_of="pair up")
        else:
            self._set({name: value})
            self._actions.put(self._draw, instead_of="draw")
        self._say(f"view.show({name}={value!r})")

    def _set(self, values: Mapping[str, Any]) -> None:
        offered = {name: {one: text for text, one in self._offered[name].items()} for name in values}
        with self._lock:  # the viewer's tools choose in another thread
            self.chosen = {**self.chosen, **{name: offered[name][value] for name, value in values.items()}}

    def _choose_pair(self, chosen: str, pair: Pair | str) -> None:
        """Choose two results in one pane: at most one of the ways to show them has a pair."""
        pairs = self._offered["slider"].values()
        found = next((one for one in (pair, pair[::-1]) if one in pairs), OFF)
        self._set({name: found if name == chosen else OFF for name in ONE_PANE})

    def _follow(self) -> None:
        """Choose what the viewer's own tools have chosen."""
        viewer = self.viewer
        chosen = next((name for name, pairing in ONE_PANE.items() if viewer.swipe and pairing == viewer.pairing), "")
        self._choose_pair(chosen, (viewer.swipe[0], viewer.swipe[1]) if chosen else OFF)

    # Colours

    def _look(
        self, colours: str | Mapping[str, str] | None, limits: Limits | Mapping[str, Limits] | str | None
    ) -> None:
        """Show pictures of the present quantity with colour maps and limits."""
        viewer, names = self.viewer, [name for name in self._values if name in self.results]
        if colours is not None:
            chosen = dict(colours) if isinstance(colours, Mapping) else dict.fromkeys(names, colours)
            viewer.colours = {**viewer.colours, **chosen}
        if limits == "auto":
            viewer.limits = {}
        elif limits is not None:
            ends = dict(limits) if isinstance(limits, Mapping) else dict.fromkeys(names, limits)
            viewer.limits = {**viewer.limits, **{name: [*values] for name, values in ends.items()}}

    def _coloured(self, change: Any) -> None:
        """Keep a choice of the viewer's tools, and tell its line of Python once it stays."""
        if self._quantity:
            self._keep_look()
            shown = {*self._values} & {*self.results}
            self._say_soon(change["name"], _look_line(change["name"], change["old"], change["new"], shown))

    def _keep_look(self) -> None:
        """Remember what is chosen for the present quantity."""
        if self._quantity:
            self.looks[self._quantity] = Look(dict(self.viewer.colours), dict(self.viewer.limits))

    # In the thread of the actions

    def _show_facts(self) -> None:
        self.facts = comparison_facts.facts(self.results)
        self.settings = comparison_facts.settings(self.results)
        self.losses = comparison_facts.losses(self.results)

    def _draw(self) -> None:
        quantity, depth, pair = (self._chosen(name) for name in ("picture", "slice", "pair"))
        if quantity == "probe":
            shown = probes(self.results)
        else:
            if depth not in self._together:  # one at a time: its differences are as large as the objects
                self._together = {depth: Together(self.results, None if depth == ALL else depth)}
            together, pair = self._together[depth], None if pair == NONE else pair
            shown = objects(together, quantity, self._chosen("registered"), pair)
            self._show_difference(together, pair)
        self._show(quantity, shown)
        self._overlay()

    def _overlay(self) -> None:
        """Draw positions and cuts over the objects as they are chosen."""
        together = next(iter(self._together.values()), None) if self._quantity != "probe" else None
        registered = self._chosen("registered")
        if together is None or not self._chosen("positions"):
            remove_marks(self.viewer)
        else:
            mark_positions(self.viewer, together, registered)
        if together is None or not self._chosen("cuts"):
            self._cuts.hide()
            problems = []
        else:
            panes = [name for name in self._values if name not in together.left_out]
            problems = self._cuts.draw(together, self._quantity, registered, panes)  # type: ignore[arg-type]
        self.cuts, self.cut_notes = self._cuts.viewer if self._cuts.shown else None, problems
        for name, line in self._cuts.lines.items():
            if self._told_cuts.get(name) != line:
                self._told_cuts[name] = line
                self._say_soon(f"cuts {name}", line)

    def _show(self, quantity: str, shown: ComparisonPictures) -> None:
        self._values, self._units = shown.values, {picture.name: picture.unit for picture in shown.pictures}
        self.notes = [*shown.notes]
        if quantity != self._quantity:  # pictures of another quantity have the same names
            self._keep_look()
            self._quantity = ""
            look = self.looks.get(quantity, Look())
            with self.viewer.hold_sync():
                self.viewer.colours, self.viewer.limits = look.colours, look.limits
            self._quantity = quantity
        self.viewer.expressions = {name: _array_line(name, values) for name, values in shown.values.items()}
        self._pictures = shown.pictures
        with self.viewer.hold_sync():
            self.viewer.show(shown.pictures)
            self._show_region()
        self._pair_up()

    def _show_region(self) -> None:
        """Show the region that users look at with more pixels."""
        viewer, parts = self.viewer, list[Picture]()
        top, bottom, left, right = viewer.region or (0, 0, 0, 0)
        for picture in self._pictures:
            values = self._values[picture.name][top:bottom, left:right]
            size = min(SIDE, -(-max(values.shape) // viewer.coarse))
            if values.size and reduction_for(values.shape, size) < picture.reduction:
                region = slice(top, bottom), slice(left, right)
                parts.append(part_of(picture, self._values[picture.name], region, size))
        viewer.show_region(parts, (top, left))

    def _show_difference(self, together: Together, pair: Pair | None) -> None:
        if pair is None:
            self.difference = {}
            return
        try:
            self.difference = comparison_facts.difference(together.difference(*pair), pair, together.pixel_size)
        except ValueError as error:
            self.difference = {"problem": str(error)}

    def _pair_up(self, chosen: bool = False) -> None:
        """Show two results in one pane as it is chosen.

        chosen: whether it was by a field; otherwise pairs for which there is no choice, such as one with the
        difference, stay.
        """
        viewer = self.viewer
        for name, pairing in ONE_PANE.items():
            pair = self._chosen(name)
            if pair != OFF:
                with viewer.hold_sync(), viewer.hold_trait_notifications():
                    viewer.pairing, viewer.swipe = pairing, list(pair)
                return
        if viewer.pairing in ONE_PANE.values() and (chosen or {*viewer.swipe} <= {*self.results}):
            viewer.swipe = []

    def _figure_of(self, name: str) -> tuple[Array, str]:
        return self.values[name], f"view.values[{name!r}]"

    def _value_at(self, name: str, y: int, x: int) -> str:
        values = self._values.get(name)
        inside = values is not None and 0 <= y < values.shape[0] and 0 <= x < values.shape[1]
        return f"{value_text(values[y, x])} {self._units[name]}".rstrip() if values is not None and inside else ""

    # What is told

    def _say_soon(self, what: str, line: str) -> None:
        """Tell a line once no other one of the same kind follows it, as during a drag."""
        followed = threading.Event()
        with self._lock:
            self._waiting_lines.get(what, followed).set()
            followed = self._waiting_lines[what] = threading.Event()

        def tell() -> None:
            if not followed.wait(TELL_SECONDS):
                self._say(line)

        SupervisedThread("ptynb line", tell).start()

    def _end(self) -> None:
        self.busy = False

    def _complain(self, error: Exception | None) -> None:
        """Show an error; None, at the begin of an action, removes it."""
        self.message, self.busy = "" if error is None else str(error), error is None


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


def _look_line(trait: str, before: Any, now: Any, results: set[str]) -> str:
    """Return the call of `Compare.show`, for a view named `view`, of a change of a viewer's trait.

    trait: "colours", "limits" or "linked_colours". results: names of the results whose pictures are shown: one value
    for all of them is told as such, others by picture.
    """
    if trait == "linked_colours":
        return f"view.show(linked={now!r})"
    changed = {name: value for name, value in now.items() if value != before.get(name)}
    if not changed:
        return "view.show(limits='auto')"
    if trait == "limits":
        changed = {name: tuple(float(f"{end:.5g}") for end in value) for name, value in changed.items()}
    first = next(iter(changed.values()))
    common = {*changed} == results and all(value == first for value in changed.values())
    return f"view.show({trait}={(first if common else changed)!r})"
