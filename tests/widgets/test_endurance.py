"""A live view keeps nothing of the past: what 120 updates add to a kernel is less than one picture each."""

import dataclasses
import gc
import tracemalloc

import ptynb as pt
from ptynb.polling import wait_until

UPDATES, EARLY = 120, 12
"""Frames in all, and those after which everything has been met once."""
A_PICTURE = 3000
"""Bytes; the smallest one that is shown is larger, and one that was kept with each update would be seen."""


class Replayed:
    """A reconstruction that has ended, told as if it went on: every look finds it one update further."""

    def __init__(self, recon):
        self._recon, self._update = recon, 0
        self.settings, self.epochs = recon.settings, tuple(recon.epochs)

    def __getattr__(self, name):
        return getattr(self._recon, name)

    def last_status(self):
        self._update += 1
        done = {"epoch": 3, "update": self._update, "updates_per_epoch": 10**6, "target": 10**6}
        return dataclasses.replace(self._recon.last_status(), state="running", **done)

    def pictures(self, request):
        return dataclasses.replace(self._recon.pictures(request), epoch=3, update=self._update)


def test_a_live_view_keeps_no_picture_of_the_past():
    scan = pt.simulate(patterns=36, window=32, seed=0)
    with pt.Reconstruction(scan, pt.Settings(probe=pt.Probe(modes=2)), device="cpu") as recon:
        list(recon.run(2))
        view = pt.live(Replayed(recon), rate=2.0)
        viewers = [view.object_pictures, view.probe_pictures, view.cut_pictures, view.pattern_pictures]
        for viewer in viewers:
            viewer.observe(lambda change: setattr(change["owner"], "shown", change["new"]["number"]), "frame")
        tracemalloc.start()

        def memory_after(frames):
            def shown():
                view._not_before = 0.0  # a view leaves its reconstruction time between two looks
                view.refresh()
                return max(viewer.frame.get("number", 0) for viewer in viewers) >= frames

            assert wait_until(shown, 120)
            gc.collect()
            return tracemalloc.get_traced_memory()[0]

        try:
            early = memory_after(EARLY)
            growth = memory_after(UPDATES) - early
        finally:
            tracemalloc.stop()
            view.close()
    assert growth / (UPDATES - EARLY) < A_PICTURE / 2
