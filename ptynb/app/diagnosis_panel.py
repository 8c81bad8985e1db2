"""The page of a run that shows what is wrong with the reconstruction, and applies what helps."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import replace

from ptynb.analysis.faults.diagnosis import Diagnosis, Finding
from ptynb.app.session_state import RUN
from ptynb.data.engine_records import Result
from ptynb.data.images import limits_of, picture
from ptynb.report.diagnosis_section import marked_place
from ptynb.session.diagnose import confirm, diagnose
from ptynb.session.reconstruction import Reconstruction
from ptynb.widgets import elements
from ptynb.widgets.actions import Actions
from ptynb.widgets.shared_widgets import CancelBar, CancelledError, complaint, free, put
from ptynb.widgets.viewer.viewer import Viewer

WRAPPED = {"flex_flow": "row wrap", "overflow": "visible", "align_items": "center"}


class DiagnosisPanel(elements.VBox):
    """Buttons that diagnose and try remedies, and the findings, each with a button that applies its remedy.

    Both work in a thread of their own on a copy of the present result, so that the run goes on. Trials are run by this
    process: on the engines they would end the run.

    actions: of the workbench, which apply a remedy. next_run: takes a remedy into the scan and settings of the next
    run. tell: called with the lines of Python.
    """

    def __init__(
        self,
        recon: Reconstruction,
        actions: Actions,
        next_run: Callable[[Finding], None],
        tell: Callable[[str], None],
    ) -> None:
        self._recon, self._apply_by, self._next_run, self._tell = recon, actions, next_run, tell
        self._diagnose = self._button("Diagnose", "stethoscope", "Looks for known faults of the present state", False)
        self._try = self._button("Try remedies", "flask", "Diagnoses, and tries each remedy in a short run", True)
        self._progress = CancelBar("Trials", "Ends the trials; findings and run stay as they are")
        self._status, self._applied = elements.HTML(), elements.HTML()
        self._findings = elements.VBox(layout=free())
        self._viewer = Viewer(height=220, share=0.4)
        self._viewed = elements.VBox([self._viewer], layout=elements.Layout(display="none", overflow="visible"))
        row = elements.HBox([self._diagnose, self._try, self._progress], layout=elements.Layout(**WRAPPED))
        super().__init__([row, self._status, self._findings, self._applied, self._viewed], layout=free())
        self._actions = Actions("ptynb diagnosis", self._complain, self._end)

    def close(self) -> None:
        """Cancel trials, close the panel and end its thread."""
        self._actions.close()
        super().close()

    def _button(self, text: str, icon: str, tooltip: str, trial: bool) -> elements.Button:
        layout = elements.Layout(width="auto")
        button = elements.Button(description=text, icon=icon, tooltip=tooltip, layout=layout)
        button.on_click(lambda _: self._start(trial))
        return button

    def _start(self, trial: bool) -> None:
        self._diagnose.disabled = self._try.disabled = True
        if trial:
            self._progress.begin()
        self._actions.put(lambda: self._examine(trial))

    def _examine(self, trial: bool) -> None:
        put(self._applied, "")
        self._say("Examining the present state …")
        device = "auto" if self._recon.cluster is None else "cpu"
        try:
            result = self._recon.result
            found = diagnose(result, self._recon.scan)
            self._show(result, found)
            if trial and any(one.has_remedy for one in found):
                tried = confirm(found, result, self._recon.scan, device=device, progress=self._progress.show)
                self._show(result, replace(found, findings=tried))
        except CancelledError:
            self._say("The trials were cancelled.")
            return
        given = "" if not trial else ", trial=True" + (", device='cpu'" if device == "cpu" else "")
        self._tell(f"found = pt.diagnose(recon{given})")

    def _show(self, result: Result, found: Diagnosis) -> None:
        """Show findings, and the places of those that have one."""
        self._say(" ".join([f"Epoch {len(result.epochs)}: {found.summary}", *found.notes]))
        before, self._findings.children = self._findings.children, [self._line(one) for one in found]
        for one in before:
            one.close()
        places = {one.name: place for one in found if (place := marked_place(result, found, one)) is not None}
        self._viewer.show(
            [
                picture(values, name, name.capitalize(), limits=limits_of(values, 0, 100), colours="viridis")
                for name, (values, _) in places.items()
            ]
        )
        for name, (_, points) in places.items():
            if points is not None:
                self._viewer.mark(name, points)
        self._viewed.layout.display = None if places else "none"

    def _line(self, one: Finding) -> elements.HBox:
        """Return a finding: what and how strong, what it says, the remedy with its outcome, and its button."""
        remedy = one.remedy if one.confirmation is None else f"{one.remedy}. It {one.confirmation}"
        strength = f"{one.measure}: {one.value:.3g}, threshold {one.threshold:.3g} (false alarms {one.false_alarm:.1%})"
        texts = [html.escape(text) for text in (one.name, strength, one.explanation, remedy)]
        text = '<div style="line-height:1.4;padding:4px 0"><b>{}</b> · {}<br>{}<br>Remedy: {}.</div>'.format(*texts)
        shown: list[elements.Element] = [elements.HTML(text, layout=elements.Layout(flex="1 1 400px"))]
        if one.has_remedy:
            button = elements.Button(
                description="Apply", icon="check", tooltip=f"Applies the remedy of {one.name}",
                layout=elements.Layout(width="auto"),
            )  # fmt: skip
            button.on_click(lambda _: self._apply_by.put(lambda: self._apply(one), lane=RUN))
            shown.insert(0, button)
        return elements.HBox(shown, layout=elements.Layout(**WRAPPED))

    def _apply(self, one: Finding) -> None:
        recon, source = self._recon, f"found[{one.name!r}]"
        if one.epochs:
            recon.start(one.epochs)
            self._tell(f"recon.start({source}.epochs)")
            text = f"The run goes on for {one.epochs} epochs; diagnose again at its end."
        elif one.restart:
            self._next_run(one)
            text = "The remedy is in the settings and the scan of the next run; press New run."
        else:
            recon.reconfigure(recon.settings.with_values(one.changes))
            self._tell(f"recon.reconfigure(recon.settings.with_values({source}.changes))")
            text = "The run has the remedy; press Start to continue if it has ended, and diagnose again at its end."
        put(self._applied, f'<span role="status">{html.escape(text)}</span>')

    def _end(self) -> None:
        self._progress.end()
        self._diagnose.disabled = self._try.disabled = False

    def _say(self, text: str) -> None:
        put(self._status, f'<span role="status">{html.escape(text)}</span>')

    def _complain(self, error: Exception | None) -> None:
        put(self._status, complaint(error))
