"""The HTTP application: faces, error handlers and bounds around a house that is already open."""

from typing import Any

from fastapi import Depends, FastAPI

from app.api import agents, health, resume, signals, stream_tokens
from app.api.inputs import pending, routes
from app.api.runs import background_tasks, explain, lineage, pauses, retry, start
from app.api.runs import routes as runs
from app.api.schemas.common import Problem
from app.api.threads import actions
from app.api.threads import routes as threads
from app.api.tickets import audit, rules
from app.api.tickets import routes as tickets
from app.bootstrap.application import Application
from app.http import errors, idempotency_key
from app.http.auth import Authenticator
from app.http.error_codes import declare_errors
from app.http.headers import require_readable
from app.http.limits.abandoned_requests import AbandonedRequests
from app.http.limits.body_size import BoundedBody
from app.http.limits.draining import CloseWhileDraining, DrainState
from app.http.limits.long_polls import LongPolls
from app.http.openapi import declare_security
from app.http.query_params import require_known_query
from app.http.sse import StreamOptions
from app.http.stream_grants import StreamTokenSigner
from app.settings import Settings

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
            declare_errors(document, Problem.model_json_schema(), errors.PROBLEM)
        return super().openapi()


def create_app(house: Application, authenticator: Authenticator) -> FastAPI:
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
    app.state.ctx = house.ctx
    app.state.worker = house.worker
    app.state.liveness = house.heartbeat
    app.state.relay = house.relay
    app.state.doorkeeper = authenticator
    app.state.stream_token_signer = StreamTokenSigner(house.stream_token_secrets)
    app.state.stream_token_ttl = settings.stream_token_ttl
    app.state.drain_state = DrainState()
    app.state.long_polls = LongPolls()
    app.state.stream_options = StreamOptions(
        heartbeat=settings.stream_heartbeat, send_timeout=settings.stream_send_timeout
    )
    errors.install(app)
    idempotency_key.install(app)
    app.add_middleware(BoundedBody, most_bytes=settings.max_body_bytes)
    app.add_middleware(AbandonedRequests)
    app.add_middleware(CloseWhileDraining, drain_state=app.state.drain_state)
    strictly = [Depends(require_readable), Depends(require_known_query)]
    about_runs = (start, runs, retry, resume, pauses, routes, pending, explain, lineage)
    for face in (
        *about_runs,
        threads,
        actions,
        tickets,
        audit,
        rules,
        signals,
        background_tasks,
        agents,
        stream_tokens,
    ):
        app.include_router(face.router, dependencies=strictly)
    app.include_router(health.router)
    # Built here: the first client to ask for the document would hold all others up.
    app.openapi()
    return app
