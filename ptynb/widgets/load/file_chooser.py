"""Choosing a file with the mouse: folders, files that may be scans, and those that were loaded last."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import traitlets

from ptynb.io.load import suffixes
from ptynb.table import gigabytes
from ptynb.text import Order, natural_order
from ptynb.widgets.element_tree import Element, command, shown
from ptynb.widgets.load.recent_files import recent_files

MOST = 2000
"""Maximum number of items that are shown of a folder."""
Item = tuple[str, str, str, str]
"""Name, kind ("folder", "scan" or "other"), size and date."""


class FileChooser(Element):
    """The list of a folder; `chosen` is called with the path of a file, and whether it was clicked twice.

    folder: that is shown. items: see `Item`; more: how many there are beyond them. current: path of the file that is
    marked. recent: paths of files that were loaded last. message: why another folder cannot be shown. all_files:
    whether files are listed that are no scans.
    """

    component = "fileChooser"

    folder = shown(traitlets.Unicode(""))
    items: traitlets.List[Item] = shown(traitlets.List())
    more = shown(traitlets.Int(0))
    current = shown(traitlets.Unicode(""))
    recent: traitlets.List[str] = shown(traitlets.List())
    message = shown(traitlets.Unicode(""))
    all_files = traitlets.Bool(False).tag(sync=True)

    def __init__(self, chosen: Callable[[Path, bool], None], folder: Path | None = None) -> None:
        self._chosen = chosen
        super().__init__(folder=str((folder or Path.cwd()).absolute()))
        self.refresh()

    @command
    def show(self, folder: str = "") -> None:
        """Show another folder; one that cannot be read is told, and the last one stays. "": that of the notebook."""
        place = Path(folder.strip() or ".").expanduser().absolute()
        try:
            items = self._items(place)
        except OSError as error:
            self.message = f"{place} cannot be read: {error.strerror}. Choose another folder."
            return
        with self.hold_sync():
            self.folder, self.message = str(place), ""
            self.items, self.more = items[:MOST], max(len(items) - MOST, 0)

    @command
    def up(self) -> None:
        """Show the folder above."""
        self.show(str(Path(self.folder).parent))

    @command
    def refresh(self) -> None:
        """Read the folder and the files that were loaded last again."""
        self.recent = [str(path) for path in recent_files()]
        self.show(self.folder)

    @command
    def open(self, name: str, twice: bool = False) -> None:
        """Show a folder of the list, or choose a file."""
        kind = {item[0]: item[1] for item in self.items}.get(name)
        if kind == "folder":
            self.show(os.path.join(self.folder, name))
        elif kind is not None:  # None: it was clicked before the browser had the list of another folder
            self._choose(Path(self.folder, name), twice)

    @command
    def recall(self, path: str) -> None:
        """Choose a file that was loaded before."""
        self.show(str(Path(path).parent))
        self._choose(Path(path), False)

    def _choose(self, path: Path, twice: bool) -> None:
        self.current = str(path)
        self._chosen(path, twice)

    @traitlets.observe("all_files")
    def _list_others(self, _: object) -> None:
        self.show(self.folder)

    def _items(self, folder: Path) -> list[Item]:
        folders, files = list[Item](), list[Item]()
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                kind = _kind(entry)
                if kind == "folder":
                    folders.append((entry.name, kind, "", ""))
                elif kind == "scan" or self.all_files:
                    files.append((entry.name, kind, *_size_and_date(entry)))
        return [*sorted(folders, key=_name), *sorted(files, key=_name)]


def _kind(entry: os.DirEntry[str]) -> str:
    suffix = os.path.splitext(entry.name)[1].lower()
    try:
        if entry.is_dir() and suffix != ".zarr":
            return "folder"
    except OSError:  # a link that leads nowhere
        return "other"
    return "scan" if suffix in suffixes() else "other"


def _name(item: Item) -> Order:
    return natural_order(item[0].lower())


def _size_and_date(entry: os.DirEntry[str]) -> tuple[str, str]:
    try:
        found = entry.stat()
    except OSError:
        return "", ""
    date = time.strftime("%Y-%m-%d %H:%M", time.localtime(found.st_mtime))
    return ("" if entry.is_dir() else gigabytes(found.st_size)), date
