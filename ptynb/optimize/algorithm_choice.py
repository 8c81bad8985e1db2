"""Choice of the algorithm by the setting `optimiser`."""

from __future__ import annotations

from collections.abc import Collection
from typing import assert_never

from ptynb.exceptions import InvalidValueError
from ptynb.optimize.algorithm import Algorithm, Problem
from ptynb.optimize.gradient_descent import Gradient
from ptynb.optimize.lbfgs import LBFGS
from ptynb.optimize.lsqml import LeastSquares
from ptynb.optimize.projections import Projections
from ptynb.settings import LSQML_PARTS, PART_OF_COMPONENT

SLAB = ("slices", "tilt")
"""Components that exit waves depend on, which every algorithm supports."""


def make_algorithm(problem: Problem) -> Algorithm:
    """Return the algorithm of the settings. Raises InvalidValueError if it does not support an active component."""
    match problem.settings.optimiser:
        case "lbfgs":
            return LBFGS(problem)
        case "lsqml":
            _check_components(problem, LSQML_PARTS)
            return LeastSquares(problem)
        case "dm" | "raar":
            _check_components(problem, ("object", "probe"))
            return Projections(problem)
        case "adam" | "adamw" | "nadam" | "radam" | "rmsprop" | "sgd" | "rpie":
            return Gradient(problem)
        case optimiser:
            assert_never(optimiser)


def _check_components(problem: Problem, supported: Collection[str]) -> None:
    """Raise InvalidValueError if a component is active that belongs to none of the supported parts of the settings."""
    for name, component in problem.model.components.items():
        if component.active and name not in SLAB and PART_OF_COMPONENT.get(name) not in supported:
            raise InvalidValueError(
                f"optimiser is '{problem.settings.optimiser}', which supports {', '.join(supported)} only, and "
                f"'{name}' is active; use 'adam', or leave the component out.",
                code="component.unsupported-optimiser",
            )
