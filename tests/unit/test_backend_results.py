"""The result of a backend's turn: its public and stored status, and its output as JSON."""

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
def test_a_status_shows_its_message_when_it_has_one(status: BackendStatus, words: str) -> None:
    assert display(status) == words


@pytest.mark.parametrize(
    "status, persisted",
    [
        (Completed(), PersistedStatus(RunStatus.DONE, "natural")),
        (WaitingInput(), PersistedStatus(RunStatus.WAITING, "input_required")),
        (WaitingAuth(), PersistedStatus(RunStatus.WAITING, "auth_required")),
        (BackendSuspended(), PersistedStatus(RunStatus.WAITING, "suspended")),
        (BackendFailed("x"), PersistedStatus(RunStatus.DONE, "error")),
        (BackendCancelled(), PersistedStatus(RunStatus.DONE, "cancelled")),
        (TimedOut(), PersistedStatus(RunStatus.DONE, "timeout")),
    ],
)
def test_a_backend_status_decides_the_stored_run_status(
    status: BackendStatus, persisted: PersistedStatus
) -> None:
    assert persisted_status(status, NaturalEnd()) == persisted


@pytest.mark.parametrize(
    "termination, status",
    [
        (None, BackendSuspended()),
        (NaturalEnd(), Completed()),
        (BehaviorRequested(), Completed()),
        (Cancelled(), BackendCancelled()),
        (Stopped("quota:day", "x"), BackendFailed("stopped: quota:day")),
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


def test_output_as_json_omits_missing_fields() -> None:
    assert output_to_json(BackendOutput()) == {}
    full = BackendOutput(
        text="", artifacts=(Artifact(content=1, id="a"), Artifact(content=None)), raw=0
    )
    body = {"text": "", "artifacts": [{"id": "a", "content": 1}, {"content": None}], "raw": 0}
    assert output_to_json(full) == body
    for output in (full, BackendOutput(), BackendOutput(raw=[1]), BackendOutput(text="x")):
        assert output_from_json(output_to_json(output)) == output


def test_a_backend_result_has_no_steps_by_default() -> None:
    assert BackendResult(status=Completed()).steps == 0


def test_a_remote_question_is_no_login_by_default() -> None:
    assert not RemoteQuestion(name="q", message="Which one?").is_login
