"""What is read from YAML, and what is refused before anything is built of it, by everything that reads YAML."""

import ast
import os
from pathlib import Path

import pytest

import ptynb
from ptynb.settings import Settings
from ptynb.settings.run_files.run_file import read_run
from ptynb.settings.yaml_reader import DEEPEST, LONGEST_NUMBER, MOST_BYTES, MOST_VALUES, read_yaml, read_yaml_file
from ptynb.widgets.form.settings_sources import read_file
from tests.parametrization import each
from tests.raising import raises

LONGEST = 400
"""Characters of an error, a path among them."""
LAUGHS = "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12))


def _file(read):
    def reader(text, folder):
        path = folder / "file.yaml"
        path.write_text(text, encoding="utf-8")
        return read(path)

    return reader


READERS = {
    "text": lambda text, _: Settings.from_yaml(text),
    "settings": _file(Settings.from_yaml),
    "form": _file(read_file),
    "run": _file(read_run),
}


def test_nothing_else_in_the_package_reads_yaml():
    used = set()
    for path in Path(ptynb.__file__).parent.rglob("*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if "yaml" in text else ():
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "yaml":
                used.add((path.name, node.attr))
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "yaml":
                used |= {(path.name, name.name) for name in node.names}
    assert {use for use in used if use[0] != "yaml_reader.py"} == {
        ("recipe.py", "safe_dump"),
        ("run_job.py", "safe_dump"),
        ("settings.py", "safe_dump"),
        ("run_file_example.py", "safe_dump"),
    }


@each(
    ("text", "values"),
    [
        ("", None),
        ("# a comment\n", None),
        ("a: 1\nb: [x, 'y', null, ~, true, No]", {"a": 1, "b": ["x", "y", None, None, True, False]}),
        ("a: 1e-3\nb: .5\nc: -1.\nd: +3\ne: 1.5E+3", {"a": 1e-3, "b": 0.5, "c": -1.0, "d": 3, "e": 1500.0}),
        ("a: 12:30:00\nb: 2020-01-31\nc: 0x1f\nd: 1_0", {"a": "12:30:00", "b": "2020-01-31", "c": "0x1f", "d": "1_0"}),
        ("a: '1'\nb: \"null\"\nc: |\n  true\n", {"a": "1", "b": "null", "c": "true\n"}),
        ("{a: {b: [{c: 1}]}, d: []}", {"a": {"b": [{"c": 1}]}, "d": []}),
        ('{"a": [1, 1e-05, null, true, "\\u0041"]}', {"a": [1, 1e-05, None, True, "A"]}),
        ("\ufeffa: ü\r\nb: 2\r\n", {"a": "ü", "b": 2}),
        ("%YAML 1.1\n---\na: 1\n...\n", {"a": 1}),
        ("[" * DEEPEST + "]" * DEEPEST, eval("[" * DEEPEST + "]" * DEEPEST)),
        ("tRUE", "tRUE"),
        ("~: 1\n2: x", {None: 1, 2: "x"}),
    ],
)
def test_plain_data_are_read(text, values):
    found = read_yaml(text, "a text")
    assert found == values
    assert repr(found) == repr(values)  # 1 is neither 1.0 nor True


@each(
    ("text", "line", "column", "word"),
    [
        ("a: &x 1\nb: *x", 1, 4, "anchors (&x)"),
        ("a: *x", 1, 4, "aliases (*x)"),
        ("b: 1\na: &x {c: *x}", 2, 4, "anchors"),
        ("a: {b: 1}\nc:\n  <<: {d: 1}", 3, 3, "merge keys"),
        ("a: 1\nb: 2\na: 3", 3, 1, "'a' is given twice"),
        ("a: {b: 1, b: 1}", 1, 11, "'b' is given twice"),
        ("!!python/object/apply:os.getcwd []", 1, 1, "python/object"),
        ("a: !x 1", 1, 4, "'!x'"),
        ("a: .inf", 1, 4, "finite"),
        ("a: 1e999", 1, 4, "finite"),
        (f"a: {'9' * (LONGEST_NUMBER + 1)}", 1, 4, f"{LONGEST_NUMBER + 1} characters"),
        ("[" * (DEEPEST + 1) + "]" * (DEEPEST + 1), 1, DEEPEST + 1, f"more than {DEEPEST}"),
        ("{a: " * 100_000, 1, 4 * DEEPEST + 1, f"more than {DEEPEST}"),
        ("- " * 100_000, 1, 2 * DEEPEST + 1, f"more than {DEEPEST}"),
        ("- 1\n" * (MOST_VALUES + 5), MOST_VALUES, 3, f"more than {MOST_VALUES}"),
        ("? [1]\n: 2", 1, 3, "a name is expected"),
        ("{a: 1}: 2", 1, 1, "a name is expected"),
        ("a: 1\n---\nb: 2", 3, 1, "second document"),
        ("a: [1, 2", 1, 9, "',' or ']'"),
        ("a: 1\nb: \x07", 2, 4, r"'\x07'"),
        ("a: 'b", 1, 6, "end of stream"),
        (f"{'x' * 5000}: 1", 1, 5001, "mapping values"),
        ("%", 1, 2, "found"),
    ],
)
def test_what_is_no_plain_data_is_refused_with_its_place(text, line, column, word):
    with raises("settings.invalid-yaml", "a text", f"line {line}, column {column}: ", word) as caught:
        read_yaml(text, "a text")
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert len(sentence) < LONGEST


def test_a_text_and_a_file_are_at_most_so_large(tmp_path):
    text = "#" * (MOST_BYTES + 1)
    (tmp_path / "a.yaml").write_text(text)
    with raises("settings.too-large", "a text", MOST_BYTES):
        read_yaml(text, "a text")
    with raises("settings.too-large", "a.yaml", MOST_BYTES):
        read_yaml_file(tmp_path / "a.yaml")


def test_what_is_no_utf_8_is_refused(tmp_path):
    (tmp_path / "a.yaml").write_bytes(b"a: \xff")
    with raises("settings.invalid-yaml", "a.yaml", "UTF-8"):
        read_yaml_file(tmp_path / "a.yaml")


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "none", Path("/dev/zero")):
        with raises("file.not-found", path):
            Settings.from_yaml(path)


@pytest.mark.timeout(30)
@each("name", READERS)
@each("text", [f"a0: &a0 [1]\n{LAUGHS}probe: *a11\n", "probe: {modes: 2, modes: 3}\n", "constraints: " + "[" * 50_000])
def test_every_reader_refuses_what_would_be_too_much(name, text, tmp_path):
    with pytest.raises(ValueError, match=r"line \d+, column \d+: ") as caught:
        READERS[name](text, tmp_path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < LONGEST + len(str(tmp_path))
