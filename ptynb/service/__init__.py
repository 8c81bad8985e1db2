"""`ptynb serve`: an HTTP API to a queue of runs, its workers, and folders whose new scans are submitted.

A request goes through `http_api` and `submissions` (what a run file may name) to `job_queue`; a `job_worker` takes it
from there and starts `ptynb run` as a `guarded_process`. `service_process` starts all of them.
"""

from __future__ import annotations

import importlib.util

from ptynb.exceptions import ServiceError

PACKAGES = ("fastapi", "uvicorn", "sqlalchemy")


def require_packages(*names: str) -> None:
    """Raise ServiceError if a package of the extra `serve` is missing: one of these, or any."""
    missing = [name for name in names or PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise ServiceError(
            f"The service needs {' and '.join(missing)}, which is not installed: pip install 'ptynb[serve]'.",
            code="package.not-installed",
        )
