"""The site file: what a facility chose for all users of a machine, as TOML.

It is the file that the environment variable PTYNB_SITE names, else /etc/ptynb/site.toml (on Windows and macOS in the
folder of the system for settings), else there is none. Each value can be replaced by a variable, such as
PTYNB_SITE_SERVE__DATABASE for `database` below `[serve]`, which keeps a password out of the file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict
from pydantic_settings import SettingsError as VariableError

from ptynb.exceptions import InvalidValueError, SettingsError
from ptynb.settings.base_models import SettingsModel
from ptynb.settings.cluster_options import ClusterSection, SlurmName
from ptynb.site_values import expanded_folder, site_path, site_values

PREFIX = "PTYNB_SITE_"
"""Beginning of the environment variables that replace values of the file."""


def _folder(path: Path) -> Path:
    return expanded_folder(str(path), "it")


def _interface(name: str) -> str:
    if not name or name.startswith("-") or len(name) > 64 or not name.isprintable() or set(name) & set(" ,'\"/"):
        raise InvalidValueError(
            "expected the name of a network interface, such as 'ib0'", code="settings.invalid-value"
        )
    return name


Folder = Annotated[Path, AfterValidator(_folder)]
Number = Annotated[int, Field(ge=1, le=10**6)]


class SiteCluster(SettingsModel):
    """Defaults of cluster options that a user did not give."""

    account: SlurmName | None = Field(default=None, description="Account or project of jobs")
    queue: SlurmName | None = Field(default=None, description="Queue of jobs; of Slurm: the partition")
    interface: Annotated[str, AfterValidator(_interface)] | None = Field(
        default=None, description="Network interface of this machine to which engines on other hosts connect"
    )


class SiteFolders(SettingsModel):
    """Folders of a user; `~` and variables such as `$USER` are replaced."""

    caches: Folder | None = Field(
        default=None,
        description="Folder of all caches: compiled code of numba, Triton and torch, fonts of matplotlib, and "
        "checkpoints of notebooks; the variable PTYNB_CACHE comes first",
    )


class SiteLimits(SettingsModel):
    """Limits that `ptynb serve` enforces; whoever runs `ptynb run` has those of the scheduler or machine."""

    jobs_queued: Number | None = Field(default=None, description="Most waiting jobs of a user; none: no limit")
    jobs_running: Number | None = Field(default=None, description="Most running jobs of a user; none: no limit")
    engines: Number | None = Field(default=None, description="Most engines of a job; none: no limit")
    hours: Annotated[float, Field(gt=0, le=10_000, allow_inf_nan=False)] | None = Field(
        default=None, description="Longest time of an attempt of a job [h]; none: no limit"
    )


class WatchedFolder(SettingsModel):
    """A folder in which each new scan is reconstructed by a run file."""

    folder: Folder = Field(description="Folder in which scans appear")
    run: Folder = Field(
        description="Run file that is the template of their runs; its scan is the new one, and other paths are "
        "relative to its folder"
    )
    pattern: str = Field(default="*", min_length=1, description="Names of the scans, such as '*.nxs'")
    user: str = Field(default="watcher", pattern=r"^[a-z0-9][a-z0-9_.-]{0,63}$", description="User who has the jobs")


class SiteService(SettingsModel):
    """How `ptynb serve` runs."""

    host: str = Field(default="127.0.0.1", min_length=1, description="Address on which it listens")
    port: int = Field(default=8470, ge=1, le=65535, description="Port on which it listens")
    folder: Folder | None = Field(
        default=None, description="Folder of jobs and results; none: given on the command line"
    )
    database: str | None = Field(
        default=None,
        min_length=1,
        description="URL of the database, such as postgresql://host/ptynb; none: SQLite in the folder",
    )
    workers: int = Field(default=1, ge=0, le=4096, description="Number of workers that it starts on its machine")
    data: tuple[Folder, ...] = Field(default=(), description="Folders from which scans may be read")
    trust: bool = Field(
        default=False,
        description="Whether run files of users may call functions, run programs and connect to other machines",
    )
    watch: tuple[WatchedFolder, ...] = Field(default=(), description="Folders whose new scans are reconstructed")


class Site(SettingsModel, BaseSettings):
    """Values of the site file; `site` reads them."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_nested_delimiter="__")

    cluster: SiteCluster = Field(default=SiteCluster(), description="Defaults of cluster options")
    folders: SiteFolders = Field(default=SiteFolders(), description="Folders")
    limits: SiteLimits = Field(default=SiteLimits(), description="Limits of jobs of ptynb serve")
    serve: SiteService = Field(default=SiteService(), description="The service of ptynb serve")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Give variables precedence over the file."""
        return env_settings, init_settings

    def placed(self, folder: Path) -> Self:
        """Return it with paths relative to `folder`, that of the file."""
        service, caches = self.serve, self.folders.caches
        watch = tuple(
            one.model_copy(update={"folder": folder / one.folder, "run": folder / one.run}) for one in service.watch
        )
        paths: dict[str, Any] = {"data": tuple(folder / one for one in service.data), "watch": watch}
        paths["folder"] = None if service.folder is None else folder / service.folder
        kept = self.folders.model_copy(update={"caches": None if caches is None else folder / caches})
        return self.model_copy(update={"serve": service.model_copy(update=paths), "folders": kept})


def with_site_defaults(options: ClusterSection) -> ClusterSection:
    """Return options of a cluster with account and queue of the site file where none was given."""
    names = {"account": "account", "queue": "queue", "partition": "queue"}
    if options.kind == "htcondor":  # it has no queues
        del names["queue"]
    missing = [name for name in names if name in type(options).model_fields and not getattr(options, name)]
    defaults = site().cluster if missing else SiteCluster()
    return options.model_copy(update={name: getattr(defaults, names[name]) for name in missing})


def site() -> Site:
    """Return the values of the site file, and the defaults of what is not in it.

    Returns
    -------
    Site
        The values; paths are absolute.

    Raises
    ------
    FileError
        If the file that PTYNB_SITE names does not exist, or cannot be read.
    SettingsError
        If a key or value is not valid, with the name of the file, and line or key.
    """
    path, values = site_path(), site_values()
    try:
        return Site(**values).placed(Path.cwd() if path is None else path.parent.absolute())
    except VariableError as error:
        raise SettingsError(
            f"A variable {PREFIX}… is not valid: {error}; expected text, or JSON for a section or list.",
            code="settings.invalid-value",
        ) from None
    except SettingsError as error:
        variables = {f"{PREFIX}{'__'.join(map(str, problem['loc']))}".upper() for problem in error.problems}
        source = ", ".join(sorted(variables & {name.upper() for name in os.environ})) or f"The site file {path}"
        raise SettingsError(f"{source}: {error}", error.problems, code=error.code, fields=error.fields) from None
