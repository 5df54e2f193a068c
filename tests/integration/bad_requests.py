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
class World:
    """What there is before somebody sends nonsense."""

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
class Bad:
    """A request and the refusal it must get. `{…}` in it stands for a name of the world's."""

    what: str
    request: str
    refusal: str
    body: Any = None
    last_event_id: str | None = None

    def __str__(self) -> str:
        return f"{self.what}: {self.request}"

    async def send(self, client: Client, world: World) -> httpx2.Response:
        method, _, target = _filled(self.request, world).partition(" ")
        headers = {}
        if self.last_event_id is not None:
            headers[b"Last-Event-ID"] = self.last_event_id.encode("latin-1")
        if self.body is None:
            return await client.http.request(method, target, headers=headers)
        # As ASCII: what isn't text, or isn't JSON, gets through to the server.
        body = json.dumps(_filled(self.body, world)).encode()
        headers[b"Content-Type"] = b"application/json"
        return await client.http.request(method, target, content=body, headers=headers)


def _filled(value: Any, world: World) -> Any:
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


def said(content: Any, role: str = "user") -> dict[str, Any]:
    return start(messages=[{"role": role, "content": content}])


def decision(ticket: str, action: str, **more: Any) -> dict[str, Any]:
    return {"decisions": [{"ticket_id": ticket, "action": action, **more}]}


def nested(levels: int) -> Any:
    return [] if levels == 0 else [nested(levels - 1)]


