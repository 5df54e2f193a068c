"""One rich script, and one thing that happens: at each point of it in turn."""

import asyncio

import pytest

from app.domain.ids import CallId
from app.domain.tickets.decisions import Action
from app.llm.scripted.model import Call, ScriptedTurn, turn
from tests.machine.machine import SPEC, tools
from tests.support.memory_house import MemoryHouse
from tests.support.playing import Happening, Kind, Player, Reply

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


async def played(kind: Kind, at: int, *, hangs: bool, is_eager: bool) -> bool:
    """Play it to its end; whether there was such a point."""
    player = Player(MemoryHouse(SPEC), SPEC, tools())
    await player.start(script(), here=True, passes={0})
    reply = Reply(0, Action.EDIT)
    left = at
    happened = False
    while not (await player.house.rows()).record.is_done:
        happening = Happening(left, kind, hangs=hangs, reply=reply)
        points = await player.execute([happening] if left > 0 else [], is_eager=is_eager)
        happened = happened or 0 < left <= points
        left -= points
        if not await player.decide(Reply(0, Action.APPROVE)):
            break
    await player.settle()
    return happened


@pytest.mark.parametrize("is_eager", [True, False])
@pytest.mark.parametrize("hangs", [False, True])
@pytest.mark.parametrize("kind", Kind)
def test_whatever_happens_wherever_the_run_comes_to_its_end(
    kind: Kind, hangs: bool, is_eager: bool
) -> None:
    async def everywhere() -> int:
        for at in range(1, FARTHER_THAN_ANY):
            if not await played(kind, at, hangs=hangs, is_eager=is_eager):
                return at
        raise AssertionError("a script without end")

    with asyncio.Runner() as runner:
        assert runner.run(everywhere()) > 50
