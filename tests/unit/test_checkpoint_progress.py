"""Which checkpoints count as progress of a run, and which only mark calls as started."""

import pytest

from app.domain.checkpoints import CheckpointSaved, InputOrTasksPending
from app.domain.ids import TicketKey
from app.domain.structs import replace
from app.domain.tools.tool_calls import CallStatus, ToolResult, UnreportedOutcome
from tests.support.stored_runs import call_of, checkpoint_of, done, message, some_run, suspended

RUN = some_run()
MARKED = call_of(RUN, CallStatus.RUNNING)
MARK = checkpoint_of(RUN, calls=[MARKED])


def test_starting_a_call_is_no_progress() -> None:
    assert not MARK.is_progress
    assert not replace(MARK, calls=(MARKED, MARKED)).is_progress


@pytest.mark.parametrize(
    "more",
    [
        {"messages": (message("I will"),)},
        {"applied": (TicketKey("a ticket"),)},
        {"calls_settled": True},
        {"state": suspended()},
        {"state": done()},
        {"calls": (MARKED, call_of(RUN, CallStatus.SUCCEEDED, "another"))},
        {
            "calls": (
                replace(
                    call_of(RUN, CallStatus.FAILED),
                    unreported_outcome=UnreportedOutcome(ToolResult.error("transfer", "no")),
                ),
            )
        },
        {"calls": ()},
    ],
    ids=lambda more: ", ".join(more),
)
def test_a_checkpoint_with_any_outcome_is_progress(more: dict[str, object]) -> None:
    assert replace(MARK, **more).is_progress  # type: ignore[arg-type]  # fields of a checkpoint


def test_the_flags_of_a_checkpoint_are_off_by_default() -> None:
    assert not MARK.calls_settled
    assert not MARK.notifies_remote
    assert not MARK.owes_run_end


def test_a_checkpoint_result_names_inputs_tasks_and_a_pause_only_if_present() -> None:
    assert CheckpointSaved() == CheckpointSaved(unread_inputs=0, open_tasks=0, is_paused=False)
    assert not InputOrTasksPending(1, 0).is_paused
