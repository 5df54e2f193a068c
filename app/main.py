"""The HTTP application: faces, error handlers and bounds around a house that is already open."""

from typing import Any

from fastapi import Depends, FastAPI

from app.api import (
    agents,
    audit,
    explanations,
    health,
    inputs,
    lineage,
    pauses,
    resume,
    retries,
    rules,
    runs,
    signals,
    starts,
    stream_tokens,
    tasks,
    threads,
    tickets,
    unread,
    whole_threads,
)
from app.api.schemas.common import Problem
from app.settings import Settings
from app.transport import errors, repetitions
from app.transport.auth import Doorkeeper
from app.transport.bounds import BoundedBody
from app.transport.departure import Departure, LastAnswers
from app.transport.given_up import GivenUp
from app.transport.headers import require_readable
from app.transport.openapi import declare_security
from app.transport.polls import LongPolls
from app.transport.queries import require_known_query
from app.transport.refusals import declare_refusals
from app.transport.sse import StreamOptions
from app.transport.stream_grants import StreamTokenSigner
from app.wiring.house import House

_DESCRIPTION = """
LLM agents as a service: runs that survive crashes, decisions that are never lost, streams that resume.

Start a run, follow its events, answer the tickets that it opens. Every error is
`application/problem+json` with a stable `code`; each operation names its own, and before there is one
a connection may be told `malformed_request` (400), `request_timeout` (408) or `headers_too_large` (431).
Every list is `{items, next_cursor, has_more}`.
Streams are Server-Sent Events: reconnect with `Last-Event-ID` and miss nothing.
"""


class _App(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """Says who is let in, and by which codes others are refused: no framework could know that."""
        if self.openapi_schema is None:
            document = super().openapi()
            declare_security(document, is_keyless=self.state.doorkeeper.is_keyless)
            declare_refusals(document, Problem.model_json_schema(), errors.PROBLEM)
        return super().openapi()


def create_app(house: House, door: Doorkeeper) -> FastAPI:
    """The application over an open house; it owns nothing that would have to be closed."""
    settings: Settings = house.settings
    app = _App(
        title="Holdfast",
        version="0.1.0",
        description=_DESCRIPTION,
        docs_url="/docs",
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.desk = house.desk
    app.state.worker = house.worker
    app.state.liveness = house.liveness
    app.state.relay = house.relay
    app.state.doorkeeper = door
    app.state.stream_token_signer = StreamTokenSigner(house.stream_token_secrets)
    app.state.stream_token_ttl = settings.stream_token_ttl
    app.state.departure = Departure()
    app.state.long_polls = LongPolls()
    app.state.stream_options = StreamOptions(
        heartbeat=settings.stream_heartbeat, send_timeout=settings.stream_send_timeout
    )
    errors.install(app)
    repetitions.install(app)
    app.add_middleware(BoundedBody, most_bytes=settings.max_body_bytes)
    app.add_middleware(GivenUp)
    app.add_middleware(LastAnswers, departure=app.state.departure)
    strictly = [Depends(require_readable), Depends(require_known_query)]
    about_runs = (starts, runs, retries, resume, pauses, inputs, unread, explanations, lineage)
    for face in (
        *about_runs,
        threads,
        whole_threads,
        tickets,
        audit,
        rules,
        signals,
        tasks,
        agents,
        stream_tokens,
    ):
        app.include_router(face.router, dependencies=strictly)
    app.include_router(health.router)
    # Built here: the first client to ask for the document would hold all others up.
    app.openapi()
    return app
