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
from ptynb.data.engine_records import Picture
from ptynb.widgets import elements
from ptynb.widgets.element_tree import Element, ElementPage, Layout, command, without_bytes
from ptynb.widgets.elements import below
from ptynb.widgets.page_widget import Channel
from ptynb.widgets.viewer.viewer import Viewer

PICTURE = Picture("a", "A", b"", (2, 2))
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


class Raw(Element):
    """With bytes, as pictures are."""

    component = "raw"
    points: traitlets.Dict[str, bytes] = traitlets.Dict().tag(sync=True)
    part = traitlets.Any(None).tag(sync=True)


def mark(element: Element) -> dict[str, str]:
    return {"$element": element.key}


# The tree


def test_the_tree_has_all_elements_with_what_differs_from_the_defaults_of_their_kind() -> None:
    text, empty = elements.Text("a", layout=Layout(width="40px", height=None)), elements.HTML()
    box = elements.VBox([text, elements.HBox([empty])])
    tree = Browser(box).page.tree()
    assert (tree["root"], tree["number"]) == (box.key, 0)
    assert tree["elements"].keys() == {box.key, *(one.key for one in below(box))}
    assert tree["elements"][text.key] == {"component": "text", "values": {"value": "a", "layout": {"width": "40px"}}}
    assert tree["elements"][empty.key] == {"component": "html", "values": {}}
    assert tree["elements"][box.key]["values"] == {"children": [mark(text), mark(box.children[1])]}
    assert tree["defaults"].keys() == {"vbox", "hbox", "text", "html"}
    assert tree["defaults"]["text"]["placeholder"] == ""
    assert tree["defaults"]["text"].keys() == {*text.synced()}


def test_who_opens_a_page_late_gets_the_elements_as_they_are_now() -> None:
    text, late = elements.Text("a"), elements.HTML("late")
    box = elements.VBox([text])
    browser = Browser(box)
    text.value = "b"
    box.children = (text, late)
    tree = browser.page.tree()
    assert tree["elements"][text.key]["values"]["value"] == "b"
    assert tree["elements"][late.key]["values"]["value"] == "late"
    assert tree["number"] == 2


def test_elements_in_any_trait_are_part_of_the_tree() -> None:
    one, other = elements.HTML("1"), elements.HTML("2")
    raw = Raw(part={"one": one, "more": [other]})
    tree = Browser(raw).page.tree()
    assert tree["elements"].keys() == {raw.key, one.key, other.key}
    assert tree["elements"][raw.key]["values"]["part"] == {"one": mark(one), "more": [mark(other)]}


# Messages to the browser


def test_a_change_is_a_message_and_equal_values_are_none() -> None:
    text = elements.Text("a")
    browser = Browser(text)
    text.value = "b"
    text.value = "b"
    text.add_class("wide")
    text.add_class("wide")
    text.remove_class("wide")
    assert browser.changes == [
        [text.key, {"value": "b"}],
        [text.key, {"classes": ["wide"]}],
        [text.key, {"classes": []}],
    ]


def test_a_change_of_a_layout_is_shown_by_all_elements_that_have_it() -> None:
    layout = Layout(width="10px")
    box = elements.HBox(
        [elements.HTML(layout=layout), elements.Text(layout=layout, style={"description_width": "1px"})]
    )
    browser = Browser(box)
    layout.width = "10px"
    layout.display = "none"
    layout.display = None
    first, second = (child.key for child in box.children)
    hidden, seen = {"layout": {"width": "10px", "display": "none"}}, {"layout": {"width": "10px"}}
    assert sorted(browser.changes[:2]) == sorted([[first, hidden], [second, hidden]])
    assert sorted(browser.changes[2:]) == sorted([[first, seen], [second, seen]])
    box.children[1].style.description_width = "2px"  # type: ignore[attr-defined]
    assert browser.changes[4:] == [[second, {"style": {"description_width": "2px"}}]]


def test_an_element_is_new_at_its_first_use_and_gone_with_its_last() -> None:
    text = elements.Text("a")
    first, second = elements.HBox(), elements.HBox([text])
    browser = Browser(elements.VBox([first, second]))
    first.children = (text,)
    second.children = ()
    assert [(message["new"], message.get("gone")) for message in browser.messages] == [({}, None), ({}, None)]
    first.children = ()
    assert browser.messages[2]["gone"] == [text.key]
    text.value = "b"
    text.send({"focus": True})
    assert len(browser.messages) == 3
    inner = elements.VBox([text, elements.Checkbox()])
    second.children = (inner,)
    message = browser.messages[3]
    assert message["new"].keys() == {inner.key, text.key, inner.children[1].key}
    assert message["new"][text.key]["values"] == {"value": "b"}
    assert message["defaults"].keys() == {"vbox", "text", "checkbox"}
    second.children = (text,)  # which stays, while the box around it goes
    assert browser.messages[4]["gone"] == sorted([inner.key, inner.children[1].key])
    assert browser.messages[4]["new"] == {}


