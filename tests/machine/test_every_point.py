"""One script with all kinds of calls, and one incident at each of its points in turn."""

import asyncio

import pytest

from app.domain.ids import CallId
from app.domain.tickets.decisions import Action
from app.llm.scripted.model import Call, ScriptedTurn, turn
from tests.machine.machine import SPEC, tools
from tests.support.memory_system import MemorySystem
from tests.support.thread_driver import Incident, IncidentKind, Reply, ThreadDriver

FARTHER_THAN_ANY = 200


def script() -> list[ScriptedTurn]:
    return [
        turn("Let me see.", _call("c1", "read"), _call("c2", "gated"), _call("c3", "risky")),
        turn(_call("c1", "asking"), _call("c2", "safe")),
        turn(_call("c1", "risky")),
        turn("Done."),
    ]


def _call(id: str, tool: str) -> Call:
    return Call(tool=tool, arguments={"n": 1}, id=CallId(id))


async def reaches_point(kind: IncidentKind, at: int, *, hangs: bool, is_eager: bool) -> bool:
    """Execute it to its end; returns whether it has such a point."""
    player = ThreadDriver(MemorySystem(SPEC), SPEC, tools())
    await player.start(script(), here=True, passes={0})
    reply = Reply(0, Action.EDIT)
    left = at
    happened = False
    while not (await player.system.rows()).record.is_done:
        incident = Incident(left, kind, hangs=hangs, reply=reply)
        points = await player.execute([incident] if left > 0 else [], is_eager=is_eager)
        happened = happened or 0 < left <= points
        left -= points
        if not await player.decide(Reply(0, Action.APPROVE)):
            break
    await player.settle()
    return happened


@pytest.mark.parametrize("is_eager", [True, False])
@pytest.mark.parametrize("hangs", [False, True])
@pytest.mark.parametrize("kind", IncidentKind)
def test_a_run_ends_after_any_happening_at_any_point(
    kind: IncidentKind, hangs: bool, is_eager: bool
) -> None:
    async def every_point() -> int:
        for at in range(1, FARTHER_THAN_ANY):
            if not await reaches_point(kind, at, hangs=hangs, is_eager=is_eager):
                return at
        raise AssertionError("a script without end")

    with asyncio.Runner() as runner:
        assert runner.run(every_point()) > 50
