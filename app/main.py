"""The HTTP application: routes, error handlers and request limits."""

from typing import Any

from fastapi import Depends, FastAPI
from starlette.types import ASGIApp

from app.api import (
    agents,
    changes,
    health,
    me,
    problems,
    server,
    signals,
    start_pages,
    stream_tokens,
    usage,
    workers,
)
from app.api.files import routes as files
from app.api.inputs import pending, routes
from app.api.mcp import access as mcp_access
from app.api.mcp import routes as mcp_servers
from app.api.memories import export as memory_export
from app.api.memories import routes as memories
from app.api.runs import (
    background_tasks,
    explain,
    interruptions,
    lineage,
    retry,
    start,
    summaries,
)
from app.api.runs import routes as runs
from app.api.schemas.common import Problem
from app.api.schemas.descriptions import DESCRIPTIONS, TAGS
from app.api.schemas.events.union import declare_events
from app.api.threads import actions
from app.api.threads import routes as threads
from app.api.tickets import audit, decisions, rules
from app.api.tickets import routes as tickets
from app.bootstrap.application import Application
from app.console import routes as console
from app.console import sign_in
from app.console.assets import load_assets
from app.distribution import VERSION
from app.http import errors, idempotency_key
from app.http.auth import Authenticator
from app.http.compression.responses import Compression
from app.http.error_codes import declare_errors
from app.http.headers import require_readable
from app.http.limits.abandoned_requests import AbandonedRequests
from app.http.limits.body_size import BoundedBody
from app.http.limits.draining import CloseWhileDraining, DrainState
from app.http.limits.long_polls import LongPolls
from app.http.limits.opening_turns import OpeningTurns
from app.http.openapi import (
    OpenAPIDocument,
    declare_descriptions,
    declare_security,
    operation_id,
    rename_schemas,
    simplify_properties,
)
from app.http.origins.cors import CrossOrigin
from app.http.query_params import require_known_query
from app.http.request_log import RequestLog
from app.http.routing.route_table import RouteTable, route_rows
from app.http.sessions.signer import SessionSigner
from app.http.sse import StreamOptions
from app.http.stream_grants import StreamTokenSigner
from app.queries.run_statistics import RunHistory
from app.queries.workload import Workload
from app.settings import Settings

_DESCRIPTION = """
LLM agents as a service: runs that survive crashes, decisions that are never lost, streams that resume.

Start a run, follow its events, and decide the tickets that it opens.

- Every error is `application/problem+json` with a stable `code`. Its `type` is the address of a page about
  the code. Each operation lists its codes. A request that can't be read gets `malformed_request` (400), `request_timeout` (408) or `headers_too_large` (431).
- Every list is `{items, next_cursor, has_more}`.
- Streams are Server-Sent Events. Reconnect with `Last-Event-ID` to continue without a gap.
"""


class _App(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """Adds security, error codes, events and descriptions to what the framework generates."""
        if self.openapi_schema is None:
            document = super().openapi()
            declare_security(document, is_keyless=self.state.authenticator.is_keyless)
            declare_errors(document, Problem.model_json_schema(), errors.PROBLEM)
            declare_events(document)
            declare_descriptions(document, DESCRIPTIONS)
            rename_schemas(document)
            simplify_properties(document)
        return super().openapi()

    def build_middleware_stack(self) -> ASGIApp:
        """CORS headers are added outside of everything else, so that errors 500 have them, too."""
        stack = super().build_middleware_stack()
        access = self.state.authenticator.web_access
        return CrossOrigin(stack, access) if access.has_origins else stack


def create_health_app(application: Application) -> FastAPI:
    """Health and metrics of a process that serves nothing else. They have the same rules as a server's."""
    app = FastAPI(title="Holdfast worker", openapi_url=None, redirect_slashes=False)
    _set_health_state(app, application)
    errors.install(app)
    app.include_router(health.router)
    return app


def create_app(application: Application, authenticator: Authenticator) -> FastAPI:
    """The HTTP application. The caller opens and closes `application`."""
    settings: Settings = application.settings
    app = _App(
        title="Holdfast",
        version=VERSION,
        description=_DESCRIPTION,
        openapi_tags=[{"name": name, "description": text} for name, text in TAGS.items()],
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        generate_unique_id_function=operation_id,
    )
    _set_health_state(app, application)
    app.state.worker = application.worker
    app.state.authenticator = authenticator
    app.state.stream_token_signer = StreamTokenSigner(application.stream_token_secrets)
    app.state.session_signer = SessionSigner(application.stream_token_secrets)
    app.state.stream_token_ttl = settings.stream_token_ttl
    app.state.long_polls = LongPolls()
    app.state.workload = Workload()
    app.state.run_history = RunHistory()
    app.state.stream_options = StreamOptions(
        heartbeat=settings.stream_heartbeat, send_timeout=settings.stream_send_timeout
    )
    errors.install(app)
    idempotency_key.install(app)
    checks = [Depends(require_readable), Depends(require_known_query)]
    about_runs = (start, runs, retry, interruptions, routes, pending, explain, lineage, summaries)
    for module in (
        *about_runs,
        threads,
        actions,
        tickets,
        decisions,
        audit,
        rules,
        signals,
        background_tasks,
        agents,
        mcp_servers,
        mcp_access,
        usage,
        files,
        memories,
        memory_export,
        workers,
        server,
        changes,
        me,
        stream_tokens,
    ):
        app.include_router(module.router, dependencies=checks)
    # The body of an upload is not JSON, so only its query is checked here.
    app.include_router(files.uploads, dependencies=[Depends(require_known_query)])
    # Authorization servers add parameters of their own.
    app.include_router(mcp_access.callback_router)
    app.include_router(health.router)
    app.include_router(problems.router)
    app.include_router(start_pages.router)
    app.state.console_assets = load_assets() if settings.console else None
    if settings.console:
        app.include_router(console.router)
        app.include_router(sign_in.router, dependencies=checks)
    app.add_route("/openapi.json", OpenAPIDocument(app.openapi).respond, include_in_schema=False)
    _add_middleware(app, settings)
    return app


def _add_middleware(app: FastAPI, settings: Settings) -> None:
    """All middleware, the innermost first, for an application that has all its routes.

    This also builds the routes, which the framework would do for the first requests.
    """
    app.add_middleware(RouteTable, rows=route_rows(app), handlers=app.exception_handlers)
    app.add_middleware(Compression)
    app.add_middleware(
        BoundedBody, max_bytes=settings.max_body_bytes, max_file_bytes=settings.max_file_bytes
    )
    app.add_middleware(OpeningTurns)
    app.add_middleware(AbandonedRequests)
    app.add_middleware(CloseWhileDraining, drain_state=app.state.drain_state)
    app.add_middleware(RequestLog)


def _set_health_state(app: FastAPI, application: Application) -> None:
    """What the routes of `health` read."""
    app.state.ctx = application.ctx
    app.state.heartbeat = application.heartbeat
    app.state.relay = application.relay
    app.state.drain_state = DrainState()
