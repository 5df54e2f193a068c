"""Requests that must be refused, each with the refusal that is documented for it."""

import json
from dataclasses import asdict, dataclass
from typing import Any

import httpx2

from tests.support.streams import Client, start_body

START = "POST /v1/runs"
INVALID = "422 invalid_request"
UNKNOWN = "00000000-0000-7000-8000-000000000000"
SURROGATE = "half \ud83d of a pair"
ZERO = "a\0b"


@dataclass(frozen=True, slots=True)
class SentIds:
    """The ids of existing runs, threads and tickets that a bad request may name."""

    thread: str
    waiting_thread: str
    waiting: str
    ticket: str
    done: str
    decided: str
    void_run: str
    void: str
    foreign_thread: str
    foreign_run: str
    foreign_ticket: str


@dataclass(frozen=True, slots=True)
class BadRequest:
    """A request and the refusal it must get. `{…}` in it stands for an id by its name in `SentIds`."""

    what: str
    request: str
    refusal: str
    body: Any = None
    last_event_id: str | None = None

    def __str__(self) -> str:
        return f"{self.what}: {self.request}"

    async def send(self, client: Client, world: SentIds) -> httpx2.Response:
        method, _, target = _filled(self.request, world).partition(" ")
        headers = {}
        if self.last_event_id is not None:
            headers[b"Last-Event-ID"] = self.last_event_id.encode("latin-1")
        if self.body is None:
            return await client.http.request(method, target, headers=headers)
        # As ASCII, so that also invalid text and invalid JSON reach the server.
        body = json.dumps(_filled(self.body, world)).encode()
        headers[b"Content-Type"] = b"application/json"
        return await client.http.request(method, target, content=body, headers=headers)


def _filled(value: Any, world: SentIds) -> Any:
    match value:
        case str():
            for name, found in asdict(world).items():
                value = value.replace(f"{{{name}}}", found)
            return value
        case dict():
            return {key: _filled(item, world) for key, item in value.items()}
        case list():
            return [_filled(item, world) for item in value]
        case _:
            return value


def start(**changes: Any) -> dict[str, Any]:
    return start_body("quick", "hello") | changes


def message_body(content: Any, role: str = "user") -> dict[str, Any]:
    return start(messages=[{"role": role, "content": content}])


def decision(ticket: str, action: str, **more: Any) -> dict[str, Any]:
    return {"decisions": [{"ticket_id": ticket, "action": action, **more}]}


def nested(levels: int) -> Any:
    return [] if levels == 0 else [nested(levels - 1)]


