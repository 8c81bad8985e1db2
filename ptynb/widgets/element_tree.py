"""Elements, of which views are made, and the page that shows them in a notebook.

An element has traits and no widget. An `ElementPage` shows an element with all below it: it sends their traits, and
what changes in them, to browsers, and sets what users change there. Messages travel through one model of a notebook
(`page_widget`), or through the WebSockets of a dashboard (`ptynb.cli.dashboard_page`).

Messages to the browser, each with a number that increases by one:

- `{"number", "changes": [[element, {trait: value}]], "new": {element: state}, "gone": [element, ...], "defaults"}`
- `{"number", "to": element, "content", ...}`: a message of an element to what draws it, such as a picture
- `{"number", "tree"}`: everything, after `{"seen": number}` of a browser that has missed messages

and from it `{"to": element, "set": {trait: value}, "from": browser}`, `{"to": element, "command", "arguments"}` and
`{"to": element, "content"}`. In values an element is `{"$element": key}` and bytes are `{"$buffer": index}` of the
message's buffers; what has changed in a dictionary is `{"$changed": {key: value}, "$removed": [key, ...]}`.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

import traitlets

logger = logging.getLogger(__name__)

ELEMENT, BUFFER, CHANGED, REMOVED = "$element", "$buffer", "$changed", "$removed"
Received = Callable[["Element", dict[str, Any], Sequence[Any]], Any]
Method = TypeVar("Method", bound=Callable[..., Any])
_keys = itertools.count(1)


def command(method: Method) -> Method:
    """Mark a method of an element that what draws it may call, with keyword arguments of plain data.

    It returns at once: what takes time is done by `Actions`.
    """
    method.is_command = True  # type: ignore[attr-defined]
    return method


def shown(trait: Any) -> Any:
    """Return a trait that pages show, and cannot set."""
    return trait.tag(sync=True, settable=False)


class Element(traitlets.HasTraits):
    """A part of a view: its state, and commands on it; the browser draws it. Neither needs a browser.

    Traits with the tag `sync` are shown by pages, and may be set by them unless their tag `settable` is False. Of a
    dictionary pages get the keys that have changed. Traits with the tag `transient`, too, are no part of an element's
    state: pages get their changes, and the present value where an element announces it.

    component: name of what draws it in the browser. tell: called with the lines of Python equivalent to clicks. It is
    displayed if it is the last expression of a notebook cell; `widget` is the widget that shows it alone, for boxes of
    ipywidgets.
    """

    component: ClassVar[str] = ""

    tell: Callable[[str], None] | None = None
    _closed = False
    _page_list: tuple[ElementPage, ...] = ()
    _own_widget: Any = None
    _held_names: set[str] | None = None

    def __init__(self, **traits: Any) -> None:
        self.key = str(next(_keys))
        self._receivers: list[Received] = []
        super().__init__(**traits)

    @classmethod
    @functools.cache
    def synced(cls) -> tuple[str, ...]:
        """Return the names of the traits that pages show."""
        return tuple(cls.class_trait_names(sync=True))

    @classmethod
    @functools.cache
    def defaults(cls) -> dict[str, Any]:
        """Return the default of each of these traits, which messages leave out."""
        traits = cls.class_traits(sync=True).items()
        values = {name: getattr(trait, "make_dynamic_default", trait.default)() for name, trait in traits}
        return {name: _marked(value) for name, value in values.items()}

    def notify_change(self, change: Any) -> None:
        """Show a change of a trait on all pages, then call its observers."""
        if change["name"] in self.synced():
            self.announce(change["name"])
        super().notify_change(change)

    def announce(self, *names: str) -> None:
        """Show the present values of traits on all pages."""
        if self._held_names is not None:
            self._held_names.update(names)
        elif self._page_list:
            for page in self._page_list:
                page.changed(self, names)

    @contextmanager
    def hold_sync(self) -> Iterator[None]:
        """Show all changes of traits within the context at its end, in one message."""
        if self._held_names is not None:
            yield
            return
        self._held_names = set()
        try:
            yield
        finally:
            names, self._held_names = self._held_names, None
            if names:
                self.announce(*names)

    def send(self, content: dict[str, Any], buffers: Sequence[Any] = ()) -> None:
        """Send a message to what draws this element on all pages."""
        for page in self._page_list:
            page.post({"to": self.key, "content": content}, buffers)

    def on_msg(self, receive: Received) -> None:
        """Register a function of (element, content, buffers) for the messages of what draws this element."""
        self._receivers.append(receive)

    def receive(self, content: dict[str, Any], buffers: Sequence[Any] = ()) -> None:
        """Handle a message of what draws this element."""
        for receive in self._receivers:
            receive(self, content, buffers)

    def receive_command(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Call the command of this name."""
        method = getattr(type(self), name, None)
        if not getattr(method, "is_command", False):
            logger.warning("%s has no command %r, which a browser has sent.", type(self).__name__, name)
            return
        getattr(self, name)(**arguments)

    def receive_values(self, values: Mapping[str, Any]) -> None:
        """Set traits to values of a browser; the present ones are shown again if they are invalid."""
        settable = [name for name in self.synced() if self.trait_metadata(name, "settable", True)]
        values = {name: value for name, value in values.items() if name in settable}
        try:
            with self.hold_trait_notifications():
                for name, value in values.items():
                    setattr(self, name, value)
        except traitlets.TraitError:
            logger.warning("%s: a browser has sent invalid values %r.", type(self).__name__, values, exc_info=True)
            self.announce(*values)

    def _say(self, *lines: str) -> None:
        """Tell lines of Python."""
        for line in lines:
            if self.tell is not None:
                self.tell(line)

    @property
    def closed(self) -> bool:
        """Whether the element was closed."""
        return self._closed

    def close(self) -> None:
        """Remove the element from the notebook; what it shows continues."""
        self._closed = True
        if self._own_widget is not None:
            self._own_widget.close()
            self._own_widget = None

    @property
    def widget(self) -> Any:
        """The widget that shows this element, for boxes of ipywidgets and `IPython.display`."""
        if self._own_widget is None:  # only here: elements need no ipywidgets
            self._own_widget = importlib.import_module("ptynb.widgets.page_widget").PageWidget(self)
        return self._own_widget

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.widget._repr_mimebundle_(**options)


