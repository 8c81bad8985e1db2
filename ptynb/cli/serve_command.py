"""`ptynb serve`, `ptynb worker` and `ptynb submit`: runs by HTTP, a queue and its workers."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptynb.exceptions import ServiceError

if TYPE_CHECKING:
    from ptynb.settings.site_file import Site

TOKEN = "PTYNB_TOKEN"
"""Environment variable of the token by which jobs are submitted."""
SERVER = "http://127.0.0.1:8470"
SECONDS = 60.0


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands."""
    serve = commands.add_parser("serve", help="serve runs by HTTP, with a queue, workers and watched folders")
    _add_place(serve)
    serve.add_argument("--host", metavar="ADDRESS", help="address to listen on (default: 127.0.0.1)")
    serve.add_argument("--port", type=int, metavar="N", help="port to listen on (default: 8470; 0: any)")
    serve.add_argument("--workers", type=int, metavar="N", help="number of workers on this machine (default: 1)")
    serve.add_argument(
        "--data", type=Path, action="append", metavar="FOLDER", help="folder from which scans may be read; repeatable"
    )
    serve.add_argument(
        "--watch",
        type=Path,
        nargs=2,
        action="append",
        metavar=("FOLDER", "FILE"),
        help="folder whose new scans are submitted, and the run file that is their template; repeatable",
    )
    serve.add_argument("--tls-certificate", type=Path, metavar="FILE", help="certificate (PEM) of this machine")
    serve.add_argument("--tls-key", type=Path, metavar="FILE", help="its key (PEM)")
    serve.add_argument(
        "--behind-proxy", action="store_true", help="listen on other interfaces unencrypted: a proxy encrypts"
    )
    users = serve.add_mutually_exclusive_group()
    users.add_argument("--add-token", metavar="USER", help="print a new token of a user, and end")
    users.add_argument("--remove-token", metavar="USER", help="make the token of a user invalid, and end")
    serve.add_argument("--admin", action="store_true", help="with --add-token: the user sees the jobs of all")
    serve.set_defaults(run=_serve)

    worker = commands.add_parser("worker", help="run jobs of a service, on any host with its folder and database")
    _add_place(worker)
    worker.set_defaults(run=_worker)

    submit = commands.add_parser("submit", help="submit a run file to a service")
    submit.add_argument("file", type=Path, metavar="FILE", help="run file; its paths are those of the service")
    submit.add_argument("--server", default=SERVER, metavar="URL", help=f"address of the service (default: {SERVER})")
    submit.add_argument("--id", metavar="ID", help="name of the job (default: a random one)")
    submit.add_argument("--priority", type=int, default=0, metavar="N", help="priority (default: 0)")
    submit.add_argument("--certificate", type=Path, metavar="FILE", help="certificate of the service, if self-signed")
    submit.add_argument(
        "--unencrypted", action="store_true", help="send the token to another host by http: the network is trusted"
    )
    submit.set_defaults(run=_submit)


def _add_place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--folder", type=Path, metavar="FOLDER", help="folder of jobs and results")
    parser.add_argument(
        "--database", metavar="URL", help="database of the queue, as postgresql://host/ptynb (default: in FOLDER)"
    )
    parser.add_argument(
        "--lease", type=float, metavar="SECONDS", help="time without a worker's sign of life before its job is queued"
    )
    parser.add_argument(
        "--attempts", type=int, metavar="N", help="number of attempts of a job that is lost, or lacks resources"
    )


def _site(chosen: argparse.Namespace) -> tuple[Site, Path]:
    """Return the site file with the options of the command line, and the folder. Raises SettingsError, ServiceError."""
    from ptynb.service import require_packages
    from ptynb.settings.site_file import SiteService, site

    require_packages()
    found = site()
    names = ("host", "port", "folder", "database", "workers", "data")
    given = {name: getattr(chosen, name, None) for name in names}
    any_port = given.pop("port") if given["port"] == 0 else None
    values = {name: value for name, value in given.items() if value is not None}
    if chosen_data := values.get("data"):
        values["data"] = [one.absolute() for one in chosen_data]
    if watched := getattr(chosen, "watch", None):
        values["watch"] = [{"folder": folder.absolute(), "run": run.absolute()} for folder, run in watched]
    service = SiteService(**{**found.serve.model_dump(), **values})
    if any_port is not None:
        service = service.model_copy(update={"port": 0})
    if service.folder is None:
        raise ServiceError(
            "The folder of jobs and results is missing; give --folder FOLDER, or folder of [serve] in the site file.",
            code="argument.missing",
        )
    return found.model_copy(update={"serve": service}), service.folder


