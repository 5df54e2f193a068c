"""The options of an A2A endpoint, and the capabilities of its agents."""

from pydantic import Field

from app.backends.endpoint_options import EndpointOptions
from app.domain.agents.capabilities import (
    Cancellation,
    Capabilities,
    Continuation,
    OutputKind,
    Transcript,
    Waits,
)

CAPABILITIES = Capabilities(
    cancellation=Cancellation.REMOTE_ABORT,
    decisions=True,
    continuation=Continuation.REMOTE_STATE,
    waits=Waits.INPUT_AND_AUTH,
    transcript=Transcript.INCREMENTAL_USER_MESSAGES,
    output=OutputKind.TEXT_AND_ARTIFACTS,
)


class A2AOptions(EndpointOptions):
    """Options of an A2A endpoint. Times are in seconds."""

    poll_interval: float = Field(default=2.0, gt=0, le=3600)
    """Maximum delay between two polls of a task."""
    streaming: bool = True
    retry_seconds: float = Field(default=30.0, gt=0, le=86_400)
    """How long the remote may be unreachable during a task."""
    card_path: str | None = None
    """Path of the agent's card, if it isn't the usual one."""
