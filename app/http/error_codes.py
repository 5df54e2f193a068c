"""Every code by which requests are refused: its status, and what it means.

A route names its own in `responses=refusals(…)`. Those that any request may meet, because of what kind
of request it is, are added to the document from here as well.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

CODES: Mapping[str, tuple[int, str]] = {
    # --- requests that can't be read ---
    "malformed_body": (400, "the body isn't JSON in UTF-8"),
    "cursor_invalid": (400, "not a cursor of this list or stream"),
    "cursor_mismatch": (400, "a cursor of another query"),
    "body_too_large": (413, "the body is too large"),
    "message_too_large": (413, "a message is too large"),
    "unsupported_media_type": (415, "the body isn't declared to be plain JSON"),
    "invalid_request": (422, "a field or parameter is wrong, missing or unknown"),
    "schema_unsupported": (422, "a JSON Schema outside of the subset that clients may send"),
    "idempotency_key_unsupported": (422, "an Idempotency-Key, where none is kept"),
    # --- who asks ---
    "unauthenticated": (401, "no key, or none that is known"),
    "stream_token_invalid": (401, "not a stream token of this server"),
    "stream_token_expired": (401, "the stream token has expired"),
    "scope_missing": (403, "the key lacks the scope"),
    "stream_token_elsewhere": (403, "the stream token is for another stream"),
    "host_not_allowed": (403, "a server without keys was asked by another name than a local one"),
    "origin_not_allowed": (403, "a server without keys was asked by a browser's page"),
    "approver_not_allowed": (403, "the agent's rules want somebody else to answer"),
    # --- what is meant ---
    "agent_not_found": (404, "no such agent"),
    "run_not_found": (404, "no such run"),
    "thread_not_found": (404, "no such thread"),
    "ticket_not_found": (404, "no such ticket"),
    "task_not_found": (404, "the run has no such task"),
    "input_not_found": (404, "the thread has no such input"),
    "rule_not_found": (404, "no such rule"),
    "agent_required": (422, "no agent is named, and none was at work on the thread"),
    "frontend_tool_taken": (422, "the agent has a tool of its own by that name"),
    "answer_without_text": (422, "the run waits for words, and there are none"),
    "backend_unsupported": (422, "whoever executes the agent can't do what is asked; `features`"),
    "input_repeated": (422, "an input is named twice"),
    "order_impossible": (422, "inputs of one run would be torn apart"),
    "message_empty": (422, "a message has no content"),
    "seq_beyond_log": (422, "the log ends before that message"),
    # --- how things stand ---
    "idempotency_key_in_flight": (409, "the same request is being answered"),
    "idempotency_key_reused": (422, "another request was sent under this Idempotency-Key"),
    "thread_busy": (409, "another run occupies the thread"),
    "thread_exists": (409, "the thread id is taken"),
    "has_active_run": (409, "a run occupies the thread"),
    "has_children": (409, "other threads have this one as their parent"),
    "run_id_conflict": (409, "the run id is taken by another request"),
    "run_finished": (409, "the run has ended"),
    "run_not_finished": (409, "the run hasn't ended"),
    "run_paused": (409, "the run is paused, and goes on once it is resumed"),
    "run_never_began": (409, "the run has put nothing into the log"),
    "run_not_waiting": (409, "the run doesn't wait for anybody"),
    "decisions_needed": (409, "the run waits for decisions, which a message can't stand for"),
    "not_steerable": (409, "the run is being cancelled and reads nothing more"),
    "not_retryable": (409, "the run has succeeded, or isn't its thread's latest"),
    "already_consumed": (409, "the run has taken the message"),
    "input_retracted": (409, "the message was taken back"),
    "cursor_expired": (410, "the cursor can't be continued; `snapshot` says where to look"),
    "revision_mismatch": (412, "it was changed meanwhile"),
    "queue_full": (429, "too much waits for the thread, the run or the event"),
    # --- decisions ---
    "ticket_already_decided": (409, "another answer came first; `winner` is it"),
    "ticket_expired": (410, "the ticket has expired"),
    "ticket_void": (
        410,
        "nobody needs to answer the ticket: its run is done, or was answered elsewhere",
    ),
    "ticket_repeated": (422, "the batch answers a ticket twice"),
    "decision_id_conflict": (409, "another answer was given under this decision id"),
    "already_voted": (409, "who answers has voted before"),
    "agent_version_unavailable": (409, "the version of the agent that asks isn't to be had"),
    "args_digest_mismatch": (412, "the ticket is about other arguments than quoted"),
    "action_not_allowed": (422, "the ticket can't be answered with this action"),
    "arguments_invalid": (422, "the tool can't take the edited arguments"),
    "response_schema_violation": (422, "the result isn't what was asked for"),
    "remember_not_allowed": (422, "this answer can't be remembered"),
    # --- signals ---
    "signal_id_conflict": (409, "another signal was sent under this id"),
    "signal_payload_mismatch": (422, "no ticket that waits for the event takes this payload"),
    # --- on our side ---
    "draining": (503, "this server is stopping; another one takes the request"),
    "overloaded": (503, "more is asked at once than the database takes; try again in a moment"),
    "database_unavailable": (503, "the database doesn't answer; try again in a moment"),
}

WITHOUT_DATABASE = frozenset({"/v1/agents", "/v1/agents/{agent_id}"})
"""What is answered out of memory: it never waits, so neither a lost database nor a stop reaches it."""

_CODES = "x-codes"
_PROBLEM = {"$ref": "#/components/schemas/Problem"}
_OF_EVERYBODY = (
    "unauthenticated",
    "scope_missing",
    "host_not_allowed",
    "origin_not_allowed",
    "invalid_request",
)
_OF_WAITING = ("database_unavailable", "overloaded", "draining")
_OF_WRITERS = ("body_too_large", "unsupported_media_type")
_OF_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "cursor": ("cursor_invalid", "cursor_mismatch"),
    "Last-Event-ID": ("cursor_invalid", "cursor_expired"),
    "stream_token": ("stream_token_invalid", "stream_token_expired", "stream_token_elsewhere"),
    "Idempotency-Key": ("idempotency_key_in_flight", "idempotency_key_reused"),
}


def error_responses(*codes: str) -> dict[int | str, dict[str, Any]]:
    """For a route's `responses`: the codes by which it refuses what others of its kind would not."""
    found: dict[int | str, dict[str, Any]] = {}
    for code in codes:
        found.setdefault(CODES[code][0], {"description": "", _CODES: []})[_CODES].append(code)
    return found


