"""Runs whose workers are lost, robbed or told to stop at any point: each comes to its end, by its rules.

The reference objects when a call runs twice that may not, or when something that was said is lost.
"""

from collections.abc import Sequence

import pytest

from app.domain.runs.runs import Done
from app.domain.runs.terminations import Cancelled, NaturalEnd
from app.llm.scripted.model import ScriptedTurn, turn
from tests.conformance.acting import Story, a_call, play
from tests.support.playing import Happening, Kind
from tests.support.thread_rows import check_rows

SCRIPTS: dict[str, Sequence[ScriptedTurn]] = {
    "calls": [turn("Look.", a_call("echo"), a_call("failing", "c2")), turn("Done.")],
    "unsafe calls": [turn(a_call("asking"), a_call("echo", "c2"), a_call("passing", "c3"))],
    "questions": [turn(a_call("gated"), a_call("deciding", "c2"), a_call("echo", "c3"))],
}

LAST_COMMIT = 3
"""The points of the commit that ends a run: a cancel that comes there is too late."""


async def points_of(turns: Sequence[ScriptedTurn], parallel: bool) -> int:
    """At how many points of its first execution something may happen to a run."""
    story = Story()
    await story.start(turns, here=True, parallel=parallel)
    return await story.execute()


async def ended(turns: Sequence[ScriptedTurn], parallel: bool, happening: Happening) -> Done:
    """The end of a run after something has happened once."""
    story = Story()
    await story.start(turns, here=True, parallel=parallel)
    await story.execute([happening])
    rows = await story.settle()
    check_rows(rows)
    assert isinstance(rows.record.state, Done)
    return rows.record.state


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("kind", [Kind.KILL, Kind.ROB, Kind.HAND_OVER_NOW])
def test_a_run_ends_naturally_wherever_its_worker_was_lost(
    kind: Kind, script: str, parallel: bool
) -> None:
    async def everywhere() -> None:
        turns = SCRIPTS[script]
        for at in range(1, await points_of(turns, parallel) + 1):
            end = await ended(turns, parallel, Happening(at, kind))
            assert end.termination == NaturalEnd(), at

    play(everywhere())


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("hangs", [False, True])
def test_a_run_is_cancelled_wherever_it_stands_until_its_last_commit(
    script: str, parallel: bool, hangs: bool
) -> None:
    async def everywhere() -> None:
        turns = SCRIPTS[script]
        for at in range(1, await points_of(turns, parallel) - LAST_COMMIT):
            end = await ended(turns, parallel, Happening(at, Kind.CANCEL, hangs=hangs))
            assert end.termination == Cancelled("unwanted"), at

    play(everywhere())
