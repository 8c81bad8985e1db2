"""What each protocol's messages become, in the forms that they are known to have."""

import json
import struct
from types import SimpleNamespace

import cbor2
import numpy as np
import pytest

from ptynb.acquisition.compression import pack_bslz4, pack_lz4
from ptynb.acquisition.emulators.position_players import HEADER
from ptynb.acquisition.messages import Damaged, Frame, Gap, MeasuredPositions, SeriesEnded, SeriesStarted, Stray
from ptynb.acquisition.protocols.json_positions import read_json
from ptynb.acquisition.protocols.panda import PandaParser
from ptynb.acquisition.protocols.pva import NtndarrayParser
from ptynb.acquisition.protocols.simplon_v1 import SimplonV1Parser
from ptynb.acquisition.protocols.simplon_v2 import Stream2Parser, typed_array
from tests.raising import raises

COUNTS = np.random.default_rng(0).poisson(3, (6, 8)).astype(np.uint16)
CONFIG = {"ntrigger": 5, "nimages": 3, "photon_energy": 8e3, "detector_distance": 2.0, "x_pixel_size": 1e-4}


def coded(**content):
    return json.dumps(content).encode()


def simplon_image(series=3, frame=0, encoding="<", data=None, **about):
    told = {"htype": "dimage_d-1.0", "shape": [8, 6], "type": "uint16", "encoding": encoding, **about}
    octets = COUNTS.tobytes() if data is None else data
    return [coded(htype="dimage-1.0", series=series, frame=frame), coded(**told), octets, coded(htype="dconfig-1.0")]


def simplon_header(parts, series=3):
    mask = np.zeros((6, 8), np.uint32)
    mask[2, 5] = 1
    table = [coded(htype="dcountrate_table-1.0", shape=[2, 2], type="float32"), bytes(16)]
    flat = [coded(htype="dflatfield-1.0", shape=[8, 6], type="float32"), bytes(4 * 48)]
    bad = [coded(htype="dpixelmask-1.0", shape=[8, 6], type="uint32"), mask.tobytes()]
    return [coded(htype="dheader-1.0", series=series), coded(**CONFIG), *flat, *bad, *table][:parts]


@pytest.mark.parametrize("parts", [1, 2, 8])
def test_simplon_headers_of_all_details(parts):
    started = SimplonV1Parser().parse(simplon_header(parts), 0.0)
    assert isinstance(started, SeriesStarted)
    assert (started.series, started.shape) == ("3", None)
    assert started.count == (15 if parts > 1 else None)
    assert started.energy == (8e3 if parts > 1 else None)
    assert started.detector_pixel is None  # one of its sides is missing
    assert (started.bad_pixels is None) == (parts < 8)
    if parts == 8:
        assert np.argwhere(started.bad_pixels.counts()).tolist() == [[2, 5]]


@pytest.mark.parametrize(
    ("encoding", "data"),
    [("<", None), ("bs16-lz4<", pack_bslz4(COUNTS)), ("lz4<", pack_lz4(COUNTS)), (">", COUNTS.byteswap().tobytes())],
)
def test_simplon_images_of_all_encodings_and_with_an_appendix(encoding, data):
    parser = SimplonV1Parser()
    parser.parse(simplon_header(1), 0.0)
    frame = parser.parse([*simplon_image(3, 11, encoding, data), b"an appendix"], 5.0)
    assert isinstance(frame, Frame)
    assert (frame.series, frame.number, frame.arrival) == ("3", 11, 5.0)
    np.testing.assert_array_equal(frame.packed.counts(), COUNTS)


def test_simplon_messages_before_a_header_are_stray_and_others_damaged():
    parser = SimplonV1Parser()
    assert isinstance(parser.parse(simplon_image(2), 0.0), Stray)
    assert isinstance(parser.parse([coded(htype="dseries_end-1.0", series=2)], 0.0), Stray)
    assert isinstance(parser.parse([coded(htype="dconfig-1.0")], 0.0), Stray)
    parser.parse(simplon_header(1), 0.0)
    assert parser.parse([coded(htype="dseries_end-1.0", series=3)], 0.0) == SeriesEnded("3")
    broken = [
        [b"{"],
        [b"[" * 100_000],
        [b"[]"],
        [coded(htype=["dimage-1.0"])],
        [coded(htype="dheader-1.0", series="3")],
        simplon_image()[:2],
        simplon_image(frame=-1),
        simplon_image(frame=2**40),
        simplon_image(shape=[8]),
        simplon_image(shape=[2**20, 2**20]),
        simplon_image(type="object"),
        simplon_image(type="complex128"),
        simplon_image(encoding="bs32-lz4<"),
        simplon_image(encoding="jpeg"),
        simplon_image(encoding=None),
    ]
    for parts in broken:
        message = parser.parse(parts, 0.0)
        assert isinstance(message, Damaged), parts
        assert "\n" not in message.reason
        assert len(message.reason) < 300


def start(**more):
    header = {"type": "start", "series_id": 4, "channels": ["threshold_1", "threshold_2"], "image_dtype": "uint16"}
    header.update(image_size_x=8, image_size_y=6, number_of_images=15, incident_energy=8e3, **more)
    return cbor2.dumps(header)


