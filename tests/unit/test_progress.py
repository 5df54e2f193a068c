"""Progress: which checkpoints show that a run gets on, and which only that it was begun upon again."""

from dataclasses import replace

import pytest

from app.domain.checkpoints import CheckpointSaved, InputOrTasksPending
from app.domain.ids import TicketKey
from app.domain.tools.tool_calls import CallStatus, ToolResult, UnreportedOutcome
from tests.support.stored_runs import call_of, checkpoint_of, done, message, some_run, suspended

RUN = some_run()
MARKED = call_of(RUN, CallStatus.RUNNING)
MARK = checkpoint_of(RUN, calls=[MARKED])


def test_a_call_that_is_handed_out_is_no_progress() -> None:
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
def test_anything_that_came_of_it_is(more: dict[str, object]) -> None:
    assert replace(MARK, **more).is_progress  # type: ignore[arg-type]  # fields of a checkpoint


def test_a_checkpoint_does_only_what_it_says() -> None:
    assert not MARK.calls_settled
    assert not MARK.notifies_remote
    assert not MARK.owes_run_end


def test_an_answer_to_a_checkpoint_names_inputs_tasks_and_a_pause_only_where_there_are_some() -> (
    None
):
    assert CheckpointSaved() == CheckpointSaved(unread_inputs=0, open_tasks=0, is_paused=False)
    assert not InputOrTasksPending(1, 0).is_paused
