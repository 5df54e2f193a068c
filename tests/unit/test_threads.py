"""Threads: a new run waits while another has the thread or others wait."""

from typing import Any

import pytest

from app.domain.ids import RunId, ThreadId
from app.domain.threads.threads import Thread
from tests.support.records import AT


@pytest.mark.parametrize(
    "open_run_id, queue_length, is_occupied",
    [(None, 0, False), (RunId("r"), 0, True), (None, 1, True), (RunId("r"), 2, True)],
)
def test_a_thread_is_occupied_by_its_open_run_and_its_queue(
    open_run_id: RunId | None, queue_length: int, is_occupied: bool
) -> None:
    kept: dict[str, Any] = {
        "title": None,
        "resource_id": None,
        "parent_thread_id": None,
        "latest_run_id": None,
    }
    thread = Thread(
        id=ThreadId("thread"),
        metadata={},
        next_message_seq=1,
        open_run_id=open_run_id,
        queue_length=queue_length,
        created_at=AT,
        updated_at=AT,
        **kept,
    )
    assert thread.is_occupied is is_occupied