def image(array, channel="threshold_1", **more):
    return cbor2.dumps({"type": "image", "series_id": 4, "image_id": 7, "data": {channel: array}, **more})


def compressed(numbers, kind="bslz4", size=2, tag=69):
    packed = cbor2.CBORTag(56500, [kind, size, numbers])
    return cbor2.CBORTag(40, [[6, 8], packed if tag is None else cbor2.CBORTag(tag, packed)])


@pytest.mark.parametrize("described", [False, True])
@pytest.mark.parametrize(
    "array", [typed_array(COUNTS), compressed(pack_bslz4(COUNTS)), compressed(pack_bslz4(COUNTS), tag=None)]
)
def test_stream2_arrays_of_all_forms(array, described):
    parser = Stream2Parser()
    first, second = start(pixel_mask={"threshold_1": typed_array(np.eye(6, 8, dtype=np.uint32))}), image(array)
    if described:  # tag 55799 in front, around which cbor2 returns values that cannot be changed
        first, second = b"\xd9\xd9\xf7" + first, b"\xd9\xd9\xf7" + second
    started = parser.parse(first, 0.0)
    assert isinstance(started, SeriesStarted)
    assert (started.series, started.count, started.shape, started.dtype) == ("4", 15, (6, 8), np.uint16)
    np.testing.assert_array_equal(started.bad_pixels.counts(), np.eye(6, 8))
    frame = parser.parse(second, 2.0)
    assert isinstance(frame, Frame)
    assert (frame.series, frame.number) == ("4", 7)
    np.testing.assert_array_equal(frame.packed.counts(), COUNTS)


def test_stream2_channels_are_chosen_by_name():
    parser = Stream2Parser("threshold_2")
    parser.parse(start(), 0.0)
    both = {"threshold_1": typed_array(COUNTS), "threshold_2": typed_array(COUNTS + 1)}
    message = cbor2.dumps({"type": "image", "series_id": 4, "image_id": 7, "data": both})
    np.testing.assert_array_equal(parser.parse(message, 0.0).packed.counts(), COUNTS + 1)
    with raises("acquisition.failed", "threshold_1, threshold_2", "threshold_3"):
        Stream2Parser("threshold_3").parse(start(), 0.0)


def test_stream2_messages_that_are_stray_or_damaged():
    parser = Stream2Parser()
    assert isinstance(parser.parse(image(typed_array(COUNTS)), 0.0), Stray)
    assert isinstance(parser.parse(cbor2.dumps({"type": "end", "series_id": 3}), 0.0), Stray)
    parser.parse(start(), 0.0)
    assert parser.parse(cbor2.dumps({"type": "end", "series_id": 4}), 0.0) == SeriesEnded("4")
    broken = [
        b"",
        b"\xff",
        b"\x9b" + b"\xff" * 8,  # a list of 2**64 - 1 items
        b"\x81" * 1000,  # a thousand lists in each other
        cbor2.dumps([1, 2]),
        cbor2.dumps({"type": "image"}),
        cbor2.dumps({"type": "else", "series_id": 4}),
        start(channels=[]),
        start(image_dtype="float16"),
        image(True),  # what a hook with another signature made of it
        image(COUNTS.tolist()),
        image(typed_array(COUNTS.astype(np.uint32))),
        image(typed_array(COUNTS[0])),
        image(compressed(b"", "zip")),
        image(compressed(b"", "bslz4", 4)),
        image(typed_array(COUNTS), channel="other"),
        image(cbor2.CBORTag(40, [[2**20, 2**20], cbor2.CBORTag(69, b"")])),
        image(typed_array(COUNTS), image_id=-3),
    ]
    for octets in broken:
        message = parser.parse(octets, 0.0)
        assert isinstance(message, Damaged), octets
        assert "\n" not in message.reason


def panda_stream(*frames, end=b"END 5 Ok\n"):
    octets = [b"BIN " + struct.pack("<I", 8 + len(frame)) + frame for frame in frames]
    return b"OK\n" + HEADER.encode() + b"".join(octets) + end


@pytest.mark.parametrize("piece", [1, 7, 10_000])
def test_panda_in_pieces_of_any_size(piece):
    samples = np.column_stack([[3, 4, 5, 9, 10], np.arange(5) * 2.0, np.arange(5) * 3.0])
    stream = panda_stream(samples[:2].tobytes(), b"", samples[2:].tobytes()) * 2
    stream = stream.replace(b"Ok\nOK\n", b"Ok\n")  # the second experiment on the same connection
    for options, firsts in (({}, [0, 2]), ({"number": "COUNTER1.OUT.Value"}, [3, 5, 9])):
        parser = PandaParser({"y": "INENC1.VAL", "x": "INENC2.VAL.Mean", **options})
        found = [one for at in range(0, len(stream), piece) for one in parser.parse(stream[at : at + piece])]
        placed = [one for one in found if isinstance(one, MeasuredPositions)]
        assert [one.first for one in placed] == firsts * 2
        values = np.concatenate([one.values for one in placed[: len(firsts)]])
        np.testing.assert_allclose(values, samples[:, 1:] * 1e-6)
        assert [one for one in found if isinstance(one, SeriesEnded)] == [SeriesEnded(expected=5)] * 2