NOT_BUILT = {
    "on_disconnect": "cancel",
    "limits": {"cost_usd": 3},
    "on_limit": "ask",
    "start_after": "2030-01-01T00:00:00Z",
    "webhook_ids": [],
}
REJECT_MISSING = {"if_thread_missing": "reject"}
STARTS = [
    *(
        Bad(f"ticket_policy {policy}", START, "422 invalid_request", start(ticket_policy=policy))
        for policy in ({"expires_in": 0}, {"expires_in": "1h"}, {"on_expiry": "shrug"}, {"in": 60})
    ),
    Bad("unknown agent", START, "404 agent_not_found", start(agent_id="nobody")),
    Bad(
        "unknown thread",
        START,
        "404 thread_not_found",
        start(thread_id=UNKNOWN, **REJECT_MISSING),
    ),
    Bad(
        "foreign thread",
        START,
        "404 thread_not_found",
        start(thread_id="{foreign_thread}", **REJECT_MISSING),
    ),
    Bad(
        "occupied thread",
        START,
        "409 thread_busy",
        start(thread_id="{waiting_thread}", on_active="reject"),
    ),
    Bad("no messages", START, INVALID, start(messages=[])),
    Bad("empty message", START, "422 message_empty", said("")),
    Bad("no parts", START, INVALID, said([])),
    Bad("empty part", START, "422 message_empty", said([{"type": "text", "text": ""}])),
    Bad("role tool", START, INVALID, said("4", role="tool")),
    Bad("too large message", START, "413 message_too_large", said("x" * 1_500_000)),
    Bad("U+0000", START, INVALID, said(ZERO)),
    Bad("U+0000 in a part", START, INVALID, said([{"type": "text", "text": ZERO}])),
    Bad("U+0000 in a name", START, INVALID, start(metadata={ZERO: 1})),
    Bad("lone surrogate", START, INVALID, said(SURROGATE)),
    Bad("lone surrogate in a name", START, INVALID, start(metadata={"in": [{SURROGATE: 1}]})),
    Bad("lone surrogate as agent", START, INVALID, start(agent_id=SURROGATE)),
    Bad("lone surrogate as field", START, INVALID, start(**{SURROGATE: 1})),
    Bad("lone surrogate as choice", START, INVALID, start(on_active=SURROGATE)),
    Bad("deep metadata", START, INVALID, start(metadata={"deep": nested(60)})),
    Bad("deep content", START, INVALID, said(nested(60))),
    Bad("number that JSON lacks", START, INVALID, start(metadata={"n": float("inf")})),
    Bad("unknown field", START, INVALID, start(on_actve="reject")),
    Bad("id that is no UUID", START, INVALID, start(run_id="run-1")),
    Bad("on_active that isn't", START, INVALID, start(on_active="replace")),
    *(
        Bad(f"{name} isn't built", START, INVALID, start(**{name: value}))
        for name, value in NOT_BUILT.items()
    ),
]
MORE = {"messages": [{"role": "user", "content": "more"}]}
INPUTS = [
    Bad("mode", "POST /v1/runs/{waiting}/inputs", INVALID, {**MORE, "mode": "shout"}),
    Bad(
        "wrong cursor",
        "GET /v1/threads/{thread}/inputs?cursor=eyJwYWlyIjpbMV19",
        "400 cursor_invalid",
    ),
    Bad("what else", "GET /v1/threads/{thread}/messages?include=state", INVALID),
]
THREADS = [
    Bad("unknown field", "POST /v1/threads", INVALID, {"titel": "x"}),
    Bad("U+0000", "POST /v1/threads", INVALID, {"title": ZERO}),
    Bad("lone surrogate", "PATCH /v1/threads/{thread}", INVALID, {"title": SURROGATE}),
    Bad("deep metadata", "PATCH /v1/threads/{thread}", INVALID, {"metadata": {"a": nested(60)}}),
    Bad("taken id", "POST /v1/threads", "409 thread_exists", {"thread_id": "{thread}"}),
    Bad(
        "foreign parent",
        "POST /v1/threads",
        "404 thread_not_found",
        {"parent_thread_id": "{foreign_thread}"},
    ),
    Bad("occupied", "DELETE /v1/threads/{waiting_thread}", "409 has_active_run"),
]
WAITING, DONE = "POST /v1/runs/{waiting}/decisions", "POST /v1/runs/{done}/decisions"
DECISIONS = [
    Bad(
        "foreign run",
        "POST /v1/runs/{foreign_run}/decisions",
        "404 run_not_found",
        decision("{foreign_ticket}", "approve"),
    ),
    Bad("unknown ticket", WAITING, "404 ticket_not_found", decision(UNKNOWN, "approve")),
    Bad("foreign ticket", WAITING, "404 ticket_not_found", decision("{foreign_ticket}", "approve")),
    Bad("other run's ticket", WAITING, "404 ticket_not_found", decision("{decided}", "approve")),
    Bad("U+0000 as ticket", WAITING, INVALID, decision(ZERO, "approve")),
    Bad("decided ticket", DONE, "409 ticket_already_decided", decision("{decided}", "reject")),
    Bad(
        "void ticket",
        "POST /v1/runs/{void_run}/decisions",
        "410 ticket_void",
        decision("{void}", "approve"),
    ),
    Bad(
        "edit against the schema",
        WAITING,
        "422 arguments_invalid",
        decision("{ticket}", "edit", arguments={"what": 7}),
    ),
    Bad(
        "edit with an unknown argument",
        WAITING,
        "422 arguments_invalid",
        decision("{ticket}", "edit", arguments={"what": "it", "why": "so"}),
    ),
    Bad("edit of nothing", WAITING, INVALID, decision("{ticket}", "edit")),
    Bad("arguments to approve", WAITING, INVALID, decision("{ticket}", "approve", arguments={})),
    Bad("no result", WAITING, INVALID, decision("{ticket}", "respond")),
    Bad(
        "deep arguments",
        WAITING,
        INVALID,
        decision("{ticket}", "edit", arguments={"what": nested(60)}),
    ),
    Bad("U+0000 result", WAITING, INVALID, decision("{ticket}", "respond", result=[ZERO])),
    Bad("surrogate reason", WAITING, INVALID, decision("{ticket}", "reject", reason=SURROGATE)),
    Bad(
        "other arguments quoted",
        WAITING,
        "412 args_digest_mismatch",
        decision("{ticket}", "approve", args_digest="sha256:0"),
    ),
    Bad("unknown action", WAITING, INVALID, decision("{ticket}", "resume")),
    Bad("remember", WAITING, INVALID, decision("{ticket}", "approve", remember=True)),
    Bad("no decisions", WAITING, INVALID, {"decisions": []}),
    Bad(
        "ticket twice",
        WAITING,
        "422 ticket_repeated",
        {"decisions": [{"ticket_id": "{ticket}", "action": "approve"}] * 2},
    ),
    Bad(
        "good one beside a bad one",
        WAITING,
        "404 ticket_not_found",
        {"decisions": [{"ticket_id": id, "action": "approve"} for id in ("{ticket}", UNKNOWN)]},
    ),
    Bad("unknown field", "POST /v1/runs/{waiting}/cancel", INVALID, {"mode": "now"}),
    Bad("unknown field", "POST /v1/runs/{waiting}/pause", INVALID, {"mode": "now"}),
    Bad("long reason", "POST /v1/runs/{waiting}/pause", INVALID, {"reason": "x" * 2001}),
    Bad("no text", "POST /v1/runs/{waiting}/pause", INVALID, {"reason": 7}),
    Bad("both", "POST /v1/stream-tokens", INVALID, {"run_id": "{done}", "thread_id": "{thread}"}),
]
RUN_EVENTS, THREAD_EVENTS = "GET /v1/runs/{done}/events", "GET /v1/threads/{thread}/events"
CURSORS = [
    *(
        Bad(f"id {id!r}", request, "400 cursor_invalid", last_event_id=id)
        for request in (RUN_EVENTS, THREAD_EVENTS)
        for id in ("-1", "1.5", "many", "\xb2", "9" * 30)
    ),
    Bad("negative after", RUN_EVENTS + "?after=-1", "400 cursor_invalid"),
    Bad("beyond the head", RUN_EVENTS, "410 cursor_expired", last_event_id="1000"),
    Bad("beyond the head", THREAD_EVENTS, "410 cursor_expired", last_event_id="1000"),
    Bad("no cursor", "GET /v1/runs?cursor=abc", "400 cursor_invalid"),
    Bad("no cursor", "GET /v1/threads?cursor=!", "400 cursor_invalid"),
    Bad("no cursor", "GET /v1/tickets?cursor=W10", "400 cursor_invalid"),
    Bad("no cursor", "GET /v1/threads/{thread}/messages?cursor=bnVsbA", "400 cursor_invalid"),
]
QUERIES = [
    Bad("misspelt", "GET /v1/runs?thread=x", INVALID),
    Bad("misspelt", "GET /v1/threads/{thread}/runs?metadatak=x", INVALID),
    Bad("misspelt", RUN_EVENTS + "?afer=3", INVALID),
    Bad("parameter of another address", "POST /v1/runs?wait=5", INVALID, start()),
    Bad("surrogate as parameter", "GET /v1/runs?%ED%A0%80=1", INVALID),
    Bad("no type", RUN_EVENTS + "?types=run_begin", INVALID),
    Bad("no status", "GET /v1/runs?status=finished", INVALID),
    Bad("U+0000", "GET /v1/runs?agent_id=%00", INVALID),
    Bad("U+0000", "GET /v1/runs?metadata.k=%00", INVALID),
    Bad("U+0000", "GET /v1/threads?resource_id=%00", INVALID),
    Bad("no page", "GET /v1/runs?limit=0", INVALID),
    Bad("endless page", "GET /v1/runs?limit=100000", INVALID),
    Bad("no time", "GET /v1/runs?created_after=yesterday", INVALID),
    Bad("out of the calendar", "GET /v1/runs?created_after=0001-01-01T00:00:00%2B14:00", INVALID),
    Bad("endless seq", "GET /v1/threads/{thread}/messages?after=" + "9" * 30, INVALID),
    Bad("endless wait", "GET /v1/runs/{waiting}?wait=100000", INVALID),
    Bad("id that is no UUID", "GET /v1/runs/run-1", INVALID),
    Bad("U+0000 as id", "GET /v1/runs/%00", INVALID),
    Bad("foreign run", "GET /v1/runs/{foreign_run}", "404 run_not_found"),
    Bad("foreign run", "POST /v1/runs/{foreign_run}/cancel", "404 run_not_found"),
    Bad("foreign thread", "DELETE /v1/threads/{foreign_thread}", "404 thread_not_found"),
    Bad("unknown run", f"GET /v1/runs/{UNKNOWN}", "404 run_not_found"),
    Bad("unknown agent", "GET /v1/agents/nobody", "404 agent_not_found"),
    Bad("unknown address", "GET /v1/jobs", "404 not_found"),
    Bad("slash too many", "GET /v1/runs/", "404 not_found"),
    Bad("wrong method", "DELETE /v1/runs", "405 method_not_allowed"),
    Bad("wrong method", "PUT /v1/threads/{thread}", "405 method_not_allowed"),
]

BAD_REQUESTS = [*STARTS, *INPUTS, *THREADS, *DECISIONS, *CURSORS, *QUERIES]
