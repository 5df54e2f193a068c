"""Wherever an answer breaks off, and however often: no word is lost or said twice, no call made twice."""

from collections.abc import Sequence
from itertools import product

import pytest

from app.domain.agents.specs import AgentSpec
from app.domain.ids import AgentId, CallId
from app.domain.inference.failures import FailureKind, failed
from app.domain.inference.options import RetryPolicy
from app.domain.json_values import as_object
from app.domain.runs.runs import Done
from app.domain.runs.terminations import NaturalEnd
from app.domain.threads.messages import Role
from app.llm.scripted.model import Call, Fail, Part, Say, ScriptedModel, ScriptedTurn, Think
from app.runtime.agent import Agents, ResolvedAgent, UnknownAgentVersion
from app.runtime.cancellation import Interruption
from app.runtime.ports import ModelRequest, StopReason
from tests.support.event_order import check_thread
from tests.support.memory_house import MemoryHouse
from tests.support.probes import Probe

pytestmark = pytest.mark.anyio

PIECES = ("Once ", "upon ", "a time. ")
TEXT = "".join(PIECES)
RETRY = RetryPolicy(max_stream_retries=3, backoff_base=0, max_backoff=0)
BREAKS = (None, *range(10))
"""After how many pieces an answer breaks: never, before all of them, or in any place between."""


class Storyteller:
    """Tells a story and makes two calls; goes on where it was cut, and makes again what it is told was
    not made. Its answers break off, or reach their length, after so many pieces."""

    def __init__(self, breaks: Sequence[int | None], end: Part | StopReason) -> None:
        self._breaks = list(breaks)
        self._end = end

    def __call__(self, request: ModelRequest) -> ScriptedTurn:
        parts = self._whole(request)
        at = self._breaks.pop(0) if self._breaks else None
        if at is None or at >= len(parts):
            return ScriptedTurn(tuple(parts))
        if isinstance(self._end, StopReason):
            return ScriptedTurn((*_cut(parts, at),), self._end)
        return ScriptedTurn((*_cut(parts, at), self._end))

    def _whole(self, request: ModelRequest) -> list[Part]:
        calls_made = [call.arguments for one in request.messages for call in one.tool_calls]
        made = [as_object(arguments) for arguments in calls_made]
        missing = [word for word in ("one", "two") if {"text": word} not in made]
        calls: list[Part] = [
            Call(
                tool="probe",
                arguments=f'{{"text": "{word}"}}',
                id=CallId(f"{word}-{len(request.messages)}"),
            )
            for word in missing
        ]
        if made:
            return calls or [Say(("The end",))]
        said = "".join(one.text for one in request.messages if one.role is Role.ASSISTANT)
        assert TEXT.startswith(said)
        rest = [Say((piece,)) for piece in PIECES][_pieces_in(said) :]
        return [Think(("Hm. ",)), *rest, *calls]


def _pieces_in(said: str) -> int:
    return next(n for n in range(len(PIECES) + 1) if "".join(PIECES[:n]) == said)


def _cut(parts: Sequence[Part], at: int) -> list[Part]:
    """So many parts, and of a call after them the half."""
    kept = list(parts[:at])
    behind = parts[at]
    if isinstance(behind, Call):
        kept.append(Call(tool=behind.tool, arguments='{"text": "o', id=behind.id))
    return kept


@pytest.mark.parametrize("end", ["connection", "stall", "length"])
async def test_nothing_is_lost_or_done_twice(end: str) -> None:
    ends: dict[str, Part | StopReason] = {
        "connection": Fail(failed(FailureKind.STREAM_INTERRUPTED, "cut")),
        "stall": Fail(failed(FailureKind.TIMEOUT, "silent")),
        "length": StopReason.MAX_TOKENS,
    }
    for breaks in product(BREAKS, repeat=2):
        if end == "length" and breaks[0] in (0, 1):
            continue  # a limit that was used up before the first word is the agent's to raise
        probe = Probe()
        house = await _told(Storyteller(breaks, ends[end]), probe)
        state = house.record.state
        assert isinstance(state, Done), breaks
        assert state.termination == NaturalEnd(), (breaks, state)
        said = [one.message for one in house.log if one.message.role is Role.ASSISTANT]
        assert said[0].text == TEXT, (breaks, said)
        assert [one.text for one in probe.handed] == ["one", "two"], (breaks, probe.handed)
        check_thread(house.events)
        assert _shown(house) == [one.text for one in said], breaks


async def _told(story: Storyteller, probe: Probe) -> MemoryHouse:
    spec = AgentSpec(id=AgentId("tester"), model="m", tools=("probe",), retry=RETRY)
    agent = ResolvedAgent(spec=spec, model=ScriptedModel("m", story), tools={"probe": probe.tool})
    house = MemoryHouse(spec)
    claimed = await house.start(here=True)
    assert claimed is not None
    run, _ = await house.load(claimed, agent, _Nobody(), Interruption())
    await house.advance(run)
    return house


class _Nobody(Agents):
    async def at_version(self, *_: object) -> UnknownAgentVersion:
        raise AssertionError("nobody hands off")


def _shown(house: MemoryHouse) -> list[str]:
    """What somebody who follows the events has read, step by step."""
    steps: list[str] = []
    for event in house.events:
        match event["event_type"]:
            case "step_start":
                steps.append("")
            case "stream_reset":
                steps[-1] = ""
            case "text_delta":
                steps[-1] += event["delta"]
    return steps
