"""What an A2A endpoint may say of itself, and what agents behind one can do."""

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
    """Of an A2A endpoint. Seconds."""

    poll_interval: float = Field(default=2.0, gt=0, le=3600)
    """The longest pause between two questions about a task."""
    streaming: bool = True
    retry_seconds: float = Field(default=30.0, gt=0, le=86_400)
    """How long the remote may be out of reach in the middle of a task."""
    card_path: str | None = None
    """Where its card is, when that isn't the usual place."""
