"""Tables for notebooks, terminals and text files; sizes and durations as text."""

from __future__ import annotations

import dataclasses
import html
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Table:
    """Rows of text cells with column heads, and an optional caption. left: columns that are aligned to the left."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""
    left: tuple[int, ...] = (0,)

    def text(self) -> str:
        """Return aligned columns of text."""
        widths = [max(len(cell) for cell in column) for column in zip(self.heads, *self.rows, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(width) if column in self.left else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in (self.heads, *self.rows)
        ]
        return "\n".join([*([self.caption] if self.caption else []), *lines])

    def html(self) -> str:
        """Return an HTML table with escaped cells."""
        head = "".join(
            f'<th style="{self._side(column)}">{html.escape(cell)}</th>' for column, cell in enumerate(self.heads)
        )
        rows = (
            "".join(f'<td style="{self._side(column)}">{html.escape(cell)}</td>' for column, cell in enumerate(row))
            for row in self.rows
        )
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        lines = self.caption.splitlines()
        caption = "".join(f'<p style="margin:4px 0;text-align:left">{html.escape(line)}</p>' for line in lines)
        return f"{caption}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _side(self, column: int) -> str:
        return "text-align:left" if column in self.left else "text-align:right"


class Tabular(ABC):
    """Base class of records (data classes) that are shown as a table."""

    @abstractmethod
    def table(self) -> Table:
        """Return the record as a table."""

    def __str__(self) -> str:
        return self.table().text()

    def _repr_html_(self) -> str:
        return self.table().html()

    def to_plain(self) -> dict[str, Any]:
        """Return the record as JSON types."""
        return dataclasses.asdict(self)  # type: ignore[call-overload]


def gigabytes(count: float) -> str:
    """Return a size [bytes] as text: '3.2 GB', '45 MB', '120 kB'."""
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if count >= 0.9995 * size:
            return f"{count / size:.3g} {unit}"
    return f"{count / 1e3:.3g} kB"


def duration(seconds: float) -> str:
    """Return a duration [s] as text: '2.1 s', '35 ms', '120 µs', '3 min 20 s'."""
    if seconds >= 99.5:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest} s"
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= 0.9995 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} µs"