class ElementPage:
    """Shows an element and all below it; `send` sends a message with its buffers to browsers."""

    def __init__(self, root: Element, send: Callable[[dict[str, Any], list[Any]], Any]) -> None:
        self.root, self._send = root, send
        self._lock = threading.RLock()  # elements change in several threads
        self._number = 0
        self._elements: dict[str, Element] = {}
        self._below: dict[str, dict[str, list[Element]]] = {}
        self._uses: Counter[str] = Counter()
        self._shown: dict[tuple[str, str], dict[Any, Any]] = {}
        self._taking = threading.local()
        with self._lock:
            self._hold(root)

    def close(self) -> None:
        """Send nothing any more; the elements stay."""
        with self._lock:
            for element in self._elements.values():
                element._page_list = tuple(page for page in element._page_list if page is not self)
            self._elements.clear()
            self._send = lambda *_: None  # a thread may be about to post

    def changed(self, element: Element, names: Sequence[str]) -> None:
        """Show traits of an element that have changed."""
        with self._lock:
            if element.key not in self._elements:
                return
            new, gone = list[Element](), list[str]()
            for name in names:
                self._follow(element, name, new, gone)
            values = {name: _marked(getattr(element, name)) for name in names}
            changes = {name: self._changes(element, name, value) for name, value in values.items()}
            message: dict[str, Any] = {
                "changes": [[element.key, changes]],
                "new": {one.key: _state(one) for one in new},
            }
            if gone := sorted(key for key in {*gone} if key not in self._elements):
                message["gone"] = gone
            if new:
                message["defaults"] = _defaults(new)
            if (taking := getattr(self._taking, "now", None)) is not None:
                key, taken, browser = taking
                if key == element.key and all(name in taken and taken[name] == values[name] for name in values):
                    message["from"] = browser  # which shows it already, and perhaps a newer value
                    if not any(element.trait_metadata(name, "echo_update", True) for name in names):
                        return  # nor do others need it, such as the number of the frame that one has drawn
            self.post(message)

    def _changes(self, element: Element, name: str, value: Any) -> Any:
        """Return what pages need to show a value of a trait: of a dictionary, what differs from the last one.

        A value that is announced again is whole: browsers may have set another one, or were not there for the last one,
        as with transient traits, which are in no tree.
        """
        if not isinstance(value, dict) or element.trait_metadata(name, "transient"):
            return value
        last = self._shown.get((element.key, name))
        self._shown[element.key, name] = value
        if last is None or last == value:
            return value
        changed = {one: new for one, new in value.items() if one not in last or last[one] != new}
        return {CHANGED: changed, REMOVED: [one for one in last if one not in value]}

    def post(self, message: dict[str, Any], buffers: Sequence[Any] = ()) -> None:
        """Send a message to browsers."""
        with self._lock:
            self._number += 1
            found: list[Any] = []
            plain = without_bytes(message, found)
            self._send({"number": self._number, "given": len(found), **plain}, [*found, *buffers])

    def tree(self) -> dict[str, Any]:
        """Return the elements of the page by their key, and the number of the last message."""
        with self._lock:
            return {
                "number": self._number,
                "root": self.root.key,
                "defaults": _defaults(self._elements.values()),
                "elements": {key: _state(element) for key, element in self._elements.items()},
            }

    def _follow(self, element: Element, name: str, new: list[Element], gone: list[str]) -> None:
        """Show the elements in a trait from now on, and those that were there before no more."""
        below, before = [*_elements_in(getattr(element, name))], self._below[element.key].pop(name, [])
        if below:
            self._below[element.key][name] = below
        for one in below:
            new += self._hold(one)
        for one in before:
            gone += self._release(one)

    def _hold(self, element: Element) -> list[Element]:
        """Show an element for a trait that contains it; return it and those below it that were not shown before."""
        self._uses[element.key] += 1
        if element.key in self._elements:
            return []
        self._elements[element.key] = element
        element._page_list = (*element._page_list, self)
        self._below[element.key] = {}
        new = [element]
        for name in element.synced():
            self._follow(element, name, new, [])
        return new

    def _release(self, element: Element) -> list[str]:
        """Show an element for one trait less; return the keys of those that are not shown any more."""
        self._uses[element.key] -= 1
        if self._uses[element.key] > 0:
            return []
        del self._uses[element.key], self._elements[element.key]
        for name in element.synced():
            self._shown.pop((element.key, name), None)
        element._page_list = tuple(page for page in element._page_list if page is not self)
        below = [one for ones in self._below.pop(element.key).values() for one in ones]
        return [element.key, *(key for one in below for key in self._release(one))]

    def receive(self, content: dict[str, Any], buffers: Sequence[Any]) -> None:
        """Handle a message of a browser; one to an element that is not shown any more is ignored."""
        if "seen" in content:
            with self._lock:
                if content["seen"] != self._number:
                    self.post({"tree": self.tree()})
            return
        element = self._elements.get(str(content.get("to")))
        if element is None:
            return
        if "command" in content:
            element.receive_command(str(content["command"]), _with_bytes(content["arguments"], buffers))
            return
        if "set" not in content:
            element.receive(content["content"], buffers)
            return
        values = _with_bytes(content["set"], buffers)
        self._taking.now = element.key, values, str(content.get("from"))
        try:
            element.receive_values(values)
        finally:
            self._taking.now = None


