"""Emulators of Dectris' streams: Simplon version 1, and stream2."""

from __future__ import annotations

import json
import time
from abc import abstractmethod
from typing import Any, Literal

import cbor2
import numpy as np

from ptynb.acquisition.compression import pack_lz4
from ptynb.acquisition.emulators.playback import Player, Recording, Sending
from ptynb.acquisition.emulators.pushing import Pushing
from ptynb.acquisition.protocols.simplon_v2 import ARRAY, COMPRESSED, TYPED, typed_array
from ptynb.data.geometry import Geometry
from ptynb.settings.claimed_values import energy_of

SERIES = 8
"""Number of the series; that of the previous one is one less."""
GARBAGE = bytes(range(256)) * 4
CHANNEL = "threshold_1"

Detail = Literal["none", "basic", "all"]


class StreamPlayer(Player):
    """A series of a detector's stream, pushed by ZeroMQ."""

    def __init__(self, recording: Recording, scheme: str, host: str, port: int, series: int) -> None:
        self._recording, self._series = recording, series
        self._pushing = Pushing(host, port)
        self.address = f"{scheme}://{self._pushing.place}"

    def frame(self, step: Sending) -> None:
        if step.number < 0:
            self._pushing.send(GARBAGE)
        else:
            self._image(self._series, step)

    def stray(self, number: int) -> None:
        self._image(self._series - 1, Sending(number))

    def close(self) -> None:
        self._pushing.close()

    @abstractmethod
    def _image(self, series: int, step: Sending) -> None:
        """Send a pattern of a series."""


class SimplonPlayer(StreamPlayer):
    """A detector's Simplon stream, version 1. detail: how much its header says."""

    def __init__(
        self,
        recording: Recording,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        detail: Detail = "all",
        encoding: Literal["bslz4", "lz4", "none"] = "bslz4",
        series: int = SERIES,
    ) -> None:
        super().__init__(recording, "simplon", host, port, series)
        self._detail, self._encoding = detail, encoding

    def start(self) -> None:
        parts: list[Any] = [_json(htype="dheader-1.0", series=self._series, header_detail=self._detail)]
        if self._detail != "none":
            parts.append(_json(**self._config()))
        if self._detail == "all":
            y, x = self._recording.window
            mask = self._recording.scan.mask
            bad = np.zeros((y, x), np.uint32) if mask is None else (~mask).astype(np.uint32)
            parts += [_json(htype="dflatfield-1.0", shape=[x, y], type="float32"), np.ones((y, x), np.float32)]
            parts += [_json(htype="dpixelmask-1.0", shape=[x, y], type="uint32"), bad]
            parts += [_json(htype="dcountrate_table-1.0", shape=[2, 2], type="float32"), np.ones((2, 2), np.float32)]
        self._pushing.send(*parts)

    def end(self) -> None:
        self._pushing.send_last(_json(htype="dseries_end-1.0", series=self._series))

    def _image(self, series: int, step: Sending) -> None:
        recording, bits = self._recording, 8 * self._recording.dtype.itemsize
        y, x = recording.window
        if self._encoding == "bslz4":
            encoding, data = f"bs{bits}-lz4<", recording.packed(step.number, step.changed)
        elif self._encoding == "lz4":
            encoding, data = "lz4<", pack_lz4(recording.counts(step.number, step.changed))
        else:
            encoding, data = "<", recording.counts(step.number, step.changed).tobytes()
        self._pushing.send(
            _json(htype="dimage-1.0", series=series, frame=step.number, hash=""),
            _json(htype="dimage_d-1.0", shape=[x, y], type=recording.dtype.name, encoding=encoding, size=len(data)),
            data,
            _json(htype="dconfig-1.0", start_time=0, stop_time=0, real_time=0),
        )

    def _config(self) -> dict[str, Any]:
        config: dict[str, Any] = {"ntrigger": len(self._recording), "nimages": 1}
        geometry = self._recording.scan.geometry
        if isinstance(geometry, Geometry):
            config.update(photon_energy=energy_of(geometry.wavelength), detector_distance=geometry.distance)
            config.update(y_pixel_size=geometry.detector_pixel[0], x_pixel_size=geometry.detector_pixel[1])
        return config


class Stream2Player(StreamPlayer):
    """A detector's stream2."""

    def __init__(
        self,
        recording: Recording,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        compressed: bool = True,
        series: int = SERIES,
    ) -> None:
        super().__init__(recording, "stream2", host, port, series)
        self._compressed = compressed
        self._tag = next(tag for tag, kind in TYPED.items() if np.dtype(kind) == recording.dtype and tag != 68)

    def start(self) -> None:
        y, x = self._recording.window
        header: dict[str, Any] = {
            **self._named("start", self._series),
            "number_of_images": len(self._recording),
            "image_size_x": x,
            "image_size_y": y,
            "image_dtype": self._recording.dtype.name,
            "channels": [CHANNEL],
            "arm_date": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime()),
        }
        geometry, mask = self._recording.scan.geometry, self._recording.scan.mask
        if isinstance(geometry, Geometry):
            header.update(incident_energy=energy_of(geometry.wavelength), detector_distance=geometry.distance)
            header.update(pixel_size_y=geometry.detector_pixel[0], pixel_size_x=geometry.detector_pixel[1])
        if mask is not None:
            header["pixel_mask"] = {CHANNEL: typed_array((~mask).astype(np.uint32))}
        self._pushing.send(_coded(header))

    def end(self) -> None:
        self._pushing.send_last(_coded(self._named("end", self._series)))

    def _image(self, series: int, step: Sending) -> None:
        recording = self._recording
        if self._compressed:
            packed = ["bslz4", recording.dtype.itemsize, recording.packed(step.number, step.changed)]
            numbers = cbor2.CBORTag(self._tag, cbor2.CBORTag(COMPRESSED, packed))
            array = cbor2.CBORTag(ARRAY, [list(recording.window), numbers])
        else:
            array = typed_array(recording.counts(step.number, step.changed))
        image = {**self._named("image", series), "image_id": step.number, "data": {CHANNEL: array}}
        times = {"real_time": [1, 1000], "start_time": [0, 1000], "stop_time": [1, 1000]}
        self._pushing.send(_coded({**image, **times}))

    def _named(self, kind: str, series: int) -> dict[str, Any]:
        return {"type": kind, "series_id": series, "series_unique_id": f"emulated-{series}"}


def _coded(content: dict[str, Any]) -> bytes:
    # tag 55799 says that this is CBOR
    return cbor2.dumps(cbor2.CBORTag(55799, content))


def _json(**content: Any) -> bytes:
    return json.dumps(content).encode()
