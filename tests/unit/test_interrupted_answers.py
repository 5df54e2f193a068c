"""An answer that breaks off at any point loses no text, and repeats no text and no call."""

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
from app.llm.scripted.model import (
    Call,
    Fail,
    Part,
    ScriptedModel,
    ScriptedReasoning,
    ScriptedText,
    ScriptedTurn,
)
from app.runtime.agent import Agents, ResolvedAgent, UnknownAgentVersion
from app.runtime.cancellation import Interruption
from app.runtime.ports.models import ModelRequest, StopReason
from tests.support.event_order import check_thread
from tests.support.memory_system import MemorySystem
from tests.support.probes import Probe

pytestmark = pytest.mark.anyio

PIECES = ("Once ", "upon ", "a time. ")
TEXT = "".join(PIECES)
RETRY = RetryPolicy(max_stream_retries=3, backoff_base=0, max_backoff=0)
BREAKS = (None, *range(10))
"""After how many pieces an answer breaks: never, before the first, or after any piece."""


class ContinuingModel:
    """A model that answers with a text and two calls, and continues where its last answer was cut.

    It repeats each call that is reported as not made. `breaks` says after how many pieces an answer
    breaks off or reaches its length.
    """

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
            return calls or [ScriptedText(("The end",))]
        text = "".join(one.text for one in request.messages if one.role is Role.ASSISTANT)
        assert TEXT.startswith(text)
        remaining = [ScriptedText((piece,)) for piece in PIECES][_pieces_in(text) :]
        return [ScriptedReasoning(("Hm. ",)), *remaining, *calls]


def _pieces_in(text: str) -> int:
    return next(n for n in range(len(PIECES) + 1) if "".join(PIECES[:n]) == text)


def _cut(parts: Sequence[Part], at: int) -> list[Part]:
    """The first `at` parts; a call right after them is cut in half."""
    pieces = list(parts[:at])
    behind = parts[at]
    if isinstance(behind, Call):
        pieces.append(Call(tool=behind.tool, arguments='{"text": "o', id=behind.id))
    return pieces


@pytest.mark.parametrize("end", ["connection", "stall", "length"])
async def test_an_interrupted_answer_loses_no_text_and_repeats_no_call(end: str) -> None:
    ends: dict[str, Part | StopReason] = {
        "connection": Fail(failed(FailureKind.STREAM_INTERRUPTED, "cut")),
        "stall": Fail(failed(FailureKind.TIMEOUT, "silent")),
        "length": StopReason.MAX_TOKENS,
    }
    for breaks in product(BREAKS, repeat=2):
        if end == "length" and breaks[0] in (0, 1):
            continue  # a limit that was reached before the first text must be raised in the agent's spec
        probe = Probe()
        system = await _executed(ContinuingModel(breaks, ends[end]), probe)
        state = system.record.state
        assert isinstance(state, Done), breaks
        assert state.termination == NaturalEnd(), (breaks, state)
        text = [one.message for one in system.log if one.message.role is Role.ASSISTANT]
        assert text[0].text == TEXT, (breaks, text)
        assert [one.text for one in probe.handed] == ["one", "two"], (breaks, probe.handed)
        check_thread(system.events)
        assert _shown(system) == [one.text for one in text], breaks


async def _executed(model: ContinuingModel, probe: Probe) -> MemorySystem:
    spec = AgentSpec(id=AgentId("tester"), model="m", tools=("probe",), retry=RETRY)
    agent = ResolvedAgent(spec=spec, model=ScriptedModel("m", model), tools={"probe": probe.tool})
    system = MemorySystem(spec)
    claimed = await system.start(here=True)
    assert claimed is not None
    run, _ = await system.load(claimed, agent, _NoOtherAgents(), Interruption())
    await system.advance(run)
    return system


class _NoOtherAgents(Agents):
    async def at_version(self, *_: object) -> UnknownAgentVersion:
        raise AssertionError("this agent never hands off")


def _shown(system: MemorySystem) -> list[str]:
    """The text that a client of the event stream has read, by step."""
    steps: list[str] = []
    for event in system.events:
        match event["event_type"]:
            case "step_start":
                steps.append("")
            case "stream_reset":
                steps[-1] = ""
            case "text_delta":
                steps[-1] += event["delta"]
    return steps
