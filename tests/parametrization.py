"""Parametrization with fewer tests: all pairs instead of products, and cheap cases in one test."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any


def all_pairs(*choices: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Combinations, one of each of the choices, that hold every pair of values of any two of them at least once.

    A fault that shows for one value, or for two together, shows in one of them; a product also has every three.
    Greedy: each next one of the product that holds the most pairs still missing, the first of equals, until none is.
    """
    product = list(itertools.product(*(range(len(values)) for values in choices)))
    held = {combination: set(itertools.combinations(enumerate(combination), 2)) for combination in product}
    missing, found = set().union(*held.values()), []
    while missing:
        found.append(max(product, key=lambda combination: len(held[combination] & missing)))
        missing -= held[found[-1]]
    return [tuple(values[k] for values, k in zip(choices, combination, strict=True)) for combination in found]


@contextlib.contextmanager
def case(*names: object) -> Iterator[None]:
    """Names one turn of a loop in the report of what fails in it."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"Case: {', '.join(str(name) for name in names)}")
        raise


def each(names: str | tuple[str, ...], values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """As pytest.mark.parametrize, in one test: for cases that take less time than what pytest does around each.

    They share the test's other fixtures, and stop at the first that fails, which the report names.
    """
    cases = [value if isinstance(names, tuple) else (value,) for value in values]
    names = names if isinstance(names, tuple) else (names,)
    assert cases

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def loop(**fixtures: Any) -> None:
            for number, value in enumerate(cases):
                named = dict(zip(names, value, strict=True))
                with case(number, *(f"{name} = {one!r}" for name, one in named.items())):
                    test(**fixtures, **named)

        signature = inspect.signature(test)
        rest = [parameter for name, parameter in signature.parameters.items() if name not in names]
        loop.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return loop

    return decorate