def declare_errors(document: dict[str, Any], problem: Mapping[str, Any], media_type: str) -> None:
    """Write into each operation by which codes it may refuse, as problems of that media type."""
    schemas = document["components"]["schemas"]
    schemas["Problem"] = problem
    for of_the_framework in ("HTTPValidationError", "ValidationError"):
        schemas.pop(of_the_framework, None)
    for path, operations in document["paths"].items():
        for method, operation in operations.items() if path.startswith("/v1/") else ():
            responses = operation["responses"]
            own = [code for one in responses.values() for code in one.pop(_CODES, ())]
            codes = sorted({*own, *_of_its_kind(path, method, operation)})
            for status in sorted({CODES[code][0] for code in codes}):
                those = [code for code in codes if CODES[code][0] == status]
                responses[str(status)] = _response(those, media_type)
            operation["responses"] = dict(sorted(responses.items()))


def _of_its_kind(path: str, method: str, operation: Mapping[str, Any]) -> Iterator[str]:
    """What any request of this shape may be told."""
    named = {parameter["name"] for parameter in operation.get("parameters", ())}
    yield from _OF_EVERYBODY
    if path not in WITHOUT_DATABASE:
        yield from _OF_WAITING
    if "requestBody" in operation:
        yield "malformed_body"
    if method != "get":
        yield from _OF_WRITERS
        if "Idempotency-Key" not in named:
            yield "idempotency_key_unsupported"
    for name in named & _OF_PARAMETERS.keys():
        yield from _OF_PARAMETERS[name]


def _response(codes: Iterable[str], media_type: str) -> dict[str, Any]:
    said = [f"`{code}`: {CODES[code][1]}" for code in codes]
    narrowed = {"type": "object", "properties": {"code": {"enum": list(codes)}}}
    return {
        "description": "; ".join(said),
        "content": {media_type: {"schema": {"allOf": [_PROBLEM, narrowed]}}},
    }
