"""A figure of a scaling test: time of an epoch, speed-up, and loss against time."""

from __future__ import annotations

from matplotlib import colormaps
from matplotlib.axes import Axes

from ptynb.data.scaling_result import Scale, ScalingTest
from ptynb.figures.figure import Page

MARKERS = ("o", "s", "^", "D", "v", "P")


def scaling_figure(test: ScalingTest) -> Page:
    """Return a figure of a scaling test: epoch time, speed-up, and the loss of every trial against time.

    Parameters
    ----------
    test : ScalingTest
        The result of `pt.scaling_test`.

    Returns
    -------
    matplotlib.figure.Figure
        A figure with one line per number of threads; save it with `savefig("x.png")`.
    """
    page = Page(figsize=(13.5, 4.2), layout="constrained")
    seconds, speed_up, loss = page.subplots(1, 3)
    several = len({row.threads for row in test.rows}) > 1
    groups = _by_threads(test.rows, test.device == "CPU")
    for marker, (threads, rows) in zip(MARKERS * len(groups), groups.items(), strict=False):
        engines = [row.engines for row in rows]
        label = f"{threads} thread{'s' * (threads > 1)} per engine" if threads and several else None
        seconds.errorbar(
            engines,
            [row.seconds for row in rows],
            [row.spread for row in rows],
            marker=marker,
            capsize=4,
            label=label,
        )
        speed_up.plot(engines, [row.speed_up for row in rows], marker=marker, label=label)
        for row in rows:
            speed_up.annotate(
                f"{row.efficiency:.0%}",
                (row.engines, row.speed_up),
                textcoords="offset points",
                xytext=(0, 7),
                ha="center",
                fontsize=8,
            )
    counts = sorted({row.engines for row in test.rows})
    speed_up.plot(counts, [count / counts[0] for count in counts], color="0.6", linestyle=":", label="in proportion")
    _axes(seconds, counts, "Epoch time", "mean and standard deviation [s]", legend=several)
    _axes(speed_up, counts, "Speed-up, and efficiency", "over the smallest", legend=True)
    _losses(loss, test)
    page.suptitle(f"{test.scan}   ·   {test.patterns} patterns   ·   {test.device}", fontsize=11, parse_math=False)
    return page


def _by_threads(rows: tuple[Scale, ...], on_cpu: bool) -> dict[int, list[Scale]]:
    """Return rows by threads per engine; one group if engines share a machine's cores or have a GPU each."""
    threads = {row.threads for row in rows}
    engines = [row.engines for row in rows]
    if not on_cpu or len(set(engines)) == len(engines):
        return {0: [*rows]}
    return {each: [row for row in rows if row.threads == each] for each in sorted(threads)}


def _axes(axes: Axes, counts: list[int], title: str, what: str, *, legend: bool) -> None:
    axes.set(title=title, xlabel="engines", ylabel=what, xticks=counts)
    axes.set_ylim(bottom=0)
    axes.margins(y=0.15)
    axes.grid(visible=True, alpha=0.25)
    if legend and axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8)


def _losses(axes: Axes, test: ScalingTest) -> None:
    kinds = [(row.engines, row.threads) for row in test.rows]
    shades = colormaps["viridis"].resampled(len(kinds) + 1)
    seen = set()
    for trial in test.trials:
        kind = (trial.engines, trial.threads)
        times, losses = zip(*trial.curve, strict=True)
        label = (
            None if kind in seen else f"{kind[0]} engine{'s' * (kind[0] > 1)}, {kind[1]} thread{'s' * (kind[1] > 1)}"
        )
        seen.add(kind)
        axes.semilogy(times, losses, color=shades(kinds.index(kind)), linewidth=1, label=label)
    axes.set(title="Loss against time, every trial", xlabel="seconds of epochs [s]")
    axes.grid(visible=True, which="both", alpha=0.25)
    axes.legend(fontsize=8)
