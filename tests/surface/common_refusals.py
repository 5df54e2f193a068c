"""Refusals that many operations share, each produced in the same way for every operation."""

import json
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias
from uuid import uuid4

import httpx2

from app.clock import SystemClock
from app.domain.idempotency import IdempotencyKey, StoredResponse
from app.domain.ids import Tenant
from app.domain.principals import Principal
from app.http import cursors
from app.storage import idempotency
from app.storage.postgres.connect import DatabaseOptions
from app.storage.postgres.database import Database
from tests.support.routes import BODIES, UNKNOWN, Route, ids_of
from tests.surface.servers import BODY_BYTES, HOLDERS, MESSAGE_BYTES, Servers

Scenario: TypeAlias = Callable[[Servers, Route], Awaitable[httpx2.Response]]

ACME = Tenant(HOLDERS["ann"].tenant)
ANN = Principal(ACME, "ann", frozenset())
COMMON_REFUSALS: dict[str, Scenario] = {}


def common_refusal(code: str) -> Callable[[Scenario], Scenario]:
    """Registers how the code is produced for every operation."""

    def register(scenario: Scenario) -> Scenario:
        COMMON_REFUSALS[code] = scenario
        return scenario

    return register


def unknown_ids(route: Route) -> dict[str, str]:
    """Ids that no row has. An MCP server is a setting and not a row, so it exists."""
    return {**dict.fromkeys(route.ids, UNKNOWN), "server_id": "shelf"}


async def raw(servers: Servers, route: Route, content: bytes, media_type: str) -> httpx2.Response:
    return await servers.allowed(route).http.request(
        route.method,
        route.path.format(**{**unknown_ids(route), "task_id": f"bg_{UNKNOWN}", "seq": "1"}),
        content=content,
        headers={"Content-Type": media_type, "If-Match": '"1"'},
    )


# --- credentials ----------------------------------------------------------------------------------


