"""Export of a result to a Tiled server (https://blueskyproject.io/tiled): a container of arrays, a table and metadata.

    object, probe, positions, parameters/*    arrays, with names of their axes, units and pixel size
    epochs                                    table: number, loss, seconds
    metadata                                  settings, changes, scan, software, machines, as in .npz; R-factor

The address is that of the new container: https://SERVER/FOLDER/NAME, or https://SERVER/api/v1/metadata/FOLDER/NAME as
Tiled's own clients show it. The key is read from TILED_API_KEY by the client, and kept nowhere. Beyond this machine
only https is used, and its certificate is verified.
"""

from __future__ import annotations

import math
from typing import Any
from urllib.parse import unquote, urlsplit

from ptynb.data.result import Result
from ptynb.distributed.this_machine import is_here
from ptynb.exceptions import FileError, InvalidValueError
from ptynb.io.export.npz_export import record_of

API = "/metadata/"


def is_address(path: object) -> bool:
    """Return whether the target of an export is a server."""
    return isinstance(path, str) and path.startswith(("http://", "https://"))


def write_tiled(result: Result, address: str) -> str:
    """Write a result to a new container of a Tiled server, and return its address.

    Raise InvalidValueError for an address that is not secure or names no container, FileError if the client is not
    installed ("package.not-installed"), the container exists ("export.exists") or the server refuses
    ("export.server-failed"). After an error no part of the container remains, if the server can still be reached.
    """
    server, names = _parsed(address)
    try:
        import httpx
        from tiled.client import from_uri
    except ImportError:
        raise FileError(
            "A Tiled server is written to by its client, which is not installed: pip install 'ptynb[tiled]'.",
            code="package.not-installed",
        ) from None
    *folder, name = names
    try:
        parent = from_uri(server, remember_me=False)
        for step, one in enumerate(folder):
            if one not in parent:
                raise FileError(
                    f"{server} has no container {'/'.join(folder[: step + 1])}; make it first, or write to another.",
                    code="file.not-found",
                )
            parent = parent[one]
        if name in parent:
            raise FileError(
                f"{address} exists, and what is on a server is not replaced; choose another name.", code="export.exists"
            )
        container = parent.create_container(name, metadata=_metadata(result))
        try:
            _fill(container, result)
        except BaseException:
            container.delete(recursive=True, external_only=False)
            raise
        return str(container.uri)
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        remedy = "set TILED_API_KEY to a key that may write there" if status in (401, 403) else "see the server's log"
        raise FileError(
            f"{server} refused the result with status {status}; {remedy}.", code="export.server-failed"
        ) from None
    except httpx.HTTPError as error:
        raise FileError(
            f"{server} cannot be reached, or has ended the connection ({error}); check the address, and whether the "
            "server runs.",
            code="export.server-failed",
        ) from None


def _parsed(address: str) -> tuple[str, list[str]]:
    """Return the address of the server, and the names of containers down to the new one."""
    try:
        parts = urlsplit(address)
        _ = parts.port  # which is read, and checked, only here
    except ValueError:  # whose message may have what was meant as a key
        raise InvalidValueError(
            "The address has no valid server, or no port from 0 to 65535; expected https://SERVER:PORT/FOLDER/NAME.",
            code="argument.invalid-value",
        ) from None
    problem = ""
    if parts.username is not None or parts.query or parts.fragment:
        problem = "more than a server and a path; give the key in the environment variable TILED_API_KEY"
    elif parts.scheme == "http" and not is_here(parts.hostname or ""):
        problem = "no encryption, and a server that is not on this machine; use https"
    root, api, path = parts.path.partition(API)
    server = f"{parts.scheme}://{parts.netloc}"
    names = [unquote(one) for one in (path if api else parts.path).split("/") if one]
    if not problem and not (parts.hostname and names):
        problem = "no name of a container; expected https://SERVER/FOLDER/NAME"
    if problem:
        # without what may be a key
        raise InvalidValueError(f"The address of {parts.hostname} has {problem}.", code="argument.invalid-value")
    return server + (root if api else ""), names


def _metadata(result: Result) -> dict[str, Any]:
    size = None if result.pixel_size is None else [*result.pixel_size]
    found = {**record_of(result), "pixel_size": size, "pixel_size_unit": "m", "origin": [*result.origin]}
    return {**found, "r_factor": None if math.isnan(result.r_factor) else result.r_factor}


def _fill(container: Any, result: Result) -> None:
    layers = {2: [], 3: ["slice"], 4: ["mode", "slice"]}[result.object.ndim]
    arrays = {
        "object": (result.object, [*layers, "y", "x"], ""),
        "probe": (result.probe, ["mode", "y", "x"], "sqrt(counts)"),
        "positions": (result.positions, ["pattern", "yx"], "object pixel"),
    }
    for key, (values, dims, units) in arrays.items():
        container.write_array(values, key=key, dims=dims, metadata={"units": units})
    if result.epochs:
        epochs = {name: [getattr(one, name) for one in result.epochs] for name in ("number", "loss", "seconds")}
        container.write_table(epochs, key="epochs")
    parameters = container.create_container("parameters")
    for name, values in result.parameters.items():
        parameters.write_array(values, key=name.replace("/", "."))
