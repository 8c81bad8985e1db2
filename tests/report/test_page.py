"""The page of a report as text: well-formed, under a policy that its parts keep to, small, and hostile to nothing."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import io
import json
import math
import re
from pathlib import Path

import numpy as np
import pypdf
import pytest
from PIL import Image
from tinyhtml5.parser import HTMLParser

import ptynb as pt
from ptynb.analysis.faults.diagnosis import Diagnosis, Finding
from ptynb.analysis.result_comparison import illuminated
from ptynb.data import images
from ptynb.data.result import ScanIdentity
from ptynb.data.scan import Truth
from ptynb.io.reading import large_array
from ptynb.io.result_file import save_result
from ptynb.report import page_data, result_viewers
from ptynb.report.diagnosis_section import marked_place
from ptynb.report.result_facts import settings_rows
from tests.raising import raises
from tests.report.results import field, probe, result

HTML = "{http://www.w3.org/1999/xhtml}"
HOSTILE = {
    "a script": "<script>alert(1)</script>",
    "an end of the script": "</script><script>alert(1)</script>",
    "an end of the styles": "--></style><img src=x onerror=alert(1)>",
    "an end of an attribute": '" onmouseover="alert(1)" x=\'',
    "an event handler": "<svg/onload=alert(1)>",
    "an entity": "&lt;script&gt;&#x3c;",
    "a link that runs": "[click](javascript:alert(1)) <a href='javascript:alert(1)'>x</a>",
    "a picture from outside": "![x](https://example.org/x.png)",
    "ends of lines": "a\u2028b\u2029c\rd\x85e",
    "letters turned around": "photo\u202egnp.exe \u2066x\u2069",
    "what can't be encoded": "\ud800 \x00 \x1b[31m \uffff",
    "a template": "{{7*7}} {% raw %} ${alert(1)}",
    "a comment": "<!--<script>",
}


def parsed(path: Path):
    """The tree of a page, which has no fault that a browser would have to mend."""
    parser = HTMLParser(namespace_html_elements=True)
    tree = parser.parse(path.read_text(encoding="utf-8"))
    assert not parser.errors, parser.errors[:5]
    return tree


def data_of(tree):
    (block,) = [one for one in tree.iter(f"{HTML}script") if one.get("type") == "application/json"]
    return json.loads(block.text)


def values_in(picture):
    """The values that grey levels stand for."""
    low, high = picture["limits"]
    with Image.open(io.BytesIO(base64.b64decode(picture["image"]))) as opened:
        return low + np.asarray(opened) / 255 * (high - low)


def text_of(tree) -> str:
    return " ".join("".join(one.itertext()) for part in ("header", "main") for one in tree.iter(f"{HTML}{part}"))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return pt.report(result(), tmp_path_factory.mktemp("report") / "scan.html")


def test_the_package_is_the_function_whatever_of_it_was_imported_before():
    import ptynb.figures.figure

    assert pt.report is ptynb.report
    assert callable(pt.report)


def test_a_report_is_well_formed_and_tells_what_a_physicist_asks(page):
    tree = parsed(page)
    headings = ["".join(one.itertext()) for one in tree.iter() if one.tag in (f"{HTML}h1", f"{HTML}h2")]
    sections = [
        "Object",
        "Probe",
        "Positions",
        "Loss",
        "Quality",
        "Diagnosis",
        "Settings",
        "Changes",
        "Environment",
        "Reproduce",
        "Files",
    ]
    assert headings == ["Star, run 17", "Comments", *sections]
    told = text_of(tree)
    for words in (
        "star-17", "2026-05-01 12:30 UTC", "0.0421", "20 nm", "Realigned before this run.", "probe.modes",
        "probe.learning_rate", "2 engines on CPU", "gloo", "/data/star-17.cxi", "ptynb run scan.result.h5 --reproduce",
        "scan = pt.load('/data/star-17.cxi', energy=8000.0)", "settings = pt.Settings(probe=pt.Probe(modes=2))",
        "recon.run(12)", "halves",
    ):  # fmt: skip
        assert words in told, words
    assert data_of(tree)["curves"]["loss"]["marks"] == [{"x": [6, 10.0], "text": "1"}], "in the epoch after five of 2 s"


def test_a_thick_object_is_cut_along_the_beam_and_positions_have_arrows(tmp_path, page):
    object = np.stack([field((96, 96), seed) for seed in range(3)])
    settings = {"slices": {"count": 3, "thickness": 4e-7}}
    thick = result(object=object, settings=settings)
    tree = parsed(pt.report(thick, tmp_path / "thick.html"))
    data, told = data_of(tree), text_of(tree)
    assert "Cuts" in ["".join(one.itertext()) for one in tree.iter(f"{HTML}h2")]
    cuts = data["viewers"]["cuts"]
    (place,) = cuts["controls"]
    assert len(place["options"]) == len(cuts["frames"]) == 9
    row, column = map(int, re.findall(r"\d+", place["options"][4]["text"]))
    names = cuts["frames"]["cut 4"]["pictures"]
    assert [data["pictures"][name]["title"] for name in names] == [
        f"{quantity}, {along}"
        for quantity in ("amplitude", "phase")
        for along in (f"xz at y {row}", f"yz at x {column}")
    ]
    shown = data["pictures"][names[2]]
    found = pt.analysis.orthogonal_cuts(thick, y=row, x=column)
    (low, high), values = shown["limits"], values_in(shown)[:: shown["bands"][0]]
    np.testing.assert_allclose(values, found.xz.clip(low, high), atol=(high - low) / 200)
    moved = pt.analysis.position_refinement(thick)
    assert f"{moved.length_text(moved.rms)} rms" in told
    points, ends = (
        np.frombuffer(base64.b64decode(data["viewers"]["positions"]["frames"]["all"][name]), "<f4").reshape(-1, 2)
        for name in ("points", "moves")
    )
    np.testing.assert_allclose(ends - points, moved.arrows() - moved.measured, atol=1e-4)
    assert "cuts" not in data_of(parsed(page))["viewers"]


def test_the_policy_lets_nothing_in_and_its_hashes_are_those_of_the_parts(page):
    tree = parsed(page)
    (policy,) = [one.get("content") for one in tree.iter(f"{HTML}meta") if one.get("http-equiv")]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules.pop("default-src") == "'none'"
    assert rules.pop("img-src") == "data:"
    assert rules.pop("base-uri") == rules.pop("form-action") == "'none'"
    (style,) = tree.iter(f"{HTML}style")
    (script,) = [one for one in tree.iter(f"{HTML}script") if one.get("type") == "module"]
    for rule, part in (("style-src", style), ("script-src", script)):
        digest = base64.b64encode(hashlib.sha256(part.text.encode()).digest()).decode()
        assert rules.pop(rule) == f"'sha256-{digest}'"
    assert rules == {}
    for one in tree.iter():
        assert not [name for name in one.attrib if name == "style" or name.startswith("on")], one.tag
        assert one.tag not in {f"{HTML}{tag}" for tag in ("iframe", "object", "embed", "form", "base", "link", "img")}
        assert one.get("href", "#").startswith("#")
        assert one.get("src") is None


def test_a_large_result_stays_below_10_mb_and_says_what_is_reduced(tmp_path):
    large = result(object=np.broadcast_to(field((1400, 1400), noise=0.1), (10, 1400, 1400)), modes=8, window=128)
    page = pt.report(large, tmp_path / "large.html")
    assert 2e6 < page.stat().st_size < 10e6
    tree = parsed(page)
    data = data_of(tree)
    assert len(data["viewers"]["object"]["controls"][0]["options"]) == 11
    assert len(data["viewers"]["probe"]["frames"]["all"]["pictures"]) == 8
    told = text_of(tree)
    reduction = data["pictures"]["whole phase"]["reduction"]
    assert 1 < reduction <= 4
    assert f"It is reduced {reduction} × {reduction} to keep the page small" in told
    assert (
        "Left out to stay below 10 MB; full=True (ptynb report --full) adds: Figure of the object's amplitude" in told
    )
    assert "Figure of the loss, for a paper" in told


def test_of_an_object_larger_than_pages_show_means_are_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(page_data, "LARGEST_SIDE", 20)
    monkeypatch.setattr(result_viewers, "LARGEST_SIDE", 20)
    monkeypatch.setattr(result_viewers, "CUT_SIDE", 30)
    object = np.stack([field((96, 90), seed) for seed in range(3)])
    large = result(object=object, settings={"slices": {"count": 3, "thickness": 4e-7}})
    data = data_of(parsed(pt.report(large, tmp_path / "large.html")))
    y, x = illuminated(large)
    seen, shape = large.projection[y, x], (y.stop - y.start, x.stop - x.start)
    scale = images.reduction_for(shape, 40)
    assert scale > 1
    for name, values in (("amplitude", np.abs), ("phase", images.flat_phase)):
        shown = data["pictures"][f"whole {name}"]
        assert shown["reduction"] == 2 * scale
        assert shown["shape"] == [side // scale * scale for side in shape]
        turned = seen * np.multiply.outer(*images.flattening(seen))
        expected = images.reduce_by(values(images.reduce_by(turned, scale)), 2)
        np.testing.assert_allclose(values_in(shown), expected.clip(*shown["limits"]), atol=0.02)
    assert data["pictures"]["slice 0 phase"]["reduction"] == 2 * scale
    # The cuts are those of such means; where they are is said in pixels of the object.
    place = data["viewers"]["cuts"]["controls"][0]["options"][4]["text"]
    row = int(re.findall(r"\d+", place)[0])
    cut = data["pictures"][data["viewers"]["cuts"]["frames"]["cut 4"]["pictures"][2]]
    assert cut["title"] == f"phase, xz at y {row}"
    scale = images.reduction_for(shape, 30)
    for number, one in enumerate(object):
        turned = one[y, x] * np.multiply.outer(*images.flattening(one[y, x]))
        line = images.flat_phase(images.reduce_by(turned, scale))[(row - y.start) // scale]
        found = values_in(cut)[:: cut["bands"][0]][number]
        np.testing.assert_allclose(found, line.clip(*cut["limits"]), atol=0.02)
    assert cut["pixel_size"][1] == pytest.approx(scale * large.pixel_size[1])


def test_not_even_full_contains_an_object_that_is_larger_than_memory_may_be(tmp_path, monkeypatch):
    large = result(object=field((1000, 1000), noise=0.1))
    full = pt.report(large, tmp_path / "full.html", full=True).stat().st_size
    monkeypatch.setattr(large_array, "LARGE_BYTES", 10**6)
    assert pt.report(large, tmp_path / "large.html", full=True).stat().st_size < 0.8 * full


def test_patterns_of_a_finding_are_marked_at_their_places_in_a_reduced_picture():
    one = result(object=field((1200, 1300), noise=0.1), window=100)
    last = np.array(one.positions)
    last[-1] = (1100, 1200)
    one = dataclasses.replace(one, positions=last)
    finding = Finding(
        "outlying patterns", "patterns", 1.0, 0.5, 0.03, "positions", "", patterns=np.array([len(last) - 1])
    )
    values, points = marked_place(one, Diagnosis((finding,), {}), finding)
    assert values.shape == (400, 433)
    np.testing.assert_allclose(points, [[1150 / 3, 1250 / 3]], atol=0.5)


def test_another_optimiser_is_a_setting_that_differs_and_its_own_defaults_are_none():
    changed, _ = settings_rows(pt.Settings(optimiser="rpie").model_dump(mode="json"))
    assert [(name, value, default) for name, value, default, _ in changed] == [("optimiser", "rpie", "adam")]


def test_figures_for_a_paper_can_be_saved_from_the_page(page):
    files = data_of(parsed(page))["files"]
    kinds = [name for name in files if name.startswith("figure-")]
    assert kinds == ["figure-object", "figure-probe", "figure-loss"]  # no slices of a thin object
    for name in kinds:
        assert files[name]["type"] == "application/pdf"
        drawn = pypdf.PdfReader(io.BytesIO(base64.b64decode(files[name]["content"])))
        assert len(drawn.pages) == 1
        assert drawn.pages[0].extract_text().strip()


def test_full_keeps_every_pixel(tmp_path):
    one = result((320, 330), modes=14, window=256)
    full = pt.report(one, tmp_path / "True.html", full=True)
    assert full.stat().st_size > 10e6
    block = re.search('id="report-data">(.*?)</script>', full.read_text(encoding="utf-8"))
    assert block is not None
    saved = json.loads(block[1])["files"]["object"]
    assert saved["name"] == "True-object.npy"
    loaded = np.load(io.BytesIO(base64.b64decode(saved["content"])), allow_pickle=False)
    np.testing.assert_array_equal(loaded, one.object)


def test_hostile_words_are_shown_and_make_no_element(tmp_path, page):
    """As title, comments, names of the scan, of files, engines, settings, changes: the tags are those of a tame one."""
    tame, hostile = result(), " ".join(HOSTILE.values())
    given = {
        "title": hostile,
        "comments": "\n".join(f"# {one}\n\n{one}\n\n`{one}`\n\n    {one}\n" for one in HOSTILE.values()),
        "scan": dataclasses.replace(tame.scan, name=hostile, path=hostile, given={hostile: hostile}),
        "machines": dataclasses.replace(tame.machines, kind=hostile, devices=(hostile,)),
        "settings": {**tame.settings, hostile: hostile, "loss": hostile},
        "changes": (dataclasses.replace(tame.changes[0], name=hostile, old=hostile, new={hostile: [hostile]}),),
        "failure": hostile,
        "metadata": {hostile: hostile},
    }
    both = [dataclasses.replace(tame, **given), tame]
    allowed = {one.tag for one in parsed(page).iter()} | {
        f"{HTML}{tag}" for tag in ("em", "h3", "ul", "ol", "span", "br")
    }
    for number, source in enumerate((both[0], {hostile: both[0], f"{hostile}!": both[1]})):
        tree = parsed(pt.report(source, tmp_path / f"{number}.html"))
        assert {one.tag for one in tree.iter()} <= allowed
        scripts = [one.get("type") for one in tree.iter(f"{HTML}script")]
        assert scripts == ["application/json", "module"]
        whole = (tmp_path / f"{number}.html").read_text(encoding="utf-8")
        assert not re.search("[\u2028\u2029\u202a-\u202e\u2066-\u2069\x00\x1b\x85]", whole)
        assert all(one.get("href", "#").startswith("#") for one in tree.iter())
        assert not [name for one in tree.iter() for name in one.attrib if name.startswith("on")]


def test_comments_are_markdown_whose_links_are_text(tmp_path):
    text = (
        "# Top\n### Deep\n\n[the log](https://example.org/a?b=1) [bad](javascript:alert(1)) <https://example.org>\n\n"
    )
    text += (
        "| a | b |\n|---|--:|\n| 1 | 2 |\n\n![a picture](https://example.org/p.png) ~~no~~ <b>raw</b>\n\n1. one\n\n3. x"
    )
    tree = parsed(pt.report(result(), tmp_path / "a.html", comments=text))
    (comments,) = [one for one in tree.iter(f"{HTML}section") if one.get("id") == "comments"]
    said = "".join(comments.itertext())
    assert "the log (https://example.org/a?b=1)" in said
    assert said.count("https://example.org") == 2
    assert "a picture" in said
    assert "<b>raw</b>" in said
    tags = [one.tag.removeprefix(HTML) for one in comments.iter()]
    assert tags.index("h3") < tags.index("h4")
    assert "table" in tags
    assert not {"a", "img", "b"} & set(tags)


def test_a_truth_gives_error_and_resolution(tmp_path):
    true = field((128, 128), noise=0.0)
    noisy = true * (1 + 0.02 * np.random.default_rng(3).standard_normal(true.shape))
    page = pt.report(result(object=noisy), tmp_path / "a.html", ground_truth=Truth(object=true, probe=probe(1, 24)))
    told = text_of(parsed(page))
    assert "period, against the truth" in told
    assert "Fourier ring correlation with the truth" in str(data_of(parsed(page))["curves"]["frc"]["title"])
    assert re.search(r"Error\s*0\.0[23]", told)
    assert "halves" not in told


def test_several_results_are_compared(tmp_path):
    one = result()
    moved = result(object=np.roll(field((96, 96), 5), 1, 0), settings=pt.Settings(batch=8).model_dump(mode="json"))
    tree = parsed(pt.report({"first": one, "second": moved}, tmp_path / "a.html"))
    told, data = text_of(tree), data_of(tree)
    assert "Comparison of first, second" in told
    assert "second was moved onto first by" in told
    for words in ("batch", "They agree to", "not the resolution", "R-factor of second"):
        assert words in told, words
    files = data["files"]
    assert list(files) == ["figure-object-1", "figure-object-2", "figure-frc-2-1", "object-1", "object-2"]
    for name in list(files)[:3]:
        assert len(pypdf.PdfReader(io.BytesIO(base64.b64decode(files[name]["content"]))).pages) == 1
    first, second = (
        np.load(io.BytesIO(base64.b64decode(files[name]["content"])), allow_pickle=False) for name in list(files)[3:]
    )
    assert first.shape == second.shape
    assert np.abs(second - first).mean() < 0.3 * np.abs(first).mean()
    assert "Object of second as it is compared, complex" in told
    frames = data["viewers"]["object"]["frames"]
    assert {key.split("|")[0] for key in frames} == {"phase", "amplitude", "complex"}
    assert all(name in data["pictures"] for frame in frames.values() for name in frame["pictures"])
    assert [line["name"] for line in data["curves"]["loss"]["lines"] if line["name"].startswith("loss")] == [
        "loss of first",
        "loss of second",
    ]


def test_refined_aberrations_are_told_with_their_sign(tmp_path):
    lens = {"aberrations/C10": np.array(-5e-9), "aberrations/C12": np.array([0.0, 2e-9])}
    assert result(parameters=lens).aberrations == {"C10": -5e-9, "C12": (2e-9, math.pi / 4)}
    told = text_of(parsed(pt.report(result(parameters=lens), tmp_path / "a.html")))
    assert "changed by C10 -5 nm, C12 2 nm" in told


def test_the_two_halves_of_a_scan_give_its_resolution(tmp_path):
    halves = [result(object=field((96, 96), n), metadata={"scan": f"star, half {n} of 2"}) for n in (1, 2)]
    told = text_of(parsed(pt.report(halves, tmp_path / "a.html")))
    assert re.search(r"Resolution of a half\d+\.?\d* nm \(period, FRC\)", told)
    assert "this is the resolution of a half" in told


def test_results_of_different_samples_are_told_apart_and_not_refused(tmp_path):
    elsewhere = result(origin=(5000, 5000))
    told = text_of(parsed(pt.report([result(), elsewhere], tmp_path / "a.html")))
    assert "B is not compared" in told


NAN = np.complex64(np.nan)
ODD = {
    "no epoch": {"epochs": (), "history": (), "r_factors": (), "r_factor": float("nan")},
    "not a number anywhere": {"object": np.full((64, 64), NAN), "probe": np.full((1, 24, 24), NAN)},
    "positions that are no numbers": {"positions": np.full((4, 2), np.nan)},
    "no pixel size": {"pixel_size": None},
    "two states of two slices": {"object": field((2, 2, 64, 64))},
    "a dark probe": {"probe": np.zeros((2, 24, 24), np.complex64)},
    "settings of another version": {
        "settings": {"loss": "amplitude", "gone": {"learning_rate": 1}},
        "initial_settings": {"gone": 2},
    },
    "a record from before": {"scan": ScanIdentity(""), "title": "", "ended": "", "metadata": {"scan": "old"}},
    "twenty modes": {"probe": probe(20, 24)},
}  # fmt: skip


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
def test_odd_results_have_a_report(tmp_path, odd):
    given = {"positions": np.array([[0.0, 0.0], [40.0, 40.0]]), "parameters": {}, **odd}
    assert parsed(pt.report(result(**given), tmp_path / "a.html")) is not None


def test_an_unsupported_source_is_an_error(tmp_path):
    for source, kind in ((3, "int"), (object(), "object"), ([result(), None], "NoneType")):
        with raises("argument.invalid-type", kind):
            pt.report(source, tmp_path / "a.html")
    with raises("report.no-result"):
        pt.report([], tmp_path / "a.html")
    with raises("argument.conflict", "ground_truth", 2):
        pt.report([result(), result()], tmp_path / "a.html", ground_truth=Truth(field((96, 96)), probe(1, 24)))
    with raises("file.not-writable", tmp_path / "nowhere"):
        pt.report(result(), tmp_path / "nowhere" / "a.html")
    assert not list(tmp_path.iterdir())


def test_a_file_is_replaced_whole_and_named_in_the_command(tmp_path):
    path = save_result(result(), tmp_path / "my run.result.h5")
    (tmp_path / "a.html").write_text("before")
    pt.report(path, tmp_path / "a.html")
    assert "ptynb run 'my run.result.h5' --reproduce" in text_of(parsed(tmp_path / "a.html"))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["a.html", "my run.result.h5"]


def test_a_reconstruction_is_asked_for_its_result(tmp_path):
    class Running:
        @property
        def result(self):
            return result()

    assert "Star, run 17" in text_of(parsed(pt.report(Running(), tmp_path / "a.html")))


def test_the_command_writes_beside_the_result(tmp_path, capsys, monkeypatch):
    from ptynb.cli.main import main

    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    path = str(save_result(result(), tmp_path / "run.result.h5"))
    (tmp_path / "words.md").write_text("Said *here*.")
    assert main(["report", path, "--comments", str(tmp_path / "words.md"), "--title", "Mine", "--open"]) == 0
    written = tmp_path / "run.report.html"
    assert opened == [written.as_uri()]
    assert str(written) in capsys.readouterr().out
    told = text_of(parsed(written))
    assert "Mine" in told
    assert "Said here." in told
    assert main(["report", path, path, "-o", str(tmp_path / "both.html")]) == 0
    assert "Comparison of run, run (2)" in text_of(parsed(tmp_path / "both.html"))
    assert main(["report", str(tmp_path / "words.md")]) == 65
    (tmp_path / "words.md").write_bytes(b"\xff\xfe\x00")
    assert main(["report", path, "--comments", str(tmp_path / "words.md")]) == 65
    assert "UTF-8" in capsys.readouterr().err


def test_a_run_during_the_scan_says_what_came_when(tmp_path, page):
    times = 1.7e9 + np.array([0.0, 1.0, 2.0, 3.0, 10.0])
    record = pt.Admissions(
        planned=np.zeros((8, 2)),
        patterns=np.array([0, 1, 3, 2, 7]),
        positions=np.zeros((5, 2)),
        times=times,
        sizes=np.array([3, 2]),
        updates=np.array([0, 4]),
        epochs=2,
        ended="aborted <at the beamline>",
        summary={"missing": 3, "duplicates": 2, "damaged": 0},
    )
    during = text_of(parsed(pt.report(result(admissions=record), tmp_path / "page.html")))
    assert "Patterns that came during the run" in during
    assert "Patterns that came during the run" not in text_of(parsed(page))
    expected = {
        "Planned patterns": "8",
        "Used": "5",
        "First pattern": "2023-11-14 22:13:20",
        "Patterns per second": "0.4",
        "50% had come after": "2 s",
        "Missing": "3",
        "Duplicates": "2",
        "Used at first": "3",
        "Epochs during the scan": "2",
        "End of the scan": "aborted <at the beamline>",
    }
    for name, value in expected.items():
        assert re.search(rf"{re.escape(name)}\s*{re.escape(value)}", during), name
    assert "Damaged" not in during
