"""What a backend supports and what a request needs. A lack is found before anything is written."""

from collections.abc import Collection
from enum import StrEnum

from msgspec import Struct

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
    """Where the state for further turns is kept; with `none` a run has one turn."""

    NONE = "none"
    IN_PROCESS_STATE = "in_process_state"
    REMOTE_STATE = "remote_state"


class Waits(StrEnum):
    """What a run may wait for."""

    NONE = "none"
    INPUT = "input"
    AUTH = "auth"
    INPUT_AND_AUTH = "input_and_auth"


class Transcript(StrEnum):
    """How much of the conversation the backend gets."""

    FULL = "full_transcript"
    INCREMENTAL_USER_MESSAGES = "incremental_user_messages_with_remote_state"
    SINGLE_PROMPT = "single_prompt"


class OutputKind(StrEnum):
    TEXT = "text"
    TEXT_AND_ARTIFACTS = "text_and_artifacts"


class Capabilities(Struct, frozen=True, kw_only=True):
    """What a backend supports. A request that needs more is refused before a run is created."""

    cancellation: Cancellation = Cancellation.NONE
    decisions: bool = False
    overrides: bool = False
    frontend_tools: bool = False
    limits: bool = False
    structured_output: bool = False
    """A run's final answer can be asked for in a format."""
    pause: bool = False
    """An executing run can be suspended at a step border."""
    replaces: bool = False
    """A run may replace the end of the conversation, because no remote agent remembers it."""
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
    structured_output=True,
    pause=True,
    replaces=True,
    continuation=Continuation.IN_PROCESS_STATE,
    waits=Waits.INPUT_AND_AUTH,
    transcript=Transcript.FULL,
    output=OutputKind.TEXT_AND_ARTIFACTS,
)
REMOTE_STATELESS_TEXT = Capabilities()


class RootNeeds(Struct, frozen=True, kw_only=True):
    """What a request needs of the backend."""

    decisions: bool = False
    overrides: bool = False
    frontend_tools: bool = False
    limits: bool = False
    structured_output: bool = False
    pause: bool = False
    replaces: bool = False
    continuation: bool = False


class DelegateNeeds(Struct, frozen=True, kw_only=True):
    """What an agent needs of its delegate's backend."""

    continuation: bool = False


def unsupported_root_features(offered: Capabilities, needs: RootNeeds) -> list[str]:
    """Names of the features that a request needs and the backend lacks, always in the same order."""
    lacks = {
        "decisions": needs.decisions and not offered.decisions,
        "overrides": needs.overrides and not offered.overrides,
        "frontend_tools": needs.frontend_tools and not offered.frontend_tools,
        "limits": needs.limits and not offered.limits,
        "structured_output": needs.structured_output and not offered.structured_output,
        "pause": needs.pause and not offered.pause,
        "replaces": needs.replaces and not offered.replaces,
        "continuation": needs.continuation and offered.continuation is Continuation.NONE,
    }
    return [name for name, is_lacking in lacks.items() if is_lacking]


def unsupported_delegate_features(offered: Capabilities, needs: DelegateNeeds) -> list[str]:
    """Names of the features that a child run needs and the backend lacks."""
    lacks_turns = needs.continuation and offered.continuation is Continuation.NONE
    return ["continuation"] if lacks_turns else []


def unsupported_message(agent_id: AgentId, features: Collection[str]) -> str:
    return f"agent '{agent_id}' backend does not support: {', '.join(features)}"
