"""What the command line shows and asks, where no process is needed to see it."""

import io
from typing import Any

import pytest

from app.cli.client.output import Output, visible
from app.cli.client.tail import line
from app.cli.client.ticket_prompt import approving, ask

APPROVAL: dict[str, Any] = {
    "id": "t1",
    "kind": "approval",
    "message": "May it?",
    "tool_name": "delete_file",
    "arguments": {"path": "/tmp/x"},
    "allowed_actions": ["approve", "cancel", "edit", "reject", "respond"],
}
UNKNOWN = APPROVAL | {
    "id": "t2",
    "kind": "outcome_unknown",
    "allowed_actions": ["approve", "cancel", "respond"],
}


def answered(monkeypatch: pytest.MonkeyPatch, ticket: dict[str, Any], typed: str) -> Any:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    return ask(ticket, Output())


def test_nothing_that_a_model_says_steers_the_terminal() -> None:
    assert visible("safe\x1b[2Jer\r\x9b1m\u202edoog\n\t–🎉") == (
        "safe\\x1b[2Jer\\r\\x9b1m\\u202edoog\n\t–🎉"
    )


def test_what_is_asked_for_approval_can_not_hide_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hidden = APPROVAL | {"arguments": {"path": "/etc\u202e", "\x1b[1A": "x" * 5000}}
    assert answered(monkeypatch, hidden, "a\n") == {"action": "approve"}
    shown = capsys.readouterr().err
    assert 'path = "/etc\\u202e"' in shown
    assert "\x1b" not in shown
    assert "x" * 5000 in shown


def test_only_what_is_allowed_is_offered_and_taken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answered(monkeypatch, UNKNOWN, "reject\nc\n") == {"action": "cancel"}
    assert "approve / respond / cancel (skip the call) / quit > " in capsys.readouterr().err


@pytest.mark.parametrize("typed", ["q\n", "", "edit\n", "\n"])
def test_who_stops_typing_leaves_it_open(monkeypatch: pytest.MonkeyPatch, typed: str) -> None:
    assert answered(monkeypatch, APPROVAL, typed) is None


def test_a_result_may_be_json_or_text(monkeypatch: pytest.MonkeyPatch) -> None:
    assert answered(monkeypatch, APPROVAL, 's\n{"n": 1}\n')["result"] == {"n": 1}
    assert answered(monkeypatch, APPROVAL, "respond\nall good\n")["result"] == "all good"


def test_yes_approves_approvals_once_and_leaves_other_questions_to_a_person() -> None:
    asked: list[str] = []

    def person(ticket: dict[str, Any]) -> None:
        asked.append(ticket["id"])

    answer = approving(person)
    assert answer(APPROVAL) == {"action": "approve"}
    assert answer(UNKNOWN) is None
    assert answer(APPROVAL) is None
    assert asked == ["t2", "t1"]


def test_a_line_of_a_tail_is_one_line() -> None:
    event = {
        "seq": 7,
        "ts": "2026-01-02T03:04:05.678Z",
        "thread_id": "t",
        "run_id": "r",
        "step": 1,
        "event_type": "text_delta",
        "delta": "a\nb\x1b" + "x" * 500,
    }
    told = line(event)
    assert told.startswith('    7 03:04:05.678  [1] text_delta           delta="a\\nb\\u001bxxx')
    assert told.endswith("x…")
    assert len(told) < 260
