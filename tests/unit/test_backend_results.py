"""What a backend's turn gives: its status in words and in rows, and its output as JSON."""

import pytest

from app.domain.agents.backend_results import (
    Artifact,
    BackendCancelled,
    BackendFailed,
    BackendOutput,
    BackendResult,
    BackendStatus,
    BackendSuspended,
    Completed,
    PersistedStatus,
    RemoteQuestion,
    TimedOut,
    WaitingAuth,
    WaitingInput,
    display,
    output_from_json,
    output_to_json,
    persisted_status,
    status_of_termination,
)
from app.domain.runs.runs import RunStatus
from app.domain.runs.terminations import (
    BehaviorRequested,
    Blocked,
    Cancelled,
    Failed,
    NaturalEnd,
    Stopped,
    Termination,
)


@pytest.mark.parametrize(
    "status, words",
    [
        (Completed(), "completed"),
        (WaitingInput(), "waiting_input"),
        (WaitingInput("Which one?"), "waiting_input: Which one?"),
        (WaitingInput(""), "waiting_input: "),
        (WaitingAuth("Log in"), "waiting_auth: Log in"),
        (BackendSuspended(), "suspended"),
        (BackendSuspended("later"), "suspended: later"),
        (BackendFailed("no paper"), "failed: no paper"),
        (BackendCancelled(), "cancelled"),
        (TimedOut(), "timeout"),
    ],
)
def test_a_status_in_words_has_its_message_when_there_is_one(
    status: BackendStatus, words: str
) -> None:
    assert display(status) == words


@pytest.mark.parametrize(
    "status, kept",
    [
        (Completed(), PersistedStatus(RunStatus.DONE, "natural", "done")),
        (WaitingInput(), PersistedStatus(RunStatus.WAITING, "input_required", "waiting_input")),
        (WaitingAuth(), PersistedStatus(RunStatus.WAITING, "auth_required", "waiting_auth")),
        (BackendSuspended(), PersistedStatus(RunStatus.WAITING, "suspended", "suspended")),
        (BackendFailed("x"), PersistedStatus(RunStatus.DONE, "error", "failed")),
        (BackendCancelled(), PersistedStatus(RunStatus.DONE, "cancelled", "cancelled")),
        (TimedOut(), PersistedStatus(RunStatus.DONE, "timeout", "timeout")),
    ],
)
def test_a_status_decides_what_is_kept_of_the_run(
    status: BackendStatus, kept: PersistedStatus
) -> None:
    assert persisted_status(status, NaturalEnd()) == kept


@pytest.mark.parametrize(
    "termination, status",
    [
        (None, BackendSuspended()),
        (NaturalEnd(), Completed()),
        (BehaviorRequested(), Completed()),
        (Cancelled(), BackendCancelled()),
        (Stopped("max_rounds", "a: b"), BackendFailed("stopped: max_rounds")),
        (Blocked("no: never"), BackendFailed("blocked: no: never")),
        (Failed("error", "no paper"), BackendFailed("no paper")),
    ],
)
def test_the_end_of_a_run_is_shown_as_a_status(
    termination: Termination | None, status: BackendStatus
) -> None:
    assert status_of_termination(termination) == status


@pytest.mark.parametrize(
    "output, is_empty",
    [
        (BackendOutput(), True),
        (BackendOutput(text=""), True),
        (BackendOutput(text="x"), False),
        (BackendOutput(artifacts=(Artifact(content=1),)), False),
        (BackendOutput(raw={}), False),
        (BackendOutput(raw=0), False),
        (BackendOutput(text="x", raw=1), False),
    ],
)
def test_output_is_empty_without_text_artifacts_and_raw(
    output: BackendOutput, is_empty: bool
) -> None:
    assert output.is_empty is is_empty


def test_empty_text_is_text_and_missing_text_has_a_fallback() -> None:
    assert BackendOutput(text="").text_or("else") == ""
    assert BackendOutput(text="x").text_or("else") == "x"
    assert BackendOutput().text_or("else") == "else"


def test_output_as_json_leaves_out_what_is_missing() -> None:
    assert output_to_json(BackendOutput()) == {}
    full = BackendOutput(
        text="", artifacts=(Artifact(content=1, id="a"), Artifact(content=None)), raw=0
    )
    body = {"text": "", "artifacts": [{"id": "a", "content": 1}, {"content": None}], "raw": 0}
    assert output_to_json(full) == body
    for output in (full, BackendOutput(), BackendOutput(raw=[1]), BackendOutput(text="x")):
        assert output_from_json(output_to_json(output)) == output


def test_a_result_of_a_backend_counts_no_steps_unless_it_says_so() -> None:
    assert BackendResult(status=Completed()).steps == 0


def test_a_question_of_a_remote_is_no_login_unless_it_says_so() -> None:
    assert not RemoteQuestion(name="q", message="Which one?").is_login
