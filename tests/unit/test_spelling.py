"""Which known name is suggested for one that is misspelt."""

import pytest

from app.domain.spelling import MAX_NAME_LENGTH, closest_name

LONGEST = "x" * MAX_NAME_LENGTH


@pytest.mark.parametrize(
    ("wanted", "known", "meant"),
    [
        ("thread_idd", ["thread_id", "run_id"], "thread_id"),
        ("messages", ["message", "messages_", "massages"], "messages_"),
        ("THREAD_ID", ["Thread_Id"], "Thread_Id"),
        ("colour", ["amount", "reason"], None),
        ("anything", [], None),
        (LONGEST, [f"{LONGEST}x"], f"{LONGEST}x"),
        (f"{LONGEST}x", [LONGEST], None),
    ],
)
def test_the_most_similar_name_is_suggested(
    wanted: str, known: list[str], meant: str | None
) -> None:
    assert closest_name(wanted, known) == meant