NOT_BUILT = {
    "on_disconnect": "cancel",
    "limits": {"cost_usd": -3},
    "on_limit": "ask",
    "start_after": "2030-01-01T00:00:00Z",
    "webhook_ids": [],
}
REJECT_MISSING = {"if_thread_missing": "reject"}
STARTS = [
    *(
        BadRequest(
            f"ticket_policy {policy}", START, "422 invalid_request", start(ticket_policy=policy)
        )
        for policy in ({"expires_in": 0}, {"expires_in": "1h"}, {"on_expiry": "shrug"}, {"in": 60})
    ),
    BadRequest("unknown agent", START, "404 agent_not_found", start(agent_id="missing")),
    BadRequest(
        "unknown thread",
        START,
        "404 thread_not_found",
        start(thread_id=UNKNOWN, **REJECT_MISSING),
    ),
    BadRequest(
        "foreign thread",
        START,
        "404 thread_not_found",
        start(thread_id="{foreign_thread}", **REJECT_MISSING),
    ),
    BadRequest(
        "occupied thread",
        START,
        "409 thread_busy",
        start(thread_id="{waiting_thread}", on_active="reject"),
    ),
    BadRequest("no messages", START, INVALID, start(messages=[])),
    BadRequest("empty message", START, "422 message_empty", message_body("")),
    BadRequest("no parts", START, INVALID, message_body([])),
    BadRequest(
        "empty part", START, "422 message_empty", message_body([{"type": "text", "text": ""}])
    ),
    BadRequest("role tool", START, INVALID, message_body("4", role="tool")),
    BadRequest("too large message", START, "413 message_too_large", message_body("x" * 1_500_000)),
    BadRequest("U+0000", START, INVALID, message_body(ZERO)),
    BadRequest("U+0000 in a part", START, INVALID, message_body([{"type": "text", "text": ZERO}])),
    BadRequest("U+0000 in a name", START, INVALID, start(metadata={ZERO: 1})),
    BadRequest("lone surrogate", START, INVALID, message_body(SURROGATE)),
    BadRequest(
        "lone surrogate in a name", START, INVALID, start(metadata={"in": [{SURROGATE: 1}]})
    ),
    BadRequest("lone surrogate as agent", START, INVALID, start(agent_id=SURROGATE)),
    BadRequest("lone surrogate as field", START, INVALID, start(**{SURROGATE: 1})),
    BadRequest("lone surrogate as choice", START, INVALID, start(on_active=SURROGATE)),
    BadRequest("deep metadata", START, INVALID, start(metadata={"deep": nested(60)})),
    BadRequest("deep content", START, INVALID, message_body(nested(60))),
    BadRequest("infinite number", START, INVALID, start(metadata={"n": float("inf")})),
    BadRequest("unknown field", START, INVALID, start(on_actve="reject")),
    BadRequest("id that is no UUID", START, INVALID, start(run_id="run-1")),
    BadRequest("unknown on_active", START, INVALID, start(on_active="replace")),
    *(
        BadRequest(f"{name} isn't built", START, INVALID, start(**{name: value}))
        for name, value in NOT_BUILT.items()
    ),
]
MORE = {"messages": [{"role": "user", "content": "more"}]}
INPUTS = [
    BadRequest(
        "unknown mode", "POST /v1/runs/{waiting}/inputs", INVALID, {**MORE, "mode": "shout"}
    ),
    BadRequest(
        "wrong cursor",
        "GET /v1/threads/{thread}/inputs?cursor=eyJwYWlyIjpbMV19",
        "400 cursor_invalid",
    ),
    BadRequest("unknown include", "GET /v1/threads/{thread}/messages?include=state", INVALID),
]
THREADS = [
    BadRequest("unknown field", "POST /v1/threads", INVALID, {"titel": "x"}),
    BadRequest("U+0000", "POST /v1/threads", INVALID, {"title": ZERO}),
    BadRequest("lone surrogate", "PATCH /v1/threads/{thread}", INVALID, {"title": SURROGATE}),
    BadRequest(
        "deep metadata", "PATCH /v1/threads/{thread}", INVALID, {"metadata": {"a": nested(60)}}
    ),
    BadRequest("taken id", "POST /v1/threads", "409 thread_exists", {"thread_id": "{thread}"}),
    BadRequest(
        "foreign parent",
        "POST /v1/threads",
        "404 thread_not_found",
        {"parent_thread_id": "{foreign_thread}"},
    ),
    BadRequest("occupied thread", "DELETE /v1/threads/{waiting_thread}", "409 has_active_run"),
]
WAITING, DONE = "POST /v1/runs/{waiting}/decisions", "POST /v1/runs/{done}/decisions"
DECISIONS = [
    BadRequest(
        "foreign run",
        "POST /v1/runs/{foreign_run}/decisions",
        "404 run_not_found",
        decision("{foreign_ticket}", "approve"),
    ),
    BadRequest("unknown ticket", WAITING, "404 ticket_not_found", decision(UNKNOWN, "approve")),
    BadRequest(
        "foreign ticket", WAITING, "404 ticket_not_found", decision("{foreign_ticket}", "approve")
    ),
    BadRequest(
        "other run's ticket", WAITING, "404 ticket_not_found", decision("{decided}", "approve")
    ),
    BadRequest("U+0000 as ticket", WAITING, INVALID, decision(ZERO, "approve")),
    BadRequest(
        "decided ticket", DONE, "409 ticket_already_decided", decision("{decided}", "reject")
    ),
    BadRequest(
        "void ticket",
        "POST /v1/runs/{void_run}/decisions",
        "410 ticket_void",
        decision("{void}", "approve"),
    ),
    BadRequest(
        "edit against the schema",
        WAITING,
        "422 arguments_invalid",
        decision("{ticket}", "edit", arguments={"what": 7}),
    ),
    BadRequest(
        "edit with an unknown argument",
        WAITING,
        "422 arguments_invalid",
        decision("{ticket}", "edit", arguments={"what": "it", "why": "so"}),
    ),
    BadRequest("edit without arguments", WAITING, INVALID, decision("{ticket}", "edit")),
    BadRequest(
        "arguments to approve", WAITING, INVALID, decision("{ticket}", "approve", arguments={})
    ),
    BadRequest("no result", WAITING, INVALID, decision("{ticket}", "respond")),
    BadRequest(
        "deep arguments",
        WAITING,
        INVALID,
        decision("{ticket}", "edit", arguments={"what": nested(60)}),
    ),
    BadRequest("U+0000 result", WAITING, INVALID, decision("{ticket}", "respond", result=[ZERO])),
    BadRequest(
        "surrogate reason", WAITING, INVALID, decision("{ticket}", "reject", reason=SURROGATE)
    ),
    BadRequest(
        "other arguments quoted",
        WAITING,
        "412 args_digest_mismatch",
        decision("{ticket}", "approve", args_digest="sha256:0"),
    ),
    BadRequest("unknown action", WAITING, INVALID, decision("{ticket}", "resume")),
    BadRequest("remember", WAITING, INVALID, decision("{ticket}", "approve", remember=True)),
    BadRequest("no decisions", WAITING, INVALID, {"decisions": []}),
    BadRequest(
        "ticket twice",
        WAITING,
        "422 ticket_repeated",
        {"decisions": [{"ticket_id": "{ticket}", "action": "approve"}] * 2},
    ),
    BadRequest(
        "good one beside a bad one",
        WAITING,
        "404 ticket_not_found",
        {"decisions": [{"ticket_id": id, "action": "approve"} for id in ("{ticket}", UNKNOWN)]},
    ),
    BadRequest("unknown field", "POST /v1/runs/{waiting}/cancel", INVALID, {"mode": "now"}),
    BadRequest("unknown field", "POST /v1/runs/{waiting}/pause", INVALID, {"mode": "now"}),
    BadRequest("long reason", "POST /v1/runs/{waiting}/pause", INVALID, {"reason": "x" * 2001}),
    BadRequest("reason that is not text", "POST /v1/runs/{waiting}/pause", INVALID, {"reason": 7}),
    BadRequest(
        "both", "POST /v1/stream-tokens", INVALID, {"run_id": "{done}", "thread_id": "{thread}"}
    ),
]
RUN_EVENTS, THREAD_EVENTS = "GET /v1/runs/{done}/events", "GET /v1/threads/{thread}/events"
CURSORS = [
    *(
        BadRequest(f"id {id!r}", request, "400 cursor_invalid", last_event_id=id)
        for request in (RUN_EVENTS, THREAD_EVENTS)
        for id in ("-1", "1.5", "many", "\xb2", "9" * 30)
    ),
    BadRequest("negative cursor", RUN_EVENTS + "?cursor=-1", "400 cursor_invalid"),
    BadRequest("beyond the head", RUN_EVENTS, "410 cursor_expired", last_event_id="1000"),
    BadRequest("beyond the head", THREAD_EVENTS, "410 cursor_expired", last_event_id="1000"),
    BadRequest("invalid cursor", "GET /v1/runs?cursor=abc", "400 cursor_invalid"),
    BadRequest("invalid cursor", "GET /v1/threads?cursor=!", "400 cursor_invalid"),
    BadRequest("invalid cursor", "GET /v1/tickets?cursor=W10", "400 cursor_invalid"),
    BadRequest(
        "invalid cursor", "GET /v1/threads/{thread}/messages?cursor=bnVsbA", "400 cursor_invalid"
    ),
]
QUERIES = [
    BadRequest("misspelt", "GET /v1/runs?thread=x", INVALID),
    BadRequest("misspelt", "GET /v1/threads/{thread}/runs?metadatak=x", INVALID),
    BadRequest("misspelt", RUN_EVENTS + "?afer=3", INVALID),
    BadRequest("parameter of another route", "POST /v1/runs?order=asc", INVALID, start()),
    BadRequest("surrogate as parameter", "GET /v1/runs?%ED%A0%80=1", INVALID),
    BadRequest("unknown event type", RUN_EVENTS + "?types=run_begin", INVALID),
    BadRequest("unknown include", RUN_EVENTS + "?include=trace,all", INVALID),
    BadRequest("unknown include", "POST /v1/runs?include=stat", INVALID, start()),
    BadRequest("unknown status", "GET /v1/runs?status=finished", INVALID),
    BadRequest("U+0000", "GET /v1/runs?agent_id=%00", INVALID),
    BadRequest("U+0000", "GET /v1/runs?metadata.k=%00", INVALID),
    BadRequest("U+0000", "GET /v1/threads?resource_id=%00", INVALID),
    BadRequest("empty page", "GET /v1/runs?limit=0", INVALID),
    BadRequest("limit too large", "GET /v1/runs?limit=100000", INVALID),
    BadRequest("invalid time", "GET /v1/runs?created_after=yesterday", INVALID),
    BadRequest(
        "time out of range", "GET /v1/runs?created_after=0001-01-01T00:00:00%2B14:00", INVALID
    ),
    BadRequest(
        "seq out of range", "GET /v1/threads/{thread}/messages?from_seq=" + "9" * 30, INVALID
    ),
    BadRequest("wait too long", "GET /v1/runs/{waiting}?wait=100000", INVALID),
    BadRequest("id that is no UUID", "GET /v1/runs/run-1", INVALID),
    BadRequest("U+0000 as id", "GET /v1/runs/%00", INVALID),
    BadRequest("foreign run", "GET /v1/runs/{foreign_run}", "404 run_not_found"),
    BadRequest("foreign run", "POST /v1/runs/{foreign_run}/cancel", "404 run_not_found"),
    BadRequest("foreign thread", "DELETE /v1/threads/{foreign_thread}", "404 thread_not_found"),
    BadRequest("unknown run", f"GET /v1/runs/{UNKNOWN}", "404 run_not_found"),
    BadRequest("unknown agent", "GET /v1/agents/missing", "404 agent_not_found"),
    BadRequest("unknown path", "GET /v1/jobs", "404 not_found"),
    BadRequest("trailing slash", "GET /v1/runs/", "404 not_found"),
    BadRequest("wrong method", "DELETE /v1/runs", "405 method_not_allowed"),
    BadRequest("wrong method", "PUT /v1/threads/{thread}", "405 method_not_allowed"),
]

BAD_REQUESTS = [*STARTS, *INPUTS, *THREADS, *DECISIONS, *CURSORS, *QUERIES]
