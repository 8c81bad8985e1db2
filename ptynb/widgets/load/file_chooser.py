"""Choosing a file with the mouse: folders, files that may be scans, and those that were loaded last."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ptynb.io.load import SUFFIXES
from ptynb.text import Order, natural_order
from ptynb.widgets import elements
from ptynb.widgets.load.file_list import FileList, Item
from ptynb.widgets.load.recent_files import recent_files
from ptynb.widgets.shared_widgets import complaint, free, put

MOST = 2000
"""Maximum number of items that are shown of a folder."""
SCANS, ALL = "possible scans", "all files"


class FileChooser(elements.VBox):
    """The list of a folder; `chosen` is called with the path of a file, and whether it was clicked twice.

    folder: the folder that is shown.
    """

    def __init__(self, chosen: Callable[[Path, bool], None], folder: Path | None = None) -> None:
        self._chosen, self.folder = chosen, (folder or Path.cwd()).absolute()
        self.up, self.home, self.again = (
            self._button(icon, tooltip, action)
            for icon, tooltip, action in (
                ("arrow-up", "Folder above", self._go_up),
                ("house", "Folder of the notebook", lambda: self.show(Path.cwd())),
                ("refresh-cw", "Reads the folder again", lambda: self.show(self.folder)),
            )
        )
        flexible = {"flex": "1 1 100px", "width": "auto", "min_width": "0"}
        self.place = elements.Text(
            description="Folder", tooltip="Type another folder", continuous_update=False,
            style={"description_width": "44px"}, layout=elements.Layout(**flexible),
        )  # fmt: skip
        self.place.observe(self._typed, "value")
        self.filter = elements.Dropdown(
            options=[SCANS, ALL], description="Show", tooltip="Which files are listed",
            style={"description_width": "36px"}, layout=elements.Layout(width="170px"),
        )  # fmt: skip
        self.filter.observe(lambda _: self.show(self.folder), "value")
        self.recent = elements.Dropdown(
            description="Recent", tooltip="Files that were loaded last",
            style={"description_width": "46px"}, layout=elements.Layout(**flexible),
        )  # fmt: skip
        self.recent.observe(self._again, "value")
        self.list = FileList(self._open, self._go_up)
        self._message = elements.HTML()
        bar = elements.HBox([self.up, self.home, self.again, self.place], layout=free())
        below = elements.HBox([self.filter, self.recent], layout=free())
        super().__init__([bar, self.list, below, self._message], layout=free())
        self.refresh()

    def show(self, folder: Path) -> None:
        """Show another folder; one that cannot be read is told, and the last one stays."""
        try:
            items = self._items(folder)
        except OSError as error:
            put(self._message, complaint(f"{folder} cannot be read: {error.strerror}. Choose another folder."))
            return
        self.folder = folder
        more = len(items) - MOST
        put(self._message, f"and {more} more; type the name of one in the field File." if more > 0 else "")
        with self.list.hold_sync():
            self.list.label = f"Files in {folder}"
            self.list.items = items[:MOST]
        self.place.value = str(folder)
        self.up.disabled = folder == folder.parent

    def mark(self, path: Path | None) -> None:
        """Mark a file as the current one."""
        self.list.current = "" if path is None else path.name

    def refresh(self) -> None:
        """Read the folder and the files that were loaded last again."""
        options = [("loaded last ...", ""), *((f"{path.name}  ({path.parent})", str(path)) for path in recent_files())]
        if [*self.recent.options] != options:
            self.recent.options = options
            self.recent.value = ""
        self.recent.disabled = len(options) == 1
        self.show(self.folder)

    def _items(self, folder: Path) -> list[Item]:
        folders, files = list[Item](), list[Item]()
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                kind = _kind(entry)
                if kind == "folder":
                    folders.append((entry.name, kind, entry.name, "", ""))
                elif kind == "scan" or self.filter.value == ALL:
                    files.append((entry.name, kind, entry.name, *_size_and_date(entry)))
        return [*sorted(folders, key=_name), *sorted(files, key=_name)]

    def _open(self, name: str, twice: bool) -> None:
        path = self.folder / name
        kinds = {item[0]: item[1] for item in self.list.items}
        if name not in kinds:  # clicked before the browser had the list of another folder
            return
        if kinds[name] == "folder":
            self.show(path)
            return
        self.mark(path)
        self._chosen(path, twice)

    def _go_up(self) -> None:
        self.show(self.folder.parent)

    def _typed(self, change: dict[str, Any]) -> None:
        folder = Path(change["new"].strip() or ".").expanduser().absolute()
        if folder != self.folder:
            self.show(folder)

    def _again(self, change: dict[str, Any]) -> None:
        if change["new"]:
            path = Path(change["new"])
            self.recent.value = ""
            self.show(path.parent)
            self.mark(path)
            self._chosen(path, False)

    def _button(self, icon: str, tooltip: str, action: Callable[[], None]) -> elements.Button:
        button = elements.Button(icon=icon, tooltip=tooltip, layout=elements.Layout(width="34px", padding="0"))
        button.on_click(lambda _: action())
        return button


def _kind(entry: os.DirEntry[str]) -> str:
    suffix = os.path.splitext(entry.name)[1].lower()
    try:
        if entry.is_dir() and suffix != ".zarr":
            return "folder"
    except OSError:  # a link that leads nowhere
        return "other"
    return "scan" if suffix in SUFFIXES else "other"


def _name(item: Item) -> Order:
    return natural_order(item[2].lower())


def _size_and_date(entry: os.DirEntry[str]) -> tuple[str, str]:
    try:
        found = entry.stat()
    except OSError:
        return "", ""
    date = time.strftime("%Y-%m-%d %H:%M", time.localtime(found.st_mtime))
    return ("" if entry.is_dir() else _bytes(found.st_size)), date


def _bytes(size: int) -> str:
    amount, unit = float(size), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 999.5 or unit == "TB":
            break
        amount /= 1000
    return f"{amount:.3g} {unit}"
