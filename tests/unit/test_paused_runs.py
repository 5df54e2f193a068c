"""Which runs are paused: those with a pause request that no worker executes or cancels."""

import pytest

from app.domain.runs.pauses import PauseRequest
from app.domain.runs.runs import (
    Created,
    Done,
    Running,
    RunState,
    Usage,
    Waiting,
    WaitingReason,
    transport_in_request,
)
from app.domain.runs.terminations import NaturalEnd
from tests.support.records import AT, a_record

PAUSE = PauseRequest(AT, "ann")


@pytest.mark.parametrize(
    "state, is_paused",
    [
        (Created(True), True),
        (Waiting(WaitingReason.TOOL_PERMISSION, "x"), True),
        (Running(None), False),
        (Done(NaturalEnd(), AT), False),
    ],
)
def test_a_run_with_a_pause_request_is_paused_unless_running_or_done(
    state: RunState, is_paused: bool
) -> None:
    assert a_record(state=state, pause=PAUSE).is_paused is is_paused
    assert not a_record(state=state).is_paused
    assert not a_record(state=state, pause=PAUSE, cancel_requested_at=AT).is_paused
    assert not a_record(state=state, cancel_requested_at=AT).is_paused


def test_a_run_keeps_the_id_of_the_request_that_started_it() -> None:
    assert a_record(request=transport_in_request("req-1")).transport_request_id == "req-1"
    assert transport_in_request(None) == {}
    assert a_record().transport_request_id is None


def test_usage_adds_up() -> None:
    assert Usage(1, 2) + Usage(10, 20) == Usage(11, 22)
    assert Usage() == Usage(0, 0)
