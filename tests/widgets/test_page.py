"""Pages and elements without a browser: what is sent to one is recorded, what one would say is made up."""

from __future__ import annotations

import gc
import json
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import ipywidgets
import pytest
import traitlets

import ptynb as pt
from ptynb.widgets.element_tree import Element, ElementPage, command, without_bytes
from ptynb.widgets.page_widget import Channel

MOST_MODELS, MOST_BYTES = 5, 250_000


class Browser:
    """Gets the messages of a page, and says what a browser would say."""

    def __init__(self, element: Element) -> None:
        self.got: list[tuple[dict[str, Any], list[Any]]] = []
        self.page = ElementPage(element, lambda message, buffers: self.got.append((message, buffers)))

    def says(self, content: dict[str, Any], buffers: Sequence[Any] = ()) -> None:
        self.page.receive(content, buffers)

    def sets(self, element: Element, browser: str = "me", **values: Any) -> None:
        self.says({"to": element.key, "set": values, "from": browser})

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [message for message, _ in self.got]

    @property
    def changes(self) -> list[list[Any]]:
        return [change for message in self.messages for change in message.get("changes", ())]


class Text(Element):
    """With a value, of which browsers may set those that are valid."""

    component = "text"
    value = traitlets.Unicode("").tag(sync=True)
    placeholder = traitlets.Unicode("").tag(sync=True)
    hidden = traitlets.Unicode("")

    def __init__(self, value: str = "", **traits: Any) -> None:
        super().__init__(value=value, **traits)


class Number(Element):
    """At most 100."""

    component = "number"
    value = traitlets.Int(0).tag(sync=True)

    @traitlets.validate("value")
    def _within(self, proposal: Any) -> int:
        return min(int(proposal["value"]), 100)


class Box(Element):
    """With others."""

    component = "box"
    children: Any = traitlets.List().tag(sync=True)
    title = traitlets.Unicode("").tag(sync=True)

    def __init__(self, *children: Element) -> None:
        super().__init__(children=[*children])


class Raw(Element):
    """With bytes, as pictures are."""

    component = "raw"
    points: traitlets.Dict[str, bytes] = traitlets.Dict().tag(sync=True)
    part = traitlets.Any(None).tag(sync=True)


def mark(element: Element) -> dict[str, str]:
    return {"$element": element.key}


# The tree


def test_the_tree_has_all_elements_with_what_differs_from_the_defaults_of_their_kind() -> None:
    text, empty = Text("a"), Number()
    inner = Box(empty)
    box = Box(text, inner)
    tree = Browser(box).page.tree()
    assert (tree["root"], tree["number"]) == (box.key, 0)
    assert tree["elements"].keys() == {box.key, text.key, inner.key, empty.key}
    assert tree["elements"][text.key] == {"component": "text", "values": {"value": "a"}}
    assert tree["elements"][empty.key] == {"component": "number", "values": {}}
    assert tree["elements"][box.key]["values"] == {"children": [mark(text), mark(inner)]}
    assert tree["defaults"].keys() == {"box", "text", "number"}
    assert tree["defaults"]["text"] == {"value": "", "placeholder": ""}


def test_who_opens_a_page_late_gets_the_elements_as_they_are_now() -> None:
    text, late = Text("a"), Text("late")
    box = Box(text)
    browser = Browser(box)
    text.value = "b"
    box.children = [text, late]
    tree = browser.page.tree()
    assert tree["elements"][text.key]["values"]["value"] == "b"
    assert tree["elements"][late.key]["values"]["value"] == "late"
    assert tree["number"] == 2


def test_elements_in_any_trait_are_part_of_the_tree() -> None:
    one, other = Text("1"), Text("2")
    raw = Raw(part={"one": one, "more": [other]})
    tree = Browser(raw).page.tree()
    assert tree["elements"].keys() == {raw.key, one.key, other.key}
    assert tree["elements"][raw.key]["values"]["part"] == {"one": mark(one), "more": [mark(other)]}


# Messages to the browser


def test_a_change_is_a_message_and_equal_values_are_none() -> None:
    text = Text("a")
    browser = Browser(text)
    for value in ("b", "b"):
        text.value = text.hidden = value
    text.placeholder = "c"
    assert browser.changes == [[text.key, {"value": "b"}], [text.key, {"placeholder": "c"}]]


def test_an_element_is_new_at_its_first_use_and_gone_with_its_last() -> None:
    text = Text("a")
    first, second = Box(), Box(text)
    browser = Browser(Box(first, second))
    first.children = [text]
    second.children = []
    assert [(message["new"], message.get("gone")) for message in browser.messages] == [({}, None), ({}, None)]
    first.children = []
    assert browser.messages[2]["gone"] == [text.key]
    text.value = "b"
    text.send({"focus": True})
    assert len(browser.messages) == 3
    inner = Box(text, Number())
    second.children = [inner]
    message = browser.messages[3]
    assert message["new"].keys() == {inner.key, text.key, inner.children[1].key}
    assert message["new"][text.key]["values"] == {"value": "b"}
    assert message["defaults"].keys() == {"box", "text", "number"}
    second.children = [text]  # which stays, while the box around it goes
    assert browser.messages[4]["gone"] == sorted([inner.key, inner.children[1].key])
    assert browser.messages[4]["new"] == {}


