import json
import re
from pathlib import Path

import pytest
import yaml

from ptynb.cli import main
from ptynb.cli.run_command import plan_of, resume_command
from ptynb.data.geometry import Geometry, wavelength_from_energy
from ptynb.settings import Checkpointing, Settings
from ptynb.settings.base_models import kind_of
from ptynb.settings.cluster_options import CLUSTERS, LocalCluster, SlurmCluster
from ptynb.settings.field_docs import models_in
from ptynb.settings.run_files.listen_section import ListenSection, PlanSection
from ptynb.settings.run_files.run_file import RunFile, RunScan, read_run
from ptynb.settings.run_files.run_file_example import EXAMPLES, MARK, SEVERAL, example
from tests.parametrization import each
from tests.raising import raises

LEAST = "scan: a.h5\nepochs: 3\nresult: out/b.h5\n"


@pytest.fixture
def read(tmp_path):
    def read(text, options=None):
        path = tmp_path / "run.yaml"
        path.write_text(text)
        return read_run(path, options)

    return read


def test_the_least_is_scan_epochs_and_result_and_paths_are_relative_to_the_file(read, tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    plan = read(LEAST)
    assert (plan.scan, plan.share, plan.start) == ((RunScan(file=tmp_path / "a.h5"),), None, None)
    assert (plan.epochs, plan.result) == (3, tmp_path / "out" / "b.h5")
    assert plan.checkpointing == Checkpointing(folder=tmp_path / "out" / "b.states")
    assert (plan.cluster, plan.on_failure, plan.settings) == (LocalCluster(), "continue", Settings())
    elsewhere = read(f"{LEAST}checkpointing: {{folder: /abs/kept, max_to_keep: 7}}\nsettings:\ncluster:\n")
    assert elsewhere.checkpointing == Checkpointing(folder=Path("/abs/kept"), max_to_keep=7)


def test_options_take_the_place_of_what_the_file_says_and_are_relative_to_the_working_folder(
    read, tmp_path, monkeypatch
):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    text = f"{LEAST}cluster: {{engines: 3, threads: 2}}\ncheckpointing: {{max_to_keep: 5}}\n"
    options = {"scan": Path("x.h5"), "epochs": 9, "checkpointing": {"folder": Path("k")}, "cluster": {"engines": 1}}
    plan = read(text, options)
    assert (plan.scan[0].file, plan.epochs) == (tmp_path / "here" / "x.h5", 9)
    assert plan.result == tmp_path / "out" / "b.h5"
    assert plan.checkpointing == Checkpointing(folder=tmp_path / "here" / "k", max_to_keep=5)
    assert plan.cluster == LocalCluster(engines=1, threads=2)
    assert read(text, {"cluster": {"kind": "slurm"}}).cluster == SlurmCluster()


def test_a_file_of_settings_is_a_run_once_the_rest_is_given(read, tmp_path):
    plan = read("batch: 12\nprobe: {modes: 2}\n", {"scan": "/a", "epochs": 2, "result": "/b"})
    assert plan.settings == Settings(batch=12, probe={"modes": 2})
    with raises(INVALID, "run.yaml: 'scan' is missing", "--scan"):
        read("batch: 12\n")


def test_hosts_are_a_list_or_say_how_many_engines_each_gets(read):
    assert read(f"{LEAST}cluster: {{kind: ssh, hosts: [a, b]}}").cluster.hosts == {"a": None, "b": None}
    assert read(f"{LEAST}cluster: {{kind: ssh, hosts: {{a: 4, b: null}}}}").cluster.hosts == {"a": 4, "b": None}


UNKNOWN = "settings.unknown-name"
INVALID = "settings.invalid-value"


@each(
    "case",
    [
        (
            "scna: a\nepochs: 3\nresult: x",
            UNKNOWN,
            "'scna' (did you mean 'scan'?)",
            ", ".join(RunFile.model_fields),
            "'scan' is missing",
            "--scan",
        ),
        (LEAST.replace("3", "ten"), INVALID, "epochs is 'ten'", "integer"),
        (f"{LEAST}batch: 3", UNKNOWN, "'batch'", "'settings:'"),
        (
            f"{LEAST}cluster: {{engine: 3}}",
            UNKNOWN,
            "'cluster.engine' (did you mean 'engines'?)",
            "engines, device, threads, detached_timeout, timeout.",
        ),
        (f"{LEAST}cluster: {{kind: slurm, hosts: [a]}}", UNKNOWN, "'cluster.hosts'", "nodes, "),
        (
            f"{LEAST}cluster: {{kind: slrum}}",
            INVALID,
            "cluster.kind is 'slrum'",
            "'local', 'none', 'slurm', 'ssh', 'pbs',",
        ),
        (f"{LEAST}cluster: {{kind: ssh}}", INVALID, "'cluster.hosts' is missing"),
        (f"{LEAST}settings: {{probe: {{mode: 3}}}}", UNKNOWN, "'settings.probe.mode' (did you mean 'modes'?)"),
        (f"{LEAST}epochs: 4", "settings.invalid-yaml", "'epochs' is given twice"),
        ("- scan", "settings.not-a-mapping", "list"),
        (LEAST.replace("a.h5", '"a\\0.h5"'), INVALID, r"scan is 'a\x00.h5'", "control characters"),
        (f"{LEAST}cluster: {{kind: ssh, hosts: {{a: yes}}}}", INVALID, "cluster.hosts is {'a': True}", "a number"),
        (LEAST.replace("out/b.h5", "/"), INVALID, "result is '/'", "scan.result.h5"),
        (LEAST.replace("out/b.h5", "out/.."), INVALID, "scan.result.h5"),
        (f"{LEAST}settings: {{probe: {{self: 1}}}}", UNKNOWN, "'settings.probe.self'"),
        (f"{LEAST}? {'x' * 10_000}\n: {{null: 1}}", "settings.invalid-name", "None", f"'{'x' * 79}…'"),
        (f"{LEAST}settings: {{constraints: [{{kind: {'x' * 10_000}}}]}}", INVALID, "'kind'"),
        (f"{LEAST}cluster: {{kind: {'x' * 4000}}}", INVALID, f"cluster.kind is '{'x' * 198}…", "'local'"),
    ],
)
def test_errors_state_file_field_and_what_was_expected(read, tmp_path, case):
    text, code, *facts = case
    with raises(code, *facts) as caught:
        read(text)
    message = str(caught.value)
    assert message.startswith(str(tmp_path / "run.yaml")) or code == "file.not-found"
    assert message.isprintable()
    assert len(message) < 1200


def test_a_file_that_is_not_there_is_told_with_what_was_expected(tmp_path):
    with raises("file.not-found", "none.yaml"):
        read_run(tmp_path / "none.yaml")
    with raises("file.not-found", tmp_path, "folder"):
        read_run(tmp_path)


def test_the_example_is_a_run_and_says_what_holds_anyway(read):
    plan = read(example())
    assert plan.settings == Settings()
    assert (plan.epochs, plan.cluster) == (200, LocalCluster())
    unmarked = example().replace(MARK, "")
    assert "batch: 16  # Diffraction patterns per update" in unmarked
    assert read(unmarked) == plan
    whole = example()
    for section, text in EXAMPLES.items():
        shown = "".join(f"#   {line}\n" for line in text.splitlines())
        assert shown in whole
        whole = whole.replace(f"# {section}:\n{shown}", f"{section}:\n{text}")
    plan = read(whole)
    assert [step.function for step in plan.prepare] == ["crop", "flip", "mask_pixels"]
    assert sum(stage.epochs for stage in plan.stages) == plan.epochs == 200
    shown = "".join(f"#   {line}\n" for line in SEVERAL.splitlines())
    assert shown in whole
    plan = read(re.sub("^scan: .*\n", "", whole, flags=re.M).replace(f"# Several scans:\n{shown}", SEVERAL))
    assert ([one.file.name for one in plan.scan], plan.share) == (["first.cxi", "second.cxi"], "object")
    assert plan.scan[1].model_fields_set == {*RunScan.model_fields}
    lines = example().splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if line.startswith("# listen:"))
    live = "".join(line.removeprefix("# ") for line in lines[first : lines.index("\n", first)])
    for name in (*ListenSection.model_fields, *PlanSection.model_fields):
        assert f"  {name}:" in live
    plan = read(re.sub("^scan: .*\\n", live.replace("\\", "\\\\"), example(), flags=re.M))
    assert plan.listen.model_fields_set == {"source", "positions", "plan", "folder"}
    assert plan.listen.plan == PlanSection(count=1024, extent=((0, 2e-6), (0, 2e-6)))
    changed = read(unmarked.replace("batch: 16", "batch: 32").replace("engines: null", "engines: 3"))
    assert (changed.settings.batch, changed.cluster.engines) == (32, 3)