def test_changes_of_several_threads_have_consecutive_numbers() -> None:
    texts = [elements.Text() for _ in range(6)]
    browser = Browser(elements.VBox(texts))
    start = threading.Barrier(len(texts))

    def change(text: elements.Text) -> None:
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
    text = elements.Text("a")
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
    counts: traitlets.Dict[str, int] = traitlets.Dict().tag(sync=True)
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


def test_of_a_picture_that_is_announced_pages_get_the_whole() -> None:
    """One that came after it has no value of which something could have changed."""
    viewer = Viewer()
    browser = Browser(viewer)
    viewer.show([PICTURE])
    viewer.announce("frame")
    assert [values["frame"]["number"] for _, values in browser.changes if "frame" in values] == [1, 1]


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
    text = elements.Text("a")
    box = elements.VBox([text])
    alone, within = Browser(text), Browser(box)
    box.add_class("wide")
    text.value = "b"
    assert [message["number"] for message in alone.messages] == [1]
    assert [message["number"] for message in within.messages] == [1, 2]
    assert alone.changes == within.changes[1:] == [[text.key, {"value": "b"}]]
    alone.sets(text, value="c")
    assert alone.messages[-1]["from"] == "me"
    assert within.changes[-1] == [text.key, {"value": "c"}]
    alone.page.close()
    text.value = "d"
    text.focus()
    assert (len(alone.messages), len(within.messages)) == (2, 5)
    alone.sets(text, value="of nobody")
    assert text.value == "d"


# What a browser says


def test_a_browsers_own_change_is_marked_as_its_own() -> None:
    text, other = elements.Text("a"), elements.HTML()
    text.observe(lambda change: setattr(other, "value", change["new"]), "value")
    browser = Browser(elements.VBox([text, other]))
    browser.sets(text, value="b")
    assert text.value == "b"
    told = {message["changes"][0][0]: message.get("from") for message in browser.messages}
    assert told == {text.key: "me", other.key: None}
    text.value = "c"
    assert "from" not in browser.messages[-1]


def test_a_value_that_was_changed_on_the_way_is_told_to_its_browser() -> None:
    number, text = elements.BoundedIntText(value=5, max=100), elements.Text("a")
    text.observe(lambda change: setattr(text, "value", change["new"].upper()), "value")
    browser = Browser(elements.VBox([number, text]))
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
    chosen, text = elements.Dropdown(options=["a", "b"], value="b"), elements.Text("a")
    browser = Browser(elements.VBox([chosen, text]))
    browser.sets(chosen, index=2)
    browser.sets(text, value=3, placeholder="new")
    assert (chosen.index, chosen.value, text.value, text.placeholder) == (1, "b", "a", "")
    assert browser.changes == [[chosen.key, {"index": 1}], [text.key, {"value": "a", "placeholder": ""}]]
    assert not any("from" in message for message in browser.messages)
    assert "Text: a browser has sent invalid values" in caplog.text


def test_a_browser_sets_no_trait_that_is_not_shown() -> None:
    chosen = elements.Dropdown(options=["a", "b"])
    Browser(chosen).sets(chosen, options=["c"], value="b", key="9", _closed=True)
    assert (chosen.options, chosen.value, chosen.closed) == (("a", "b"), "a", False)


def test_bytes_of_a_browser_are_bytes() -> None:
    raw, seen = Raw(), list[Any]()
    raw.on_msg(lambda element, content, buffers: seen.append((element, content, [*map(bytes, buffers)])))
    browser = Browser(raw)
    browser.says({"to": raw.key, "set": {"points": {"a": {"$buffer": 0}}}, "from": "me"}, [memoryview(b"drawn")])
    browser.says({"to": raw.key, "content": {"kind": "stroke"}}, [memoryview(b"path")])
    assert raw.points == {"a": b"drawn"}
    assert seen == [(raw, {"kind": "stroke"}, [b"path"])]


