"""Runs end correctly when their worker is killed, loses its claim or is stopped at any point.

The reference fails when a call runs twice without permission, or when a saved result is lost.
"""

from collections.abc import Sequence

import pytest

from app.domain.runs.runs import Done
from app.domain.runs.terminations import Cancelled, NaturalEnd
from app.llm.scripted.model import ScriptedTurn, turn
from tests.conformance.scripted_runs import ScriptedRun, a_call, run_async
from tests.support.thread_driver import Incident, IncidentKind
from tests.support.thread_rows import check_rows

SCRIPTS: dict[str, Sequence[ScriptedTurn]] = {
    "calls": [turn("Look.", a_call("echo"), a_call("failing", "c2")), turn("Done.")],
    "unsafe calls": [turn(a_call("asking"), a_call("echo", "c2"), a_call("passing", "c3"))],
    "questions": [turn(a_call("gated"), a_call("deciding", "c2"), a_call("echo", "c3"))],
}

LAST_COMMIT = 3
"""The points of the commit that ends a run: a cancel at these points is too late."""


async def points_of(turns: Sequence[ScriptedTurn], parallel: bool) -> int:
    """The number of points in the first execution of a run."""
    scripted = ScriptedRun()
    await scripted.start(turns, here=True, parallel=parallel)
    return await scripted.execute()


async def ended(turns: Sequence[ScriptedTurn], parallel: bool, incident: Incident) -> Done:
    """The rows of a run that ended after one incident."""
    scripted = ScriptedRun()
    await scripted.start(turns, here=True, parallel=parallel)
    await scripted.execute([incident])
    rows = await scripted.settle()
    check_rows(rows)
    assert isinstance(rows.record.state, Done)
    return rows.record.state


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize(
    "kind", [IncidentKind.KILL, IncidentKind.TAKE_OVER, IncidentKind.HAND_OVER_NOW]
)
def test_a_run_ends_naturally_after_losing_its_worker_at_any_point(
    kind: IncidentKind, script: str, parallel: bool
) -> None:
    async def every_point() -> None:
        turns = SCRIPTS[script]
        for at in range(1, await points_of(turns, parallel) + 1):
            end = await ended(turns, parallel, Incident(at, kind))
            assert end.termination == NaturalEnd(), at

    run_async(every_point())


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("hangs", [False, True])
def test_a_run_can_be_cancelled_at_any_point_before_its_last_commit(
    script: str, parallel: bool, hangs: bool
) -> None:
    async def every_point() -> None:
        turns = SCRIPTS[script]
        for at in range(1, await points_of(turns, parallel) - LAST_COMMIT):
            end = await ended(turns, parallel, Incident(at, IncidentKind.CANCEL, hangs=hangs))
            assert end.termination == Cancelled("unwanted"), at

    run_async(every_point())
