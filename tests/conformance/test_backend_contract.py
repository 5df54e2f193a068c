"""Backends: how each status is stored and shown, and which features are refused."""

import pytest

from app.domain.agents.backend_results import (
    Artifact,
    BackendCancelled,
    BackendFailed,
    BackendOutput,
    BackendStatus,
    BackendSuspended,
    Completed,
    PersistedStatus,
    TimedOut,
    WaitingAuth,
    WaitingInput,
    display,
    output_from_json,
    output_to_json,
    persisted_status,
    status_of_termination,
)
from app.domain.agents.capabilities import (
    FULL,
    REMOTE_STATELESS_TEXT,
    Cancellation,
    Continuation,
    DelegateNeeds,
    OutputKind,
    RootNeeds,
    Transcript,
    Waits,
    unsupported_delegate_features,
    unsupported_message,
    unsupported_root_features,
)
from app.domain.ids import AgentId
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

ERROR = Failed("error", "the detail of the error")
DONE, WAITING = RunStatus.DONE, RunStatus.WAITING


def test_backend_status_timeout_is_first_class_at_runtime_boundary() -> None:
    assert persisted_status(TimedOut(), ERROR) == PersistedStatus(DONE, "timeout")


def test_backend_status_waiting_is_first_class_at_runtime_boundary() -> None:
    persisted = persisted_status(WaitingInput("which one?"), ERROR)
    assert persisted == PersistedStatus(WAITING, "input_required")


@pytest.mark.parametrize(
    "status, shown, persisted",
    [
        (
            WaitingInput(),
            "waiting_input",
            PersistedStatus(WAITING, "input_required"),
        ),
        (
            WaitingAuth("x"),
            "waiting_auth: x",
            PersistedStatus(WAITING, "auth_required"),
        ),
        (BackendSuspended("x"), "suspended: x", PersistedStatus(WAITING, "suspended")),
        (BackendFailed("x"), "failed: x", PersistedStatus(DONE, "error")),
        (BackendCancelled(), "cancelled", PersistedStatus(DONE, "cancelled")),
        (TimedOut(), "timeout", PersistedStatus(DONE, "timeout")),
        (Completed(), "completed", PersistedStatus(DONE, "error")),
    ],
)
def test_each_status_has_its_own_public_and_stored_value(
    status: BackendStatus, shown: str, persisted: PersistedStatus
) -> None:
    assert display(status) == shown
    assert persisted_status(status, ERROR) == persisted


@pytest.mark.parametrize(
    "termination, reason",
    [
        (NaturalEnd(), "natural"),
        (BehaviorRequested(), "behavior_requested"),
        (Cancelled(), "cancelled"),
        (Blocked("no"), "blocked:no"),
        (Stopped("max_rounds"), "stopped:max_rounds"),
    ],
)
def test_the_termination_decides_the_status_of_a_completed_result(
    termination: Termination, reason: str
) -> None:
    assert persisted_status(Completed(), termination).reason == reason


@pytest.mark.parametrize(
    "termination, status",
    [
        (NaturalEnd(), Completed()),
        (BehaviorRequested(), Completed()),
        (Cancelled("why"), BackendCancelled()),
        (Stopped("max_rounds"), BackendFailed("stopped: max_rounds")),
        (Blocked("no"), BackendFailed("blocked: no")),
        (None, BackendSuspended()),
        (Failed("code", "it broke"), BackendFailed("it broke")),
    ],
)
def test_an_end_of_our_own_loop_is_a_backends_status(
    termination: Termination | None, status: BackendStatus
) -> None:
    assert status_of_termination(termination) == status


def test_missing_capabilities_of_a_request_are_named_in_order() -> None:
    everything = RootNeeds(decisions=True, overrides=True, frontend_tools=True, continuation=True)
    lacking = unsupported_root_features(REMOTE_STATELESS_TEXT, everything)
    assert lacking == ["decisions", "overrides", "frontend_tools", "continuation"]
    assert unsupported_root_features(FULL, everything) == []
    assert unsupported_root_features(REMOTE_STATELESS_TEXT, RootNeeds()) == []
    assert (
        unsupported_message(AgentId("far"), lacking)
        == "agent 'far' backend does not support: decisions, overrides, frontend_tools, continuation"
    )


def test_missing_capabilities_of_a_delegation_are_named() -> None:
    needs = DelegateNeeds(continuation=True)
    assert unsupported_delegate_features(REMOTE_STATELESS_TEXT, needs) == ["continuation"]
    assert unsupported_delegate_features(FULL, needs) == []


def test_the_presets_offer_everything_and_nothing() -> None:
    assert FULL.cancellation is Cancellation.COOPERATIVE_TOKEN
    assert (FULL.decisions, FULL.overrides, FULL.frontend_tools) == (True, True, True)
    assert (FULL.continuation, FULL.waits) == (
        Continuation.IN_PROCESS_STATE,
        Waits.INPUT_AND_AUTH,
    )
    assert (FULL.transcript, FULL.output) == (Transcript.FULL, OutputKind.TEXT_AND_ARTIFACTS)
    least = REMOTE_STATELESS_TEXT
    assert least.cancellation is Cancellation.NONE
    assert (least.decisions, least.overrides, least.frontend_tools) == (False, False, False)
    assert (least.continuation, least.waits) == (Continuation.NONE, Waits.NONE)
    assert (least.transcript, least.output) == (Transcript.SINGLE_PROMPT, OutputKind.TEXT)


@pytest.mark.parametrize(
    "cancellation, token, abort",
    [
        (Cancellation.NONE, False, False),
        (Cancellation.COOPERATIVE_TOKEN, True, False),
        (Cancellation.REMOTE_ABORT, False, True),
        (Cancellation.COOPERATIVE_TOKEN_AND_REMOTE_ABORT, True, True),
    ],
)
def test_each_way_to_cancel_names_what_it_supports(
    cancellation: Cancellation, token: bool, abort: bool
) -> None:
    assert cancellation.supports_cooperative_token is token
    assert cancellation.supports_remote_abort is abort


def test_an_output_omits_unset_fields() -> None:
    output = BackendOutput(text="made", artifacts=(Artifact(id="a1", content={"n": 1}),))
    assert output_to_json(output) == {
        "text": "made",
        "artifacts": [{"id": "a1", "content": {"n": 1}}],
    }
    assert output_from_json(output_to_json(output)) == output
    assert output_to_json(BackendOutput()) == {}
    assert BackendOutput().text_or("else") == "else"
    assert BackendOutput(text="").text_or("else") == ""