def _defaults(elements: Iterable[Element]) -> dict[str, dict[str, Any]]:
    """Return the defaults of the kinds of elements."""
    return {element.component: element.defaults() for element in elements}


def _state(element: Element) -> dict[str, Any]:
    """Return the values of an element that are not the defaults of its kind."""
    defaults = element.defaults()
    kept = [name for name in element.synced() if not element.trait_metadata(name, "transient")]
    values = {name: _marked(getattr(element, name)) for name in kept}
    changed = {name: value for name, value in values.items() if value != defaults[name]}
    return {"component": element.component, "values": changed}


def _elements_in(value: Any) -> Iterator[Element]:
    if isinstance(value, Element):
        yield value
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _elements_in(one)
    elif isinstance(value, dict):
        for one in value.values():
            yield from _elements_in(one)


def _marked(value: Any) -> Any:
    """Return a value whose elements are replaced by marks with their keys."""
    if isinstance(value, Element):
        return {ELEMENT: value.key}
    if isinstance(value, list | tuple):
        return [_marked(one) for one in value]
    if isinstance(value, dict):
        return {key: _marked(one) for key, one in value.items()}
    return value


def without_bytes(value: Any, found: list[Any]) -> Any:
    """Return a value whose bytes are replaced by marks with their index in `found`, to which they are added."""
    if isinstance(value, bytes | memoryview | bytearray):
        found.append(value)
        return {BUFFER: len(found) - 1}
    if isinstance(value, list | tuple):
        return [without_bytes(one, found) for one in value]
    if isinstance(value, dict):
        return {key: without_bytes(one, found) for key, one in value.items()}
    return value


def _with_bytes(value: Any, buffers: Sequence[Any]) -> Any:
    """Return a value in which the marks of `without_bytes` are bytes again."""
    if isinstance(value, list):
        return [_with_bytes(one, buffers) for one in value]
    if isinstance(value, dict):
        if value.keys() == {BUFFER}:
            return bytes(buffers[value[BUFFER]])
        return {key: _with_bytes(one, buffers) for key, one in value.items()}
    return value
