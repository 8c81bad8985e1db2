"""Query of a host before engines are started there: this file is sent to its Python by ssh.

Therefore it needs Python only, and reports what is missing. It prints one line of JSON behind a mark, since a login
shell may print other text before.
"""

import importlib.metadata
import importlib.util
import json
import os
import platform
import runpy
import sys

MARK = "ptynb host: "
PACKAGES = ("ptynb", "torch", "ipyparallel")


def version(package):  # type: ignore[no-untyped-def]
    """Return the version of an installed package, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def gpus():  # type: ignore[no-untyped-def]
    """Return the GPUs that engines may use here, as ptynb finds them, and the error message if that fails."""
    try:
        from ptynb.cluster.gpus import find_gpus
    except ImportError:
        return [], ""
    try:
        return [vars(gpu) for gpu in find_gpus()], ""
    except RuntimeError as error:
        return [], str(error)


def numa_nodes():  # type: ignore[no-untyped-def]
    """Return the cores of each NUMA node, as ptynb finds them."""
    try:
        from ptynb.cluster import cpu_cores
    except ImportError:
        return []
    return cpu_cores.numa_nodes()


def has_nccl():  # type: ignore[no-untyped-def]
    """Return whether torch here has NCCL, as its builds for Linux and CUDA do; without the seconds of importing it."""
    found = importlib.util.find_spec("torch")
    if sys.platform != "linux" or found is None or not found.submodule_search_locations:
        return False
    version = os.path.join(found.submodule_search_locations[0], "version.py")
    return os.path.exists(version) and runpy.run_path(version).get("cuda") is not None


def main():  # type: ignore[no-untyped-def]
    """Print the description of this host."""
    affinity = getattr(os, "sched_getaffinity", None)
    way = os.environ.get("SSH_CONNECTION", "").split()
    listed, problem = gpus()
    found = {
        "host": platform.node(),
        "address": way[2] if len(way) == 4 else None,
        "python": "%d.%d" % sys.version_info[:2],
        "cores": len(affinity(0)) if affinity else os.cpu_count() or 1,
        "numa_nodes": numa_nodes(),
        "gpus": listed,
        "gpu_problem": problem,
        "platform": sys.platform,
        "nccl": has_nccl(),
        **{package: version(package) for package in PACKAGES},
    }
    print(MARK + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
