"""What a backend can do, and what a request needs of it; a lack is known before anything is written."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from app.domain.ids import AgentId


class Cancellation(StrEnum):
    """How a run that executes can be stopped."""

    NONE = "none"
    COOPERATIVE_TOKEN = "cooperative_token"
    REMOTE_ABORT = "remote_abort"
    COOPERATIVE_TOKEN_AND_REMOTE_ABORT = "cooperative_token_and_remote_abort"

    @property
    def supports_cooperative_token(self) -> bool:
        return self in (
            Cancellation.COOPERATIVE_TOKEN,
            Cancellation.COOPERATIVE_TOKEN_AND_REMOTE_ABORT,
        )

    @property
    def supports_remote_abort(self) -> bool:
        return self in (Cancellation.REMOTE_ABORT, Cancellation.COOPERATIVE_TOKEN_AND_REMOTE_ABORT)


class Continuation(StrEnum):
    """Where what a run continues from is kept; with none, a run has one turn."""

    NONE = "none"
    IN_PROCESS_STATE = "in_process_state"
    REMOTE_STATE = "remote_state"


class Waits(StrEnum):
    """What a run may come to wait for."""

    NONE = "none"
    INPUT = "input"
    AUTH = "auth"
    INPUT_AND_AUTH = "input_and_auth"


class Transcript(StrEnum):
    """How much of the conversation the executing side is given."""

    FULL = "full_transcript"
    INCREMENTAL_USER_MESSAGES = "incremental_user_messages_with_remote_state"
    SINGLE_PROMPT = "single_prompt"


class OutputKind(StrEnum):
    TEXT = "text"
    TEXT_AND_ARTIFACTS = "text_and_artifacts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a backend declares; whatever it doesn't is refused before a run is there."""

    cancellation: Cancellation = Cancellation.NONE
    decisions: bool = False
    overrides: bool = False
    frontend_tools: bool = False
    limits: bool = False
    pause: bool = False
    """A run that executes can be suspended at a step border."""
    continuation: Continuation = Continuation.NONE
    waits: Waits = Waits.NONE
    transcript: Transcript = Transcript.SINGLE_PROMPT
    output: OutputKind = OutputKind.TEXT


FULL = Capabilities(
    cancellation=Cancellation.COOPERATIVE_TOKEN,
    decisions=True,
    overrides=True,
    frontend_tools=True,
    limits=True,
    pause=True,
    continuation=Continuation.IN_PROCESS_STATE,
    waits=Waits.INPUT_AND_AUTH,
    transcript=Transcript.FULL,
    output=OutputKind.TEXT_AND_ARTIFACTS,
)
REMOTE_STATELESS_TEXT = Capabilities()


@dataclass(frozen=True, slots=True, kw_only=True)
class RootNeeds:
    """What a request asks of whoever executes its run."""

    decisions: bool = False
    overrides: bool = False
    frontend_tools: bool = False
    limits: bool = False
    pause: bool = False
    continuation: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegateNeeds:
    """What an agent asks of another one that it gives work to."""

    persistence: bool = False
    """The child's run shall be kept, not only its result."""
    continuation: bool = False


def unsupported_root_features(offered: Capabilities, needs: RootNeeds) -> list[str]:
    """Names of what a request needs and isn't offered, always in the same order."""
    lacks = {
        "decisions": needs.decisions and not offered.decisions,
        "overrides": needs.overrides and not offered.overrides,
        "frontend_tools": needs.frontend_tools and not offered.frontend_tools,
        "limits": needs.limits and not offered.limits,
        "pause": needs.pause and not offered.pause,
        "continuation": needs.continuation and offered.continuation is Continuation.NONE,
    }
    return [name for name, is_lacking in lacks.items() if is_lacking]


def unsupported_delegate_features(
    offered: Capabilities, needs: DelegateNeeds, *, keeps_children: bool = True
) -> list[str]:
    """The same for a child run; whether one can be kept is up to us and not to who executes it."""
    lacks = {
        "delegate_persistence": needs.persistence and not keeps_children,
        "continuation": needs.continuation and offered.continuation is Continuation.NONE,
    }
    return [name for name, is_lacking in lacks.items() if is_lacking]


def unsupported_message(agent_id: AgentId, features: Collection[str]) -> str:
    return f"agent '{agent_id}' backend does not support: {', '.join(features)}"