def test_messages_to_elements_that_are_gone_are_ignored() -> None:
    text = elements.Text("a")
    box = elements.VBox([text])
    browser = Browser(box)
    box.children = ()
    browser.sets(text, value="b")
    browser.says({"to": "no such key", "content": {}})
    assert text.value == "a"


def test_a_browser_that_has_missed_messages_gets_the_tree_and_others_nothing() -> None:
    text = elements.Text("a")
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


def test_a_click_of_a_browser_on_a_disabled_button_is_none() -> None:
    button, clicks = elements.Button(description="Start"), list[elements.Button]()
    button.on_click(clicks.append)
    browser = Browser(button)
    browser.says({"to": button.key, "content": {"click": True}})
    button.disabled = True
    browser.says({"to": button.key, "content": {"click": True}})
    assert clicks == [button]
    button.click()
    assert clicks == [button, button]


def test_a_field_can_have_the_focus() -> None:
    text = elements.Text()
    browser = Browser(text)
    text.focus()
    assert [(message["to"], message["content"]) for message in browser.messages] == [(text.key, {"focus": text.key})]


def test_numbers_stay_within_limits_that_may_change() -> None:
    number = elements.BoundedFloatText(200, min=1.0, max=150.0)
    assert number.value == 150
    number.max = 100.0
    assert number.value == 100
    number.min, number.value = 5.0, 0.0
    assert number.value == 5
    number.max = None
    number.value = 1e9
    assert number.value == 1e9
    assert elements.FloatText(-1e9).value == -1e9
    whole = elements.BoundedIntText(value=7, max=5)
    assert (whole.value, type(whole.value)) == (5, int)


def test_a_dropdown_has_value_and_index_of_one_option() -> None:
    chosen = elements.Dropdown(options=[("one", 1), ("two", 2)])
    assert (chosen.value, chosen.index, chosen.label, chosen.labels) == (1, 0, "one", ["one", "two"])
    chosen.index = 1
    assert (chosen.value, chosen.label) == (2, "two")
    chosen.value = 1
    assert chosen.index == 0
    chosen.value = None
    assert (chosen.index, chosen.label) == (None, "")
    with pytest.raises(traitlets.TraitError, match="3 is not among the options"):
        chosen.value = 3
    with pytest.raises(traitlets.TraitError, match="There is no option 2"):
        chosen.index = 2
    chosen.value = 2
    chosen.options = ["x", "y"]
    assert (chosen.value, chosen.index, chosen.labels) == ("x", 0, ["x", "y"])
    chosen.options = ["p", "q"]
    assert (chosen.value, chosen.index, chosen.labels) == ("p", 0, ["p", "q"])
    chosen.options = []
    assert (chosen.value, chosen.index) == (None, None)
    assert elements.Dropdown(options=[("none", None), ("one", 1)]).index == 0
    assert elements.Dropdown(options=["a", "b"], value=None).index is None


def test_what_is_below_a_box_and_its_closing() -> None:
    leaf, page = elements.HTML(), elements.Tab([elements.HTML()], titles=("a",))
    box = elements.VBox([leaf, elements.HBox([page])])
    found = [*below(box)]
    assert found[0] is leaf
    assert {*found} == {leaf, page, page.children[0], box.children[1]}
    box.close()
    assert box.closed
    assert all(one.closed for one in found)


def test_an_element_that_is_closed_or_dropped_is_collected() -> None:
    box = elements.VBox([elements.Text("dropped"), elements.HTML("stays")])
    other = elements.VBox([elements.Dropdown(options=["closed"])])
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
    text = elements.Text("a")
    channel = Channel(text)
    text.value = "b"
    tree = channel.get_state()["tree"]
    assert (tree["elements"][text.key]["values"], tree["number"]) == ({"value": "b"}, 1)
    assert "tree" not in channel.get_state("_model_name")
    channel.close()


def test_a_page_gets_the_selected_tab_at_once_and_the_others_when_it_asks() -> None:
    tab = elements.Tab([elements.HTML("a"), elements.HTML("b"), elements.HTML("c")], titles=("A", "B", "C"))
    browser = Browser(tab)
    assert len(browser.page.tree()["elements"]) == 2
    tab.selected_index = 1
    assert [child is not None for child in tab.sent] == [True, True, False]
    tab.receive({"more": True})
    assert tab.sent == tab.children
    assert len(browser.page.tree()["elements"]) == 4
    tab.children = (elements.HTML("d"), elements.HTML("e"))
    assert tab.sent == tab.children
