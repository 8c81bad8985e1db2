"""The page of a run that shows what is wrong with the reconstruction, and applies what helps."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import traitlets

from ptynb.analysis.faults.diagnosis import Diagnosis, Finding
from ptynb.app.session_state import DIAGNOSIS, RUN, Session
from ptynb.data.engine_records import Result
from ptynb.data.images import limits_of, picture
from ptynb.report.diagnosis_section import marked_place
from ptynb.session.diagnose import confirm, diagnose
from ptynb.session.reconstruction import Reconstruction
from ptynb.widgets.actions import Actions, CancelledError
from ptynb.widgets.element_tree import Element, command, shown
from ptynb.widgets.viewer.viewer import Viewer


class DiagnosisPanel(Element):
    """Findings about a reconstruction, with what helps against them.

    It works on a copy of the present result: the run goes on. Trials of remedies are run by this process, since on the
    engines they would end the run.

    progress: trials that are done, and all; empty without any. applied: what follows from a remedy. viewer: shows the
    places of findings.
    """

    component = "diagnosis"
    busy = shown(traitlets.Bool(False))
    progress: traitlets.List[int] = shown(traitlets.List([]))
    status = shown(traitlets.Unicode(""))
    findings: traitlets.List[dict[str, Any]] = shown(traitlets.List([]))
    applied = shown(traitlets.Unicode(""))
    has_places = shown(traitlets.Bool(False))
    viewer: Any = shown(traitlets.Instance(Viewer))

    def __init__(self, recon: Reconstruction, session: Session, actions: Actions) -> None:
        self._recon, self._session, self._actions = recon, session, actions
        self._cancelled = threading.Event()
        self.found: Diagnosis | None = None
        super().__init__(viewer=Viewer(height=220, share=0.4))

    @command
    def diagnose(self, trial: bool = False) -> None:
        """Look for known faults of the present state; trial: and try each remedy in a short run."""
        if not self.busy:
            self.busy, self.progress = True, [0, 1] if trial else []
            self._cancelled.clear()
            self._actions.put(lambda: self._diagnose(trial), lane=DIAGNOSIS)

    @command
    def cancel(self) -> None:
        """End the trials; findings and run stay as they are."""
        self._cancelled.set()

    @command
    def apply(self, name: str) -> None:
        """Apply the remedy of the finding of this name."""
        if self.found is not None and name in self.found:
            finding = self.found[name]

            def take() -> None:
                self.applied = self._session.take_remedy(finding)

            self._actions.put(take, lane=RUN)

    def close(self) -> None:
        """Cancel trials, and close the panel."""
        self._cancelled.set()
        self.viewer.close()
        super().close()

    def _diagnose(self, trial: bool) -> None:
        self.applied, self.status = "", "Examining the present state …"
        try:
            self._examine(trial)
        except CancelledError:
            self.status = "The trials were cancelled."
        except Exception:
            self.status = ""
            raise
        finally:
            self.busy, self.progress = False, []

    def _examine(self, trial: bool) -> None:
        device = "auto" if self._recon.cluster is None else "cpu"
        result = self._recon.result
        found = diagnose(result, self._recon.scan)
        self._show(result, found)
        if trial and any(one.has_remedy for one in found):
            tried = confirm(found, result, self._recon.scan, device=device, progress=self._show_progress)
            self._show(result, replace(found, findings=tried))
        given = "" if not trial else ", trial=True" + (", device='cpu'" if device == "cpu" else "")
        self._session.tell(f"found = pt.diagnose(recon{given})")

    def _show(self, result: Result, found: Diagnosis) -> None:
        """Show findings, and the places of those that have one."""
        self.found = found
        self.status = " ".join([f"Epoch {len(result.epochs)}: {found.summary}", *found.notes])
        self.findings = [_plain(one) for one in found]
        places = {one.name: place for one in found if (place := marked_place(result, found, one)) is not None}
        self.viewer.show(
            [
                picture(values, name, name.capitalize(), limits=limits_of(values, 0, 100), colours="viridis")
                for name, (values, _) in places.items()
            ]
        )
        for name, (_, points) in places.items():
            if points is not None:
                self.viewer.mark(name, points)
        self.has_places = bool(places)

    def _show_progress(self, done: int, total: int) -> None:
        if self._cancelled.is_set():
            raise CancelledError
        self.progress = [done, total]


def _plain(one: Finding) -> dict[str, Any]:
    """Return a finding for a page: what and how strong, what it says, and its remedy with the outcome of a trial."""
    return {
        "name": one.name,
        "strength": f"{one.measure}: {one.value:.3g}, threshold {one.threshold:.3g} "
        f"(false alarms {one.false_alarm:.1%})",
        "explanation": one.explanation,
        "remedy": one.remedy if one.confirmation is None else f"{one.remedy}. It {one.confirmation}",
        "can_apply": one.has_remedy,
    }
