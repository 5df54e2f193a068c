"""Threads: a new run waits while another has the thread or others wait."""

from typing import Any

import pytest

from app.domain.ids import RunId, ThreadId
from app.domain.threads.threads import Thread
from tests.support.records import AT


def a_thread(**fields: Any) -> Thread:
    defaults: dict[str, Any] = {
        "key": None,
        "title": None,
        "resource_id": None,
        "parent_thread_id": None,
        "next_message_seq": 1,
        "open_run_id": None,
        "latest_run_id": None,
        "queue_length": 0,
    }
    return Thread(
        id=ThreadId("thread"), metadata={}, created_at=AT, updated_at=AT, **{**defaults, **fields}
    )


@pytest.mark.parametrize(
    "open_run_id, queue_length, is_occupied",
    [(None, 0, False), (RunId("r"), 0, True), (None, 1, True), (RunId("r"), 2, True)],
)
def test_a_thread_is_occupied_by_its_open_run_and_its_queue(
    open_run_id: RunId | None, queue_length: int, is_occupied: bool
) -> None:
    thread = a_thread(open_run_id=open_run_id, queue_length=queue_length)
    assert thread.is_occupied is is_occupied


def test_the_messages_of_a_thread_are_counted_from_1() -> None:
    assert a_thread().message_count == 0
    assert a_thread(next_message_seq=4).message_count == 3