def test_changes_of_several_threads_have_consecutive_numbers() -> None:
    texts = [Text() for _ in range(6)]
    browser = Browser(Box(*texts))
    start = threading.Barrier(len(texts))

    def change(text: Text) -> None:
        start.wait()
        for number in range(200):
            text.value = str(number)

    threads = [threading.Thread(target=change, args=(text,)) for text in texts]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert [message["number"] for message in browser.messages] == [*range(1, 6 * 200 + 1)]
    assert {key: values["value"] for key, values in browser.changes} == {text.key: "199" for text in texts}


def test_held_changes_are_one_message() -> None:
    text = Text("a")
    browser = Browser(text)
    with text.hold_sync():
        text.value = "b"
        with text.hold_sync():
            text.placeholder = "c"
        text.value = "d"
        assert browser.messages == []
    [[key, values]] = browser.changes
    assert (key, values) == (text.key, {"value": "d", "placeholder": "c"})
    with text.hold_sync():
        pass
    assert len(browser.messages) == 1


class Counted(Element):
    """With a dictionary, a trait that browsers do not set, and a command."""

    component = "counted"
    counts: traitlets.Dict[str, int] = traitlets.Dict(value_trait=traitlets.Int()).tag(sync=True)
    total = traitlets.Int(0).tag(sync=True, settable=False)

    @command
    def add(self, name: str, number: int = 1) -> None:
        self.counts = {**self.counts, name: self.counts.get(name, 0) + number}
        self.total += number

    def forget(self) -> None:
        self.counts = {}


def test_of_a_dictionary_pages_get_what_has_changed() -> None:
    counted = Counted(counts={"a": 1, "b": 2})
    browser = Browser(counted)
    counted.counts = {"a": 1, "b": 3, "c": 4}  # the first change is the whole
    counted.counts = {"b": 3, "c": 5}
    sent = [values["counts"] for _, values in browser.changes]
    assert sent == [{"a": 1, "b": 3, "c": 4}, {"$changed": {"c": 5}, "$removed": ["a"]}]
    assert browser.page.tree()["elements"][counted.key]["values"]["counts"] == {"b": 3, "c": 5}
    browser.sets(counted, counts={"b": "many"})  # which is refused, and shown there
    assert browser.changes[-1] == [counted.key, {"counts": {"b": 3, "c": 5}}]


def test_a_browser_calls_commands_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    counted = Counted()
    browser = Browser(counted)
    browser.says({"to": counted.key, "command": "add", "arguments": {"name": "a", "number": 2}})
    for name in ("forget", "close", "missing", "counts"):
        browser.says({"to": counted.key, "command": name, "arguments": {}})
    browser.sets(counted, total=7)
    assert (counted.counts, counted.total, counted.closed) == ({"a": 2}, 2, False)
    assert [record.args for record in caplog.records] == [
        ("Counted", name) for name in ("forget", "close", "missing", "counts")
    ]


def test_bytes_travel_as_buffers() -> None:
    raw = Raw(points={"a": b"first"})
    browser = Browser(raw)
    raw.points = {"a": b"second", "b": memoryview(b"third")}
    raw.send({"answer": b"fourth"}, [b"own"])
    (change, buffers), (message, more) = browser.got
    assert change["changes"] == [[raw.key, {"points": {"a": {"$buffer": 0}, "b": {"$buffer": 1}}}]]
    assert (change["given"], [*map(bytes, buffers)]) == (2, [b"second", b"third"])
    assert (message["to"], message["content"], message["given"]) == (raw.key, {"answer": {"$buffer": 0}}, 1)
    assert more == [b"fourth", b"own"]


def test_two_pages_of_one_element_are_told_of_its_changes_each_with_its_own_numbers() -> None:
    text = Text("a")
    box = Box(text)
    alone, within = Browser(text), Browser(box)
    box.title = "wide"
    text.value = "b"
    assert [message["number"] for message in alone.messages] == [1]
    assert [message["number"] for message in within.messages] == [1, 2]
    assert alone.changes == within.changes[1:] == [[text.key, {"value": "b"}]]
    alone.sets(text, value="c")
    assert alone.messages[-1]["from"] == "me"
    assert within.changes[-1] == [text.key, {"value": "c"}]
    alone.page.close()
    text.value = "d"
    text.send({"focus": "text"})
    assert (len(alone.messages), len(within.messages)) == (2, 5)
    alone.sets(text, value="of nobody")
    assert text.value == "d"


# What a browser says


def test_a_browsers_own_change_is_marked_as_its_own() -> None:
    text, other = Text("a"), Text()
    text.observe(lambda change: setattr(other, "value", change["new"]), "value")
    browser = Browser(Box(text, other))
    browser.sets(text, value="b")
    assert text.value == "b"
    told = {message["changes"][0][0]: message.get("from") for message in browser.messages}
    assert told == {text.key: "me", other.key: None}
    text.value = "c"
    assert "from" not in browser.messages[-1]


