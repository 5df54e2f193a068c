"""Progress: which checkpoints show that a run gets on, and which only that it was begun upon again."""

from dataclasses import replace

import pytest

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
