"""Checkpoints: which of them count as progress, and what one does unless it says otherwise."""

from dataclasses import replace
from typing import Any

import pytest

from app.domain.checkpoints import Checkpoint, Saved, Unsettled
from app.domain.ids import CallId, TicketKey
from app.domain.messages import Role, ToolCall
from app.domain.runs import Done, MessageOutput, Running, RunState, Usage, Waiting, WaitingReason
from app.domain.terminations import NaturalEnd
from app.domain.tool_calls import CallState, CallStatus, Effect
from tests.support.logs import message
from tests.support.records import AT, a_record


def a_call(status: CallStatus) -> CallState:
    return CallState(
        call=ToolCall(CallId(status.value), "pay", {}),
        step_index=0,
        position=0,
        status=status,
        effect=Effect.UNSAFE,
        idempotency_key="key",
    )


RECORD = a_record()
MARKS = Checkpoint(
    tenant=RECORD.tenant,
    run_id=RECORD.id,
    thread_id=RECORD.thread_id,
    attempt=1,
    next_seq=1,
    state=Running(None),
    messages=(),
    output=MessageOutput(),
    steps=0,
    usage=Usage(),
    run_state={},
    calls=(a_call(CallStatus.RUNNING),),
)
ENDS: list[RunState] = [Done(NaturalEnd(), AT), Waiting(WaitingReason.TOOL_PERMISSION, "x")]


def test_handing_calls_to_their_tools_is_no_progress() -> None:
    assert not MARKS.is_progress


@pytest.mark.parametrize(
    "changes",
    [
        {"calls": ()},
        {"calls": (a_call(CallStatus.RUNNING), a_call(CallStatus.SUCCEEDED))},
        {"calls": (a_call(CallStatus.SUCCEEDED),)},
        {"messages": (message("m", Role.TOOL, "done"),)},
        {"applied": (TicketKey("key"),)},
        {"calls_settled": True},
        *({"state": state} for state in ENDS),
    ],
)
def test_everything_else_is_progress(changes: dict[str, Any]) -> None:
    assert replace(MARKS, **changes).is_progress


def test_a_checkpoint_does_only_what_it_says() -> None:
    assert not MARKS.calls_settled
    assert not MARKS.tells_remote
    assert not MARKS.owes_run_end


def test_a_run_is_saved_without_inputs_tasks_and_pause_unless_the_answer_names_them() -> None:
    assert Saved() == Saved(unread_inputs=0, open_tasks=0, is_paused=False)
    assert not Unsettled(1, 0).is_paused