def _options(chosen: argparse.Namespace) -> dict[str, Any]:
    for name, least in (("lease", 1.0), ("attempts", 1)):
        value = getattr(chosen, name)
        if value is not None and not least <= value <= 10**6:
            raise ServiceError(f"--{name} is {value}; expected {least:g} or more.", code="argument.invalid-value")
    return {name: value for name in ("lease", "attempts") if (value := getattr(chosen, name)) is not None}


def _serve(chosen: argparse.Namespace) -> int:
    site, folder = _site(chosen)
    from ptynb.service.service_process import serve, worker_options

    options = worker_options(site, folder, **_options(chosen))
    if chosen.add_token or chosen.remove_token:
        queue = options.queue()
        try:
            if chosen.add_token:
                print(queue.add_user(chosen.add_token, admin=chosen.admin))
            else:
                queue.remove_user(chosen.remove_token)
        finally:
            queue.close()
        return 0
    if (chosen.tls_certificate is None) != (chosen.tls_key is None):
        raise ServiceError("One of --tls-certificate and --tls-key is missing; give both.", code="argument.missing")
    _log()
    encryption = {"certificate": chosen.tls_certificate, "key": chosen.tls_key}
    ready = lambda url: print(f"Serving on {url}; Ctrl-C ends it.", flush=True)  # noqa: E731
    serve(site, options, ready, behind_proxy=chosen.behind_proxy, **encryption)
    return 0


def _worker(chosen: argparse.Namespace) -> int:
    site, folder = _site(chosen)
    from ptynb.service.job_worker import work
    from ptynb.service.service_process import worker_options

    _log()
    work(worker_options(site, folder, **_options(chosen)))
    return 0


def _log() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stderr)


def _submit(chosen: argparse.Namespace) -> int:
    import http.client
    import ssl
    import urllib.error
    import urllib.request

    token = os.environ.get(TOKEN)
    if not token:
        raise ServiceError(
            f"{TOKEN} is not set; expected the token that ptynb serve --add-token USER printed.",
            code="service.no-token",
        )
    body = {"run": chosen.file.read_text(encoding="utf-8"), "id": chosen.id, "priority": chosen.priority}
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    _check_server(chosen.server, chosen.unencrypted)
    request = urllib.request.Request(f"{chosen.server.rstrip('/')}/jobs", json.dumps(body).encode(), headers)

    class NotRedirected(urllib.request.HTTPRedirectHandler):
        """Follows no redirection, which would give the token to another server."""

        def redirect_request(self, *_: Any) -> None:
            """Return no request."""

    encrypted = urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=chosen.certificate))
    opener = urllib.request.build_opener(NotRedirected, encrypted)
    try:
        with opener.open(request, timeout=SECONDS) as answer:
            name = json.load(answer)["id"]
    except urllib.error.HTTPError as error:
        with error:
            try:
                told = json.load(error)
                code, message = str(told["code"]), str(told["message"])
            except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
                code, message = "service.unavailable", f"{chosen.server} answered {error.code} {error.reason}."
        raise ServiceError(message, code=code) from None
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else str(error) or type(error).__name__
        raise ServiceError(
            f"{chosen.server} cannot be reached ({reason}); check the address, and that ptynb serve runs there.",
            code="service.unavailable",
        ) from None
    except (ValueError, KeyError, TypeError):
        raise ServiceError(
            f"{chosen.server} answered what is no job; check that it is the address of ptynb serve.",
            code="service.unavailable",
        ) from None
    print(name)
    return 0


def _check_server(address: str, unencrypted: bool) -> None:
    """Raise ServiceError for what is no address of a server, or one to which the token would go in the clear."""
    from urllib.parse import urlsplit

    from ptynb.distributed.this_machine import is_here

    try:
        parts = urlsplit(address)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ServiceError(
            f"The server is {address}; expected its address, such as {SERVER}.", code="argument.invalid-value"
        )
    if parts.scheme == "http" and not is_here(parts.hostname or "") and not unencrypted:
        raise ServiceError(
            f"The server is {address}, to which the token would go in the clear; use https, or --unencrypted if you "
            "trust the network between.",
            code="service.not-allowed",
        )
