"""Positions of results over the pictures of their objects, with arrows to the refined ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ptynb.analysis.position_refinement import position_refinement
from ptynb.analysis.result_comparison import Together
from ptynb.widgets.viewer.viewer import Viewer

NONE = np.zeros((0, 2))


def mark_positions(viewer: Viewer, together: Together, registered: bool) -> None:
    """Draw the measured positions of each comparable result; arrows of all results are longer by one factor."""
    found = {name: position_refinement(together.results[name]) for name in together.placed}
    factor = min((one.exaggeration() for one in found.values() if one.largest > 0), default=1.0)
    labels = {}
    for name, refinement in found.items():
        scale, offset = together.on_area(name, registered)
        middle = np.array(together.results[name].probe.shape[-2:]) / 2
        moved = None
        if refinement.largest > 0:
            moved = (refinement.arrows(factor) + middle) * scale + offset
            labels[name] = f"arrows × {factor:g}"
        viewer.mark(name, (refinement.measured + middle) * scale + offset, moved=moved)
    viewer.labels = labels


def remove_marks(viewer: Viewer, names: Sequence[str]) -> None:
    """Remove the positions of these results."""
    for name in names:
        viewer.mark(name, NONE)
    viewer.labels = {}
