"""Output and prompts of the command line, without a process."""

import io
from typing import Any

import pytest

from app.cli.client.event_lines import EventLines
from app.cli.client.output import Output, visible
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


def test_text_of_a_model_cannot_control_the_terminal() -> None:
    assert visible("safe\x1b[2Jer\r\x9b1m\u202edoog\n\t–🎉") == (
        "safe\\x1b[2Jer\\r\\x9b1m\\u202edoog\n\t–🎉"
    )


def test_arguments_that_need_approval_are_shown_completely(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hidden = APPROVAL | {"arguments": {"path": "/etc\u202e", "\x1b[1A": "x" * 5000}}
    assert answered(monkeypatch, hidden, "a\n") == {"action": "approve"}
    shown = capsys.readouterr().err
    assert 'path = "/etc\\u202e"' in shown
    assert "\x1b" not in shown
    assert "x" * 5000 in shown


def test_only_allowed_actions_are_offered_and_accepted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answered(monkeypatch, UNKNOWN, "reject\nc\n") == {"action": "cancel"}
    assert "approve / respond / cancel (skip the call) / quit > " in capsys.readouterr().err


@pytest.mark.parametrize("typed", ["q\n", "", "edit\n", "\n"])
def test_the_end_of_input_leaves_the_ticket_open(
    monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
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


def written(*events: dict[str, Any]) -> None:
    lines = EventLines()
    for event in events:
        lines.write({"ts": "2026-01-02T03:04:05.678Z", "thread_id": "t", **event})
    lines.end_text()


def test_each_event_of_a_tail_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    written(
        {"event_type": "run_created", "agent_id": "demo"},
        {"event_type": "tool_call_ready", "name": "add", "arguments": {"a": "1\n2\x1b"}},
        {
            "event_type": "tool_call_done",
            "result": {"status": "done", "outcome": "succeeded", "text": "a\nb"},
        },
        {"event_type": "tool_call_done", "result": {"status": "waiting"}},
        {"event_type": "made_later", "of": {"x": "y" * 500}},
    )
    first, second, done, waiting, third = capsys.readouterr().out.splitlines()
    assert done == "03:04:05 tool_call_done     succeeded: a b"
    assert waiting == "03:04:05 tool_call_done     waiting"
    assert first == "03:04:05 run_created        agent_id=demo"
    assert second == '03:04:05 tool_call_ready    add {"a":"1\\n2\\u001b"}'
    assert third.endswith("y…")
    assert len(third) < 260


def test_the_text_of_a_tail_is_written_as_it_comes(capsys: pytest.CaptureFixture[str]) -> None:
    written(
        {"event_type": "reasoning_delta", "delta": "Hm."},
        {"event_type": "text_delta", "delta": "one "},
        {"event_type": "text_delta", "delta": "two\x1b"},
        {"event_type": "step_end"},
        {"event_type": "text_delta", "delta": "three\n"},
        {"event_type": "step_end"},
    )
    assert capsys.readouterr().out == (
        "Hm.\none two\\x1b\n03:04:05 step_end\nthree\n03:04:05 step_end\n"
    )
