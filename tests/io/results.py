"""Results with a value in every field, for the tests of what is written of them."""

import numpy as np

from ptynb.data.admissions import Admissions
from ptynb.data.provenance import Machines, ScanIdentity, Software
from ptynb.data.record import Change, Epoch, Thumbnail
from ptynb.data.result import Result
from ptynb.data.standard_error import ErrorMap
from ptynb.settings import Settings

RANDOM = np.random.default_rng(0)


def complex_array(*shape):
    return (RANDOM.standard_normal(shape) + 1j * RANDOM.standard_normal(shape)).astype(np.complex64)


SETTINGS = Settings(batch=5, seed=7).model_dump(mode="json")
ADMITTED = Admissions(
    planned=np.arange(14.0).reshape(7, 2),
    patterns=np.array([0, 1, 4, 2]),
    positions=np.arange(8.0).reshape(4, 2) + 0.1,
    times=1.7e9 + np.arange(4.0),
    sizes=np.array([3, 1, 0]),
    updates=np.array([0, 2, 5]),
    epochs=2,
    ended="aborted",
    summary={"planned": 7, "missing": 3, "rate": 1.5},
)


FULL = Result(
    admissions=ADMITTED,
    object=complex_array(30, 33),
    probe=complex_array(3, 8, 10),
    positions=RANDOM.uniform(0, 20, (9, 2)),
    origin=(-4, 7),
    epochs=(Epoch(1, 0.5, 0.25, 36.5), Epoch(2, 0.1 + 0.2, 1 / 3, 27.0, 1.7e9 + 0.1, 0.01, 1e-3, 0.3)),
    r_factor=0.1 + 0.02,
    scan_r_factors=(0.1, 1 / 7),
    settings=SETTINGS,
    changes=(Change(1, 3, "probe.learning_rate", 0.01, 1e-5, 1.7e9), Change(1, 4, "note", None, ["β", {"a": 1}])),
    pixel_size=(1.25e-8, 2.5e-8),
    metadata={"scan": "a name with ü", "backend": "gloo"},
    parameters={
        "weights/weights": np.arange(3.0),
        "aberrations/C10": np.array(-5e-9),
        "aberrations/C12": np.array([0.0, 2e-9]),
        "slices/thickness": np.array(2e-9),
        "descan/shifts": np.linspace(-1, 1, 14).reshape(7, 2),
        "fly_scan/motion": np.linspace(0, 3, 14).reshape(7, 2),
        "background/background": np.arange(80.0).reshape(8, 10),
    },
    r_factors=((1, 0.3), (2, 0.1)),
    initial_settings=Settings(batch=5, seed=7, probe={"learning_rate": 0.01}).model_dump(mode="json"),
    error_map=ErrorMap(complex_array(20, 21), *RANDOM.random((3, 20, 21), np.float32), (1, 2), 4.0, (1.25e-8, 2.5e-8)),
    update=2,
    started="2026-11-22T08:27:17.000Z",
    ended="2026-11-22T09:00:00.500Z",
    history=(
        Thumbnail(1, complex_array(15, 16), complex_array(8, 10), 2, 1, (3, 4)),
        Thumbnail(20, complex_array(15, 16), complex_array(4, 5), 2, 2, (3, 4)),
    ),
    scan=ScanIdentity(
        name="a name with ü",
        patterns=9,
        pattern_shape=(8, 10),
        path="/data/ein Scan.cxi",
        size=2**40,
        modified=1.7e9 + 0.25,
        given={"energy": 8000.0, "step": [1e-7, 2e-7], "mask": "entry/mask"},
        arrays=("positions",),
        digest="0123abcd",
        sample_digest="4567cdef",
        prepared=True,
        counts=1e9,
        is_far_field=False,
        wavelength=1.5e-10,
        distance=2.0,
        detector_pixel=(75e-6, 55e-6),
        geometry={"kind": "NearField", "focus_to_sample": "inf"},
    ),
    software=Software("0.1.0", "2.13.0", "2.0", "3.16", "3.11.7", "Linux, x86_64"),
    machines=Machines(2, 4, ("cpu 0", "cpu 1"), "2 engines on CPU", "gloo", "disk", "16", ("Mine",)),
    failure="Rank 1: it ended\n\nTraceback ...",
    title="Überstruktur <b>&amp;</b>",
    comments="# Notes\n\n* a line\n" * 10_000,
)
BARE = Result(
    object=complex_array(30, 33),
    probe=complex_array(1, 8, 10),
    positions=RANDOM.uniform(0, 20, (9, 2)),
    origin=(0, 0),
    epochs=(),
    r_factor=float("nan"),
    settings={},
)
