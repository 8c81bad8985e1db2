from ptynb.text import LONGEST, has_control_characters, in_one_line, natural_order, quoted
from tests.parametrization import each


@each(
    ("value", "shown"),
    [
        ("plain", "plain"),
        ("two\n  lines\tof it", "two lines of it"),
        ("Kα 0.15 Å", "Kα 0.15 Å"),
        ("a\x1b[31mred\x1b[0m", r"a\x1b[31mred\x1b[0m"),
        ("\0", r"\x00"),
        ("read\u202emoc.elif", r"read\u202emoc.elif"),  # turns round what follows, on a screen
        ("\udc80", r"\udc80"),
        (ValueError("no"), "no"),
    ],
)
def test_a_text_from_elsewhere_is_one_line_without_what_a_terminal_obeys(value, shown):
    assert in_one_line(value) == shown


@each("text", ["x" * 10**6, "\x1b" * 10**6, "x y " * 10**6])
def test_a_text_from_elsewhere_is_no_longer_than_asked_for(text):
    assert len(in_one_line(text)) == LONGEST
    assert in_one_line(text, 20) == in_one_line(text)[:19] + "…"
    assert len(in_one_line("x" * LONGEST)) == LONGEST


def test_a_value_without_a_representation_is_told_by_its_type():
    endless = []
    for _ in range(100_000):
        endless = [endless]
    assert quoted("a\nb") == r"'a\nb'"
    assert quoted({"a": 1}) == "{'a': 1}"
    assert quoted(10**5000) == "<int that is too long to be shown>"
    assert quoted(endless) == "<list that is too long to be shown>"


@each("text", ["a\0b", "a\nb", "a\x7f", "a\x9bb", "\udc80"])
def test_control_characters_are_seen(text):
    assert has_control_characters(text)


@each("text", ["", "a b", "Müller/übung.h5", "日本.h5", "a\u202eb", "a\xa0b"])
def test_letters_of_all_languages_are_text(text):
    assert not has_control_characters(text)


@each(
    "ordered",
    [
        ["f", "f0", "f00", "f1", "f02", "f2", "f9", "f10", "f010a", "f010b"],
        ["1", "1a2b9", "1a2b10", "2", "a", "²"],
        ["data_2", f"data_{'9' * 5000}", f"data_1{'0' * 5000}"],
    ],
)
def test_names_are_ordered_by_their_numbers_and_equal_numbers_by_the_text(ordered):
    backwards = ordered[::-1]
    assert sorted(backwards, key=natural_order) == ordered