def test_panda_streams_that_cannot_be_read_end_with_a_sentence():
    whole = panda_stream(bytes(24))
    options = {"y": "INENC1.VAL", "x": "INENC2.VAL"}
    broken = [
        b"ERR\n",
        whole.replace(b"BIN ", b"BON "),
        whole.replace(struct.pack("<I", 32), struct.pack("<I", 33)),
        whole.replace(struct.pack("<I", 32), struct.pack("<I", 2**32 - 1)),
        whole.replace(b'sample_bytes="24"', b'sample_bytes="20"'),
        whole.replace(b'type="double"', b'type="object"'),
        whole.replace(b"</fields>", b"</other>"),
        whole.replace(b"<header>", b'<header><!DOCTYPE a [<!ENTITY b "c">]>', 1).replace(
            b"<header><!", b"<header>\n<!"
        ),
        whole.replace(b"END 5", b"END x"),
        b"OK\n<header>\n" + b"x" * 2**21 + b"\n",
    ]
    for stream in broken:
        with raises("acquisition.damaged-message"):
            PandaParser(options).parse(stream)
    with raises("acquisition.no-positions", "INENC1.VAL.Mean", "INENC9.VAL"):
        PandaParser({**options, "y": "INENC9.VAL"}).parse(whole)
    ended = PandaParser(options).parse(panda_stream(bytes(24), end=b"END 1 Data overrun\n"))[-1]
    assert ended == SeriesEnded(expected=1, reason="PandA ended with: Data overrun")


def test_json_positions():
    found = read_json(b'{"first": 12, "positions": [[1, 2], [null, 3], [1e400, 4]]}')
    assert isinstance(found, MeasuredPositions)
    assert found.first == 12
    np.testing.assert_array_equal(found.values, [[1, 2], [np.nan, 3], [np.inf, 4]])
    one = read_json(b'{"number": 3, "y": 1.5, "x": 2}')
    assert (one.first, one.values.tolist()) == (3, [[1.5, 2.0]])
    assert read_json(b'{"end": true}') == SeriesEnded()
    for octets in (
        b"",
        b"[1]",
        b"{}",
        b'{"first": 0}',
        b'{"first": true, "positions": []}',
        b'{"number": -1, "y": 0, "x": 0}',
    ):
        assert isinstance(read_json(octets), Damaged), octets
    for rows in ("[[1]]", "[1, 2]", '[["a", 2]]', "[[true, 2]]", '{"a": 1}'):
        assert isinstance(read_json(f'{{"first": 0, "positions": {rows}}}'.encode()), Damaged), rows
    assert isinstance(read_json(b'{"first": 0, "positions": ' + b"[" * 100_000), Damaged)


def ntndarray(unique, counts=COUNTS, codec="", octets=None, kind=6, sides=None):
    value = counts.reshape(-1) if octets is None else np.frombuffer(octets, np.uint8)
    return SimpleNamespace(
        dimension=[SimpleNamespace(size=side) for side in sides or counts.shape[::-1]],
        uniqueId=unique,
        codec=SimpleNamespace(name=codec, parameters=kind),
        value=value,
        compressedSize=value.nbytes,
    )


def test_ntndarrays_count_from_the_first_and_show_gaps():
    parser = NtndarrayParser()
    assert isinstance(parser.parse(ntndarray(77), 0.0)[0], Stray)  # the value from before
    started, frame = parser.parse(ntndarray(41), 1.0)
    assert (started.shape, started.dtype, frame.number) == ((6, 8), np.uint16, 0)
    gap, frame = parser.parse(ntndarray(45, octets=pack_lz4(COUNTS), codec="lz4"), 2.0)
    assert (gap, frame.number) == (Gap(1, 3), 4)
    np.testing.assert_array_equal(frame.packed.counts(), COUNTS)
    (late,) = parser.parse(ntndarray(43, sides=(1, 8, 6), octets=pack_bslz4(COUNTS)[12:], codec="bslz4"), 3.0)
    assert late.number == 2
    np.testing.assert_array_equal(late.packed.counts(), COUNTS)
    parser.parse(ntndarray(5000), 4.0)
    assert isinstance(parser.parse(ntndarray(41), 5.0)[0], SeriesStarted)  # the counter was set back
    for broken in (
        ntndarray(-1),
        ntndarray(1, codec="jpeg"),
        ntndarray(1, sides=(8,)),
        ntndarray(1, codec="lz4", kind=99),
    ):
        assert isinstance(parser.parse(broken, 0.0)[0], Damaged)
    assert isinstance(parser.parse(SimpleNamespace(), 0.0)[0], Damaged)
    numbered = NtndarrayParser(first=10)
    numbered.parse(ntndarray(9), 0.0)
    assert numbered.parse(ntndarray(12), 0.0)[-1].number == 2