def test_a_value_that_was_changed_on_the_way_is_told_to_its_browser() -> None:
    number, text = Number(value=5), Text("a")
    text.observe(lambda change: setattr(text, "value", change["new"].upper()), "value")
    browser = Browser(Box(number, text))
    browser.sets(number, value=200)
    assert browser.changes == [[number.key, {"value": 100}]]
    assert "from" not in browser.messages[0]
    browser.sets(number, value=300)  # the value stays, but that browser shows another one
    assert browser.changes[1:] == [[number.key, {"value": 100}]]
    assert "from" not in browser.messages[1]
    browser.sets(text, value="b")
    last = browser.messages[-1]
    assert (last["changes"], last.get("from")) == ([[text.key, {"value": "B"}]], None)


def test_invalid_values_are_answered_with_the_present_ones(caplog: pytest.LogCaptureFixture) -> None:
    number, text = Number(value=1), Text("a")
    browser = Browser(Box(number, text))
    browser.sets(number, value="many")
    browser.sets(text, value=3, placeholder="new")
    assert (number.value, text.value, text.placeholder) == (1, "a", "")
    assert browser.changes == [[number.key, {"value": 1}], [text.key, {"value": "a", "placeholder": ""}]]
    assert not any("from" in message for message in browser.messages)
    assert "Text: a browser has sent invalid values" in caplog.text


def test_a_browser_sets_no_trait_that_is_not_shown() -> None:
    text = Text("a")
    Browser(text).sets(text, hidden="c", value="b", key="9", _closed=True)
    assert (text.hidden, text.value, text.closed) == ("", "b", False)


def test_bytes_of_a_browser_are_bytes() -> None:
    raw, seen = Raw(), list[Any]()
    raw.on_msg(lambda element, content, buffers: seen.append((element, content, [*map(bytes, buffers)])))
    browser = Browser(raw)
    browser.says({"to": raw.key, "set": {"points": {"a": {"$buffer": 0}}}, "from": "me"}, [memoryview(b"drawn")])
    browser.says({"to": raw.key, "content": {"kind": "stroke"}}, [memoryview(b"path")])
    assert raw.points == {"a": b"drawn"}
    assert seen == [(raw, {"kind": "stroke"}, [b"path"])]


def test_messages_to_elements_that_are_gone_are_ignored() -> None:
    text = Text("a")
    box = Box(text)
    browser = Browser(box)
    box.children = []
    browser.sets(text, value="b")
    browser.says({"to": "no such key", "content": {}})
    assert text.value == "a"


def test_a_browser_that_has_missed_messages_gets_the_tree_and_others_nothing() -> None:
    text = Text("a")
    browser = Browser(text)
    browser.says({"seen": 0})
    assert browser.messages == []
    text.value = "b"
    text.value = "c"
    browser.says({"seen": 2})
    assert len(browser.messages) == 2
    browser.says({"seen": 1})
    answer = browser.messages[2]
    assert answer["tree"]["elements"][text.key]["values"] == {"value": "c"}
    assert answer["tree"]["number"] == answer["number"] - 1 == 2


# Elements


def test_an_element_that_is_closed_or_dropped_is_collected() -> None:
    box, other = Box(Text("dropped"), Text("stays")), Box(Text("closed"))
    assert box.widget.comm is not None
    assert other.widget.comm is not None
    gone = [weakref.ref(one) for one in (box.children[0], other, other.children[0], other.widget)]
    box.children = box.children[1:]
    other.close()
    del other
    gc.collect()
    assert [one() for one in gone] == [None] * 4


# The workbench


@pytest.fixture
def recon() -> Iterator[pt.Reconstruction]:
    scan = pt.simulate(patterns=16, window=32)
    with pt.Reconstruction(scan, device="cpu", checkpointing=None) as made:
        yield made


def models() -> set[str]:
    """Of the notebook."""
    gc.collect()
    return {one.model_id for one in gc.get_objects() if issubclass(type(one), ipywidgets.Widget) and one.comm}


def size(tree: dict[str, Any]) -> int:
    """As it is sent [bytes]."""
    buffers: list[Any] = []
    return len(json.dumps(without_bytes(tree, buffers))) + sum(map(len, buffers))


def test_a_workbench_is_five_models_at_most(recon: pt.Reconstruction) -> None:
    before = models()
    bench = pt.workbench()
    widget = bench.widget
    assert 0 < len(models() - before) <= MOST_MODELS
    assert size(Browser(bench).page.tree()) < MOST_BYTES
    bench.close()
    assert models() - before <= {widget.script}  # one of all pages
    bench = pt.workbench(recon=recon)
    assert bench.widget.comm is not None
    assert len(models() - before) <= MOST_MODELS
    bench.close()


def test_the_model_of_a_page_has_the_elements_as_they_are_when_it_is_asked_for_them() -> None:
    """By a browser that is opened later."""
    text = Text("a")
    channel = Channel(text)
    text.value = "b"
    tree = channel.get_state()["tree"]
    assert (tree["elements"][text.key]["values"], tree["number"]) == ({"value": "b"}, 1)
    assert "tree" not in channel.get_state("_model_name")
    channel.close()
