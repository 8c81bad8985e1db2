"""Choice of the algorithm by the setting `optimiser`."""

from __future__ import annotations

from ptynb.exceptions import InvalidValueError
from ptynb.optimize.algorithm import Algorithm, Problem
from ptynb.optimize.gradient_descent import Gradient
from ptynb.optimize.lbfgs import LBFGS
from ptynb.optimize.lsqml import LeastSquares
from ptynb.optimize.projections import Projections
from ptynb.physics.components.component import ModelComponent


def make_algorithm(problem: Problem) -> Algorithm:
    """Return the algorithm of the settings. Raises InvalidValueError if it does not support an active component."""
    match problem.settings.optimiser:
        case "lbfgs":
            return LBFGS(problem)
        case "lsqml":
            _only_object_and_probe(problem)
            return LeastSquares(problem)
        case "dm" | "raar":
            _only_object_and_probe(problem)
            return Projections(problem)
        case _:
            return Gradient(problem)


def _only_object_and_probe(problem: Problem) -> None:
    for component in problem.model.pieces:
        if isinstance(component, ModelComponent) and component.active:
            raise InvalidValueError(
                f"optimiser is '{problem.settings.optimiser}', which supports no component beside object and probe, "
                f"and '{component.name}' is active; use 'adam', or leave the component out.",
                code="component.unsupported-optimiser",
            )
