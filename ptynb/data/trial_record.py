"""Record of one trial of a study."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ptynb.data.engine_records import Picture

TrialState = Literal["running", "complete", "pruned", "failed", "stopped"]


@dataclass(frozen=True, eq=False)
class TunedTrial:
    """One reconstruction of a study.

    number: 1 for the first. values: by dotted names, of settings and of the scan.
    state: "stopped" if it was running when the study, or its kernel, ended: its values are tried again.
    score: the quantity to minimise; None if the trial did not complete.
    losses: of its epochs (of its first half's, if halves are compared).
    seconds: duration [s].
    ranks: those of its engines; empty: in the notebook's process.
    picture: the object's phase, reduced; None if there is none.
    scan: `metadata_digest` of its scan, if values of the scan were tried.
    reason: why it was pruned, failed or stopped; lines after the first are details.
    """

    number: int
    values: dict[str, Any]
    state: TrialState
    score: float | None = None
    losses: tuple[float, ...] = ()
    seconds: float = 0.0
    ranks: tuple[int, ...] = ()
    picture: Picture | None = None
    scan: str = ""
    reason: str = ""

    def __repr__(self) -> str:
        chosen = ", ".join(f"{name} {value_text(value)}" for name, value in self.values.items())
        score = "" if self.score is None else f", score {self.score:.5g}"
        return f"<trial {self.number}: {self.state}{score}; {chosen}>"


def best_of(trials: tuple[TunedTrial, ...]) -> TunedTrial | None:
    """Return the complete trial with the smallest score, the first of equals; None if there is none."""
    complete = [trial for trial in trials if trial.state == "complete" and trial.score is not None]
    return min(complete, key=lambda trial: (trial.score, trial.number), default=None)


def value_text(value: Any) -> str:
    """Return a value of a setting as short text: '0.00123', '16', 'adam'."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)