def test_a_start_is_relative_to_the_file_or_to_the_working_folder(read, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read(LEAST).start is None
    assert read(LEAST + "start: theirs.mat\n").start == tmp_path / "theirs.mat"
    assert read(LEAST, {"start": Path("given.h5")}).start == tmp_path / "given.h5"


def test_what_the_scans_file_lacks_is_given_in_the_run_and_on_the_command_line(tmp_path):
    (tmp_path / "places.npy").write_bytes(b"")
    text = f"{LEAST}load: {{energy: 8.2e3, positions: places.npy, mask: entry/mask, step: [1e-7, 2e-7]}}\n"
    (tmp_path / "run.yaml").write_text(text)
    words = read_run(tmp_path / "run.yaml").load.arguments
    assert words == {
        "energy": 8.2e3,
        "positions": str(tmp_path / "places.npy"),
        "mask": "entry/mask",
        "step": (1e-7, 2e-7),
    }
    options = "--start s.h5 --distance 2 --energy 9e3 --raster 3 4"
    chosen = parsed(["run", str(tmp_path / "run.yaml"), *options.split()])
    changed = plan_of(chosen).load.arguments
    assert changed == {**words, "distance": 2.0, "energy": 9e3, "raster": (3, 4)}
    command = resume_command("ptynb run", chosen)
    assert command.endswith("--start s.h5 --raster 3 4 --energy 9000.0 --distance 2.0 --resume")
    assert plan_of(parsed(command.split()[1:])).load.arguments == changed


SCANS = LEAST.replace("a.h5", "[a.h5, {{file: sub/b.h5, {own}}}]") + "share: {share}\n"


def test_several_scans_have_options_of_their_own_and_paths_relative_to_the_file(read, tmp_path, monkeypatch):
    own = "load: {energy: 8e3, step: 1e-7}, prepare: [{mask_pixels: bad.npy}], start: b.mat, shift: [3, -4.5]"
    plan = read(SCANS.format(own=own, share="object") + "load: {rotation: 0.1, step: 2e-7}\n")
    first, second = plan.scan
    assert (first.file, second.file) == (tmp_path / "a.h5", tmp_path / "sub" / "b.h5")
    assert (first.shift, second.shift, second.start) == (None, (3.0, -4.5), tmp_path / "b.mat")
    assert second.prepare[0].arguments == {"mask": str(tmp_path / "bad.npy")}
    assert plan.options_of(first).arguments == {"rotation": 0.1, "step": (2e-7, 2e-7)}
    assert plan.options_of(second).arguments == {"rotation": 0.1, "step": (1e-7, 1e-7), "energy": 8e3}

    monkeypatch.chdir(tmp_path)
    options = (
        "--scan c.h5 --scan d.h5 --share probe --epochs 7 --result r.h5 --keep k --pictures 2.0 "
        "--device cpu --threads 2 --on-failure pause --cluster local --engines 2"
    )
    chosen = parsed(["run", str(tmp_path / "run.yaml"), *options.split()])
    assert [one.file for one in plan_of(chosen).scan] == [tmp_path / "c.h5", tmp_path / "d.h5"]
    assert resume_command("ptynb run", chosen) == f"ptynb run {tmp_path}/run.yaml {options} --resume"
    assert [one.file for one in read(f"{LEAST}scan: {{file: e.h5, load: }}".replace("scan: a.h5\n", "")).scan] == [
        tmp_path / "e.h5"
    ]


@each(
    ("text", "code", "facts"),
    [
        (LEAST.replace("a.h5", "[a.h5, b.h5]"), "argument.missing", ["2 scans", "'share: probe'", "'share: object'"]),
        (f"{LEAST}share: probe", "argument.conflict", ["'probe'", "one scan", "[a.h5, b.h5]"]),
        (LEAST.replace("a.h5", "[a.h5]") + "share: object", "argument.conflict", ["'object'", "one scan"]),
        (LEAST.replace("a.h5", "[]"), "settings.invalid-value", ["scan is []", "at least 1"]),
        (SCANS.format(own="shift: 3", share="probe"), "argument.conflict", ["shift", "coordinate system"]),
        (SCANS.format(own="energy: 3", share="probe"), "settings.unknown-name", ["scan.1.energy", "file, load, "]),
        (SCANS.format(own="load: {energy: -1}", share="probe"), "settings.invalid-value", ["scan.1.load.energy is -1"]),
        (SCANS.format(own="prepare: [crop: x, flop: y]", share="probe"), "settings.unknown-name", ["scan.1.prepare.1"]),
        (SCANS.replace("file: sub/b.h5, ", "").format(own="", share="probe"), INVALID, ["'scan.1.file' is missing (f"]),
        (
            SCANS.format(own="load: {energy: 8e3}", share="probe") + "load: {wavelength: 1e-10}",
            "argument.conflict",
            ["sub/b.h5", "energy=8000.0", "wavelength"],
        ),
        (LEAST.replace("a.h5", "[a.h5, b.h5]") + "share: probe\nstart: c", "argument.conflict", ["start", "its own"]),
    ],
)
def test_scans_that_make_no_run_together(read, text, code, facts):
    with raises(code, "run.yaml", *facts):
        read(text)


LISTEN = """\
listen:
  source: {source}
  positions: {positions}
  plan: {{extent: [[0, 1e-6], [0, 2e-6]], count: 12{more}}}
epochs: 3
result: out/b.h5
"""
PANDA = "panda://panda?y=A.Mean&x=B.Mean"
STREAM = LISTEN.replace("{source}", "stream2://detector:31001").replace("{positions}", PANDA)
FAR = ", energy: 8e3, distance: 2, detector_pixel: 75e-6"


def test_a_scan_that_is_measured_during_the_run_is_described_in_the_file(read, tmp_path):
    plan = read(STREAM.format(more=FAR + ", window: 64, mask: bad.npy, probe: sub/p.npy, line:"))
    assert (plan.scan, plan.listen.positions, plan.listen.timeout) == ((), PANDA, None)
    assert plan.listen.source == "stream2://detector:31001"
    assert plan.listen.folder == tmp_path / "out" / "b.live"
    planned = plan.listen.plan
    assert (planned.mask, planned.probe) == (str(tmp_path / "bad.npy"), str(tmp_path / "sub" / "p.npy"))
    assert (planned.window, planned.line, planned.extent) == ((64, 64), None, ((0, 1e-6), (0, 2e-6)))
    assert planned.measured_geometry == Geometry(
        wavelength=wavelength_from_energy(8e3), distance=2, detector_pixel=(75e-6, 75e-6)
    )
    assert read(STREAM.format(more="")).listen.plan.measured_geometry is None
    near = read(STREAM.format(more=FAR + ", geometry: near field, focus_to_sample: 0.1")).listen.plan
    assert near.measured_geometry.magnification == 21
    turned = read(STREAM.format(more=", voltage: 3e5, angular_pixel: 1e-3")).listen.plan.measured_geometry
    assert (turned.distance, turned.detector_pixel) == (1, (1e-3, 1e-3))
    growing = read(
        LISTEN.format(source="raw/x_master.h5", positions="e/y,e/x", more="").replace(
            "epochs", "  folder: /data/new\nepochs"
        )
    )
    assert growing.listen.source == str(tmp_path / "raw" / "x_master.h5")
    assert growing.listen.folder == Path("/data/new")
    assert read(STREAM.format(more=""), {"result": Path("/c.h5")}).listen.folder == Path("/c.live")


@each(
    ("text", "code", "facts"),
    [
        (STREAM.format(more=", cuont: 3"), UNKNOWN, ["'listen.plan.cuont' (did you mean 'count'?)", "extent, units"]),
        (STREAM.format(more=", line: 0"), INVALID, ["listen.plan.line is 0"]),
        (STREAM.format(more=", energy: 8e3"), "argument.missing", ["energy", "distance and detector_pixel", "header"]),
        (STREAM.format(more=FAR + ", voltage: 9"), "argument.conflict", ["in listen.plan, energy=8000.0 and voltage"]),
        (STREAM.format(more=", geometry: near field"), "argument.missing", ["near field", "energy", "distance"]),
        (STREAM.format(more=", positions: p.npy"), "argument.conflict", ["in listen.plan, both positions and extent"]),
        (STREAM.format(more="").replace("extent: [[0, 1e-6], [0, 2e-6]], ", ""), "argument.missing", ["neither"]),
        (STREAM.format(more="").replace("[0, 2e-6]", "[3, 2e-6]"), "settings.wrong-order", ["listen.plan.extent is"]),
        *(
            (LISTEN.format(source=source, positions=positions, more=""), code, ["in listen, ", *facts])
            for source, positions, code, facts in (
                ("tcp://a:1", PANDA, "argument.invalid-value", ["source is 'tcp://a:1'", "stream2://"]),
                ("stream2://a?chanel=1", PANDA, "argument.unknown", ["source is 'stream2://a?chanel=1'", "channel"]),
                ("stream2://a", "tcp://p", "argument.invalid-value", ["positions is 'tcp://p'", "panda://"]),
                ("stream2://a", "e/y,e/x", "argument.invalid-value", ["positions is 'e/y,e/x'", "of a file as source"]),
                ("a.h5", "planned", "acquisition.no-positions", ["positions is 'planned'", "plan.positions"]),
            )
        ),
        (
            STREAM.format(more="").replace("source:", "sauce:"),
            UNKNOWN,
            ["'listen.sauce'", "'listen.source' is missing"],
        ),
        ("listen: {source: a.h5}\nepochs: 3\nresult: b", INVALID, ["'listen.plan' is missing (what is known"]),
        ("listen:\nepochs: 3\nresult: b", INVALID, ["'scan' is missing", "'listen'"]),
        (STREAM.format(more="") + "scan: a.h5", "argument.conflict", ["scan and listen"]),
        (STREAM.format(more="") + "load: {energy: 3}", "argument.conflict", ["load and listen", "listen.plan"]),
        (STREAM.format(more="") + "share: probe", "argument.conflict", ["share and listen"]),
        (STREAM.format(more="") + "start: a.h5", "argument.conflict", ["start and listen", "listen.plan.probe"]),
        (STREAM.format(more="") + "prepare: [{crop: 32}]", "argument.conflict", ["prepare and", "listen.plan.window"]),
        (STREAM.format(more="") + "cluster: {kind: slurm}", "argument.conflict", ["'slurm'", "'local' or 'none'"]),
        (STREAM.format(more="") + "cluster: {kind: ssh, hosts: [a]}", "argument.conflict", ["'ssh'", "this machine"]),
        (STREAM.format(more="") + "stages: [{epochs: 1, pattern_size: 8}]", "argument.conflict", ["stage 1", "window"]),
    ],
)
def test_what_makes_no_live_run_is_one_sentence(read, text, code, facts):
    with raises(code, "run.yaml: ", *facts) as caught:
        read(text)
    assert "{" not in str(caught.value), "a whole section is not repeated"


def test_a_home_folder_of_nobody_is_to_be_written_out(read):
    with raises("file.not-found", "~nobody-at-all/a.h5", "write out the whole path"):
        read(LEAST.replace("a.h5", "~nobody-at-all/a.h5"))
    with raises("file.not-found", "~nobody-at-all/b.h5"):
        read(LEAST, {"result": Path("~nobody-at-all/b.h5")})
    assert read(LEAST.replace("a.h5", "/home/somebody/a.h5")).scan[0].file == Path("/home/somebody/a.h5")


@each(("option", "value"), [("--epochs", "1" + "0" * 30), ("--pictures", "nan")])
def test_options_have_the_bounds_of_the_file(tmp_path, capsys, option, value):
    (tmp_path / "run.yaml").write_text(LEAST)
    assert main.main(["run", str(tmp_path / "run.yaml"), option, value]) == 78
    told = " ".join(capsys.readouterr().err.split())
    assert f"{option.removeprefix('--')} is " in told
    assert ": expected " in told


def parsed(line):
    return main._parser().parse_args(line)


KINDS = {
    "cluster": CLUSTERS,
    "constraints": models_in(Settings.model_fields["constraints"].annotation),
    "regularizers": models_in(Settings.model_fields["regularizers"].annotation),
}
THICK = {"slices": {"count": 3, "thickness": 1e-9}}


@each(("field", "model"), [(field, model) for field, models in KINDS.items() for model in models])
def test_what_was_given_makes_an_equal_run_with_each_kind(field, model):
    needed = {"hosts": ["one"], "loss": "poisson", "period_y": 8, "period_x": 8}
    one = model(**{name: needed.get(name, 0.5) for name, info in model.model_fields.items() if info.is_required()})
    more = {"cluster": one} if field == "cluster" else {"settings": Settings(**THICK, **{field: [one]})}
    run = RunFile(scan="a.h5", epochs=2, result="b.h5", **more)
    assert f"kind: {kind_of(model)}" in yaml.safe_dump(run.as_given())
    for text in (yaml.safe_dump(run.as_given()), json.dumps(run.as_given())):
        assert RunFile(**yaml.safe_load(text)) == run


def test_what_was_given_has_defaults_that_would_follow_other_values():
    for kind in ("constant", "cosine"):
        settings = {"optimiser": "rpie", "schedule": {"kind": kind}}
        run = RunFile(scan="a.h5", epochs=2, result="b.h5", settings=settings)
        again = RunFile(**yaml.safe_load(yaml.safe_dump(run.as_given())))
        assert again.settings.schedule.kind == kind
        assert "learning_rate" not in str(run.as_given()), "it follows the optimiser, also that of a later stage"
