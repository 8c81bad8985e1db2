"""The page "Positions" of the live view: how refined positions differ from the measured ones, as arrows and numbers."""

from __future__ import annotations

import html
import math
from collections.abc import Callable

from ptynb.analysis.position_refinement import FACTORS, PositionRefinement
from ptynb.widgets import elements
from ptynb.widgets.live.controls import checkbox, row
from ptynb.widgets.shared_widgets import put

AUTO = 0.0
LINE = "pt.analysis.position_refinement(recon.result)"


class PositionsPage:
    """Numbers about the refinement of the positions, and the choices of the arrows drawn over the object."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._affine = checkbox(
            "Without scale, rotation and shear", False, "Shows what is left of the moves without their affine part"
        )
        self._factor = elements.Dropdown(
            options=[("automatic", AUTO), *((f"× {factor:g}", float(factor)) for factor in FACTORS[:12])],
            description="Arrows",
            tooltip="Length of the arrows, relative to that of the moves",
            style={"description_width": "initial"},
            layout=elements.Layout(width="190px"),
        )
        self._text = elements.HTML()
        for field in (self._affine, self._factor):
            field.observe(lambda _: changed(), "value")
        self.widget = elements.VBox([row(self._affine, self._factor, grid_gap="2px 16px"), self._text])

    @property
    def with_affine(self) -> bool:
        """Whether the arrows contain the affine part."""
        return not self._affine.value

    def factor(self, found: PositionRefinement) -> float:
        """Return the factor by which arrows are longer than the moves, the chosen one or the automatic."""
        return self._factor.value or found.exaggeration(affine=self.with_affine)

    def show(self, found: PositionRefinement) -> None:
        """Show the numbers of a refinement."""
        put(self._text, refinement_text(found))


def refinement_text(found: PositionRefinement) -> str:
    """Return the lengths of the moves and their affine part as HTML."""
    if not found.largest:
        return "<p>The positions are the measured ones; a learning rate of the positions above 0 refines them.</p>"
    rows = [
        ("Moves", found.rms, found.largest),
        ("Without scale, rotation and shear", found.residual_rms, found.residual_largest),
    ]
    head = "<tr><td></td><th>rms</th><th>largest</th></tr>"
    lines = "".join(
        f'<tr><th scope="row" style="text-align:left;font-weight:normal">{title}</th>'
        f"<td>{html.escape(found.length_text(rms))}</td><td>{html.escape(found.length_text(largest))}</td></tr>"
        for title, rms, largest in rows
    )
    part = found.affine
    numbers = (
        f"Scale {part['scale']:.5f}, y against x {part['asymmetry']:+.3%}, rotation "
        f"{math.degrees(part['rotation']):+.3f}°, shear {math.degrees(part['shear']):+.3f}°"
    )
    table = f'<table style="border-spacing:14px 0;text-align:right"><tbody>{head}{lines}</tbody></table>'
    return f"{table}<p>{numbers}. The common shift is that of the object, and left out.</p>"
