"""Refusals that any operation of a kind may give, each produced the same way wherever it is declared."""

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias
from uuid import uuid4

import httpx2

from app.clock import SystemClock
from app.domain.idempotency import IdempotencyKey, KeptAnswer
from app.domain.ids import Tenant
from app.domain.principals import Principal
from app.http import cursors
from app.storage import idempotency
from app.storage.postgres.connect import DatabaseOptions
from app.storage.postgres.database import Database
from tests.support.routes import BODIES, UNKNOWN, Route
from tests.surface.stage import BODY_BYTES, HOLDERS, MESSAGE_BYTES, Stage

Scenario: TypeAlias = Callable[[Stage, Route], Awaitable[httpx2.Response]]

ACME = Tenant(HOLDERS["ann"].tenant)
ANN = Principal(ACME, "ann", frozenset())
EVERYWHERE: dict[str, Scenario] = {}


def everywhere(code: str) -> Callable[[Scenario], Scenario]:
    """How the code is produced, whatever is asked."""

    def keep(scenario: Scenario) -> Scenario:
        EVERYWHERE[code] = scenario
        return scenario

    return keep


def nowhere(route: Route) -> dict[str, str]:
    return dict.fromkeys(route.ids, UNKNOWN)


async def raw(stage: Stage, route: Route, content: bytes, media_type: str) -> httpx2.Response:
    return await stage.ann.http.request(
        route.method,
        route.path.format(**{**nowhere(route), "task_id": f"bg_{UNKNOWN}"}),
        content=content,
        headers={"Content-Type": media_type, "If-Match": '"1"'},
    )


# --- who asks -------------------------------------------------------------------------------------


@everywhere("unauthenticated")
async def without_a_key(stage: Stage, route: Route) -> httpx2.Response:
    return await route.ask(stage.stranger, nowhere(route))


@everywhere("scope_missing")
async def without_a_scope(stage: Stage, route: Route) -> httpx2.Response:
    return await route.ask(stage.nobody, nowhere(route))


@everywhere("host_not_allowed")
async def by_another_name(stage: Stage, route: Route) -> httpx2.Response:
    return await route.ask(stage.away, nowhere(route), headers={"Host": "holdfast.example"})


@everywhere("origin_not_allowed")
async def from_a_page(stage: Stage, route: Route) -> httpx2.Response:
    return await route.ask(stage.away, nowhere(route), headers={"Origin": "https://evil.example"})


@everywhere("stream_token_invalid")
async def a_made_up_token(stage: Stage, route: Route) -> httpx2.Response:
    return await route.ask(stage.stranger, nowhere(route), params={"stream_token": "e30.e30"})


@everywhere("stream_token_expired")
async def an_old_token(stage: Stage, route: Route) -> httpx2.Response:
    token = stage.signer.sign(ANN, None, None, SystemClock().now())
    return await route.ask(stage.stranger, nowhere(route), params={"stream_token": token})


@everywhere("stream_token_elsewhere")
async def a_token_of_another_stream(stage: Stage, route: Route) -> httpx2.Response:
    body = {"run_id": (await stage.done())["run_id"]}
    token = (await stage.ann.post("/v1/stream-tokens", body, 201))["token"]
    return await route.ask(stage.stranger, nowhere(route), params={"stream_token": token})


# --- requests that can't be read ------------------------------------------------------------------


@everywhere("malformed_body")
async def half_a_body(stage: Stage, route: Route) -> httpx2.Response:
    return await raw(stage, route, b'{"half": ', "application/json")


@everywhere("body_too_large")
async def a_long_body(stage: Stage, route: Route) -> httpx2.Response:
    return await raw(stage, route, b'"' + b"x" * BODY_BYTES + b'"', "application/json")


@everywhere("unsupported_media_type")
async def a_form(stage: Stage, route: Route) -> httpx2.Response:
    return await raw(stage, route, b"a=1", "application/x-www-form-urlencoded")


@everywhere("invalid_request")
async def a_misspelt_parameter(stage: Stage, route: Route) -> httpx2.Response:
    return await route.ask(stage.ann, nowhere(route), params={"witch": "it"})


@everywhere("idempotency_key_unsupported")
async def a_key_for_nothing(stage: Stage, route: Route) -> httpx2.Response:
    return await route.ask(stage.ann, nowhere(route), headers={"Idempotency-Key": "once"})