@common_refusal("unauthenticated")
async def without_a_key(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(servers.anonymous, unknown_ids(route))


@common_refusal("scope_missing")
async def without_a_scope(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(servers.without_scopes, unknown_ids(route))


@common_refusal("host_not_allowed")
async def by_another_name(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(servers.away, unknown_ids(route), headers={"Host": "holdfast.example"})


@common_refusal("origin_not_allowed")
async def from_a_page(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(
        servers.away, unknown_ids(route), headers={"Origin": "https://evil.example"}
    )


@common_refusal("stream_token_invalid")
async def a_made_up_token(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(
        servers.anonymous, unknown_ids(route), params={"stream_token": "e30.e30"}
    )


@common_refusal("stream_token_expired")
async def an_old_token(servers: Servers, route: Route) -> httpx2.Response:
    token = servers.signer.sign(ANN, None, None, SystemClock().now())
    return await route.ask(servers.anonymous, unknown_ids(route), params={"stream_token": token})


@common_refusal("stream_token_elsewhere")
async def a_token_of_another_stream(servers: Servers, route: Route) -> httpx2.Response:
    body = {"run_id": (await servers.done())["id"]}
    token = (await servers.ann.post("/v1/stream-tokens", body, 201))["token"]
    return await route.ask(servers.anonymous, unknown_ids(route), params={"stream_token": token})


# --- unreadable requests --------------------------------------------------------------------------


@common_refusal("malformed_body")
async def half_a_body(servers: Servers, route: Route) -> httpx2.Response:
    return await raw(servers, route, b'{"half": ', "application/json")


@common_refusal("body_too_large")
async def a_long_body(servers: Servers, route: Route) -> httpx2.Response:
    return await raw(servers, route, b'"' + b"x" * BODY_BYTES + b'"', "application/json")


@common_refusal("unsupported_media_type")
async def a_form(servers: Servers, route: Route) -> httpx2.Response:
    return await raw(servers, route, b"a=1", "application/x-www-form-urlencoded")


@common_refusal("invalid_request")
async def a_misspelled_parameter(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(servers.allowed(route), unknown_ids(route), params={"witch": "it"})


@common_refusal("idempotency_key_unsupported")
async def a_key_for_nothing(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(
        servers.allowed(route), unknown_ids(route), headers={"Idempotency-Key": "once"}
    )


@common_refusal("cursor_invalid")
async def an_invalid_cursor(servers: Servers, route: Route) -> httpx2.Response:
    ids = await existing(servers)
    if route.path.endswith("/events"):
        return await route.ask(servers.ann, ids, headers={"Last-Event-ID": "many"})
    return await route.ask(servers.ann, ids, params={"cursor": "!"})


@common_refusal("cursor_mismatch")
async def a_cursor_of_another_query(servers: Servers, route: Route) -> httpx2.Response:
    cursor = cursors.encode({"list": "another"}, SystemClock().now(), UNKNOWN)
    return await route.ask(servers.ann, await existing(servers), params={"cursor": cursor})


@common_refusal("cursor_expired")
async def a_cursor_beyond_the_head(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(
        servers.ann, await existing(servers), headers={"Last-Event-ID": "1000000000"}
    )


async def existing(servers: Servers) -> dict[str, str]:
    run = await servers.done()
    return ids_of(run)


# --- messages -------------------------------------------------------------------------------------


@common_refusal("message_empty")
async def an_empty_message(servers: Servers, route: Route) -> httpx2.Response:
    return await with_text(servers, route, "")


@common_refusal("message_too_large")
async def a_long_message(servers: Servers, route: Route) -> httpx2.Response:
    return await with_text(servers, route, "x" * MESSAGE_BYTES)


async def with_text(servers: Servers, route: Route, text: str) -> httpx2.Response:
    body = json.dumps(BODIES[route.method, route.path]).replace('"hello"', json.dumps(text))
    return await raw(servers, route, body.encode(), "application/json")


# --- unknown ids ----------------------------------------------------------------------------------


async def _unknown(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(servers.allowed(route), unknown_ids(route))


for _code in ("run_not_found", "thread_not_found", "agent_not_found", "rule_not_found"):
    COMMON_REFUSALS[_code] = _unknown


@common_refusal("mcp_server_not_found")
async def of_an_unknown_server(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(servers.root, {"server_id": UNKNOWN})


@common_refusal("ticket_not_found")
async def of_another_run(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(servers.ann, {**await existing(servers), "ticket_id": UNKNOWN})


@common_refusal("event_not_found")
async def an_event_that_is_not_there(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(servers.ann, await existing(servers))


@common_refusal("input_not_found")
@common_refusal("task_not_found")
async def an_unknown_id_of_a_thread(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(servers.ann, {"input_id": UNKNOWN, **await existing(servers)})


@common_refusal("database_unavailable")
async def without_a_database(servers: Servers, route: Route) -> httpx2.Response:
    return await route.ask(servers.away, unknown_ids(route))


# --- repetitions ----------------------------------------------------------------------------------


@common_refusal("idempotency_key_in_flight")
async def while_the_key_is_in_flight(servers: Servers, route: Route) -> httpx2.Response:
    key = _key(route)
    async with _transaction(servers) as connection:
        assert await idempotency.hold(connection, ACME, "ann", key)
        return await _under(servers, route, key)


@common_refusal("idempotency_key_reused")
async def after_another_request_with_the_key(servers: Servers, route: Route) -> httpx2.Response:
    key = _key(route)
    async with _transaction(servers) as connection:
        await idempotency.store(connection, ACME, "ann", key, StoredResponse(200, "{}"))
    return await _under(servers, route, key)


def _key(route: Route) -> IdempotencyKey:
    return IdempotencyKey(
        route=f"{route.method} {route.path}", key=str(uuid4()), fingerprint="another"
    )


async def _under(servers: Servers, route: Route, key: IdempotencyKey) -> httpx2.Response:
    return await route.ask(
        servers.allowed(route), unknown_ids(route), headers={"Idempotency-Key": key.key}
    )


@asynccontextmanager
async def _transaction(servers: Servers) -> Any:
    database = await Database.open(servers.database, DatabaseOptions(pool_size=2, hot_pool_size=2))
    try:
        async with database.transaction() as connection:
            yield connection
    finally:
        await database.close()
