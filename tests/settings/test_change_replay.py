from itertools import pairwise

from ptynb.data.record import Change
from ptynb.settings import Settings
from ptynb.settings.change_replay import settings_before, steps_of
from tests.parametrization import each

BEGUN = Settings(probe={"learning_rate": 0.01}, batch=8)


def names(*changes):
    return [(step.epoch, step.update, step.names) for step in steps_of(BEGUN.model_dump(mode="json"), changes)]


TOGETHER = {
    "live ones at one moment": (
        [Change(1, 2, "probe.learning_rate", 0.01, 0.1, 5.0), Change(1, 2, "object.learning_rate", 0.01, 0.1, 5.1)],
        [(1, 2, ("probe.learning_rate", "object.learning_rate"))],
    ),
    "a restructuring with a live one": (
        [Change(1, 2, "probe.learning_rate", 0.01, 0.1, 5.0), Change(1, 2, "batch", 8, 4, 5.0)],
        [(1, 2, ("probe.learning_rate", "batch"))],
    ),
    "a restructuring after a live one": (
        [Change(1, 2, "probe.learning_rate", 0.01, 0.1, 4.9), Change(1, 2, "batch", 8, 4, 5.0)],
        [(1, 2, ("probe.learning_rate",)), (1, 2, ("batch",))],
    ),
    "twice the same": (
        [Change(1, 2, "probe.modes", 1, 2, 5.0), Change(1, 2, "probe.modes", 2, 3, 6.0)],
        [(1, 2, ("probe.modes",)), (1, 2, ("probe.modes",))],
    ),
    "other moments": (
        [Change(1, 2, "probe.learning_rate", 0.01, 0.1), Change(1, 3, "object.learning_rate", 0.01, 0.1)],
        [(1, 2, ("probe.learning_rate",)), (1, 3, ("object.learning_rate",))],
    ),
    "no settings": ([Change(3, 0, "target", 5, 8), Change(3, 0, "went back", "epoch 7", "epoch 3")], []),
}


@each("name", TOGETHER)
def test_changes_are_steps(name):
    changes, steps = TOGETHER[name]
    assert names(*changes) == steps


def test_steps_lead_to_the_settings_at_the_end_and_back():
    ways = [
        BEGUN,
        BEGUN.replace(probe={"modes": 3}),
        BEGUN.replace(probe={"modes": 3, "learning_rate": 0.5}, schedule={"kind": "linear"}),
    ]
    changes = [
        Change(epoch, 0, name, old, new)
        for epoch, (one, other) in enumerate(pairwise(ways))
        for name, (old, new) in one.differences(other).items()
    ]
    steps = steps_of(BEGUN.model_dump(mode="json"), changes)
    assert [step.settings for step in steps] == ways[1:]
    assert Settings(**settings_before(ways[-1].model_dump(mode="json"), changes)) == BEGUN