@everywhere("cursor_invalid")
async def no_cursor(stage: Stage, route: Route) -> httpx2.Response:
    ids = await existing(stage)
    if route.path.endswith("/events"):
        return await route.ask(stage.ann, ids, headers={"Last-Event-ID": "many"})
    return await route.ask(stage.ann, ids, params={"cursor": "!"})


@everywhere("cursor_mismatch")
async def a_cursor_of_another_query(stage: Stage, route: Route) -> httpx2.Response:
    cursor = cursors.encode({"list": "another"}, SystemClock().now(), UNKNOWN)
    return await route.ask(stage.ann, await existing(stage), params={"cursor": cursor})


@everywhere("cursor_expired")
async def a_cursor_beyond_the_head(stage: Stage, route: Route) -> httpx2.Response:
    return await route.ask(
        stage.ann, await existing(stage), headers={"Last-Event-ID": "1000000000"}
    )


async def existing(stage: Stage) -> dict[str, str]:
    run = await stage.done()
    return {"run_id": run["run_id"], "thread_id": run["thread_id"]}


# --- messages -------------------------------------------------------------------------------------


@everywhere("message_empty")
async def an_empty_message(stage: Stage, route: Route) -> httpx2.Response:
    return await saying(stage, route, "")


@everywhere("message_too_large")
async def a_long_message(stage: Stage, route: Route) -> httpx2.Response:
    return await saying(stage, route, "x" * MESSAGE_BYTES)


async def saying(stage: Stage, route: Route, text: str) -> httpx2.Response:
    body = json.dumps(BODIES[route.method, route.path]).replace('"hello"', json.dumps(text))
    return await raw(stage, route, body.encode(), "application/json")


# --- what isn't there -----------------------------------------------------------------------------


async def _unknown(stage: Stage, route: Route) -> httpx2.Response:
    return await route.ask(stage.ann, nowhere(route))


for _code in ("run_not_found", "thread_not_found", "agent_not_found", "rule_not_found"):
    EVERYWHERE[_code] = _unknown


@everywhere("ticket_not_found")
async def of_another_run(stage: Stage, route: Route) -> httpx2.Response:
    return await route.ask(stage.ann, {**await existing(stage), "id": UNKNOWN})


@everywhere("input_not_found")
@everywhere("task_not_found")
async def nothing_of_the_kind(stage: Stage, route: Route) -> httpx2.Response:
    return await route.ask(stage.ann, {"input_id": UNKNOWN, **await existing(stage)})


@everywhere("database_unavailable")
async def without_a_database(stage: Stage, route: Route) -> httpx2.Response:
    return await route.ask(stage.away, nowhere(route))


# --- repetitions ----------------------------------------------------------------------------------


@everywhere("idempotency_key_in_flight")
async def while_the_same_is_answered(stage: Stage, route: Route) -> httpx2.Response:
    key = _key(route)
    async with _transaction(stage) as connection:
        assert await idempotency.hold(connection, ACME, "ann", key)
        return await _under(stage, route, key)


@everywhere("idempotency_key_reused")
async def after_another_was_answered(stage: Stage, route: Route) -> httpx2.Response:
    key = _key(route)
    async with _transaction(stage) as connection:
        await idempotency.keep(connection, ACME, "ann", key, KeptAnswer(200, "{}"))
    return await _under(stage, route, key)


def _key(route: Route) -> IdempotencyKey:
    return IdempotencyKey(
        route=f"{route.method} {route.path}", key=str(uuid4()), fingerprint="another"
    )


async def _under(stage: Stage, route: Route, key: IdempotencyKey) -> httpx2.Response:
    return await route.ask(
        stage.ann, await _as_if_there(stage, route), headers={"Idempotency-Key": key.key}
    )


async def _as_if_there(stage: Stage, route: Route) -> Mapping[str, str]:
    """A decision is looked up before its key is."""
    if not route.path.endswith("/decision"):
        return nowhere(route)
    run = await stage.waiting()
    await stage.execute(
        "UPDATE tickets SET ticket_id = $1 WHERE run_id = $2", UNKNOWN, run["run_id"]
    )
    return {"run_id": run["run_id"], "thread_id": run["thread_id"]}


@asynccontextmanager
async def _transaction(stage: Stage) -> Any:
    database = await Database.open(stage.database, DatabaseOptions(pool_size=2, hot_pool_size=2))
    try:
        async with database.transaction() as connection:
            yield connection
    finally:
        await database.close()
