"""Every error code with its HTTP status and meaning.

A route declares its own codes by `responses=error_responses(…)`. `declare_errors` adds those that every
request of a kind may get.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

CODES: Mapping[str, tuple[int, str]] = {
    # --- malformed requests ---
    "malformed_body": (400, "the body isn't valid JSON in UTF-8"),
    "cursor_invalid": (400, "the cursor isn't one of this list or stream"),
    "cursor_mismatch": (400, "the cursor belongs to a query with other filters"),
    "body_too_large": (413, "the body is too large"),
    "message_too_large": (413, "a message is too large"),
    "file_empty": (422, "the file has no bytes"),
    "media_type_mismatch": (422, "the bytes aren't of the declared media type or part type"),
    "memory_too_large": (413, "the memory is too large"),
    "memory_has_secret": (422, "the memory has a password, a key or a token in it"),
    "unsupported_media_type": (415, "the Content-Type isn't JSON, or the body is compressed"),
    "invalid_request": (422, "a field or parameter is wrong, missing or unknown"),
    "schema_unsupported": (422, "the JSON Schema uses something that isn't supported in requests"),
    "idempotency_key_unsupported": (422, "this operation doesn't take an Idempotency-Key"),
    # --- authentication and authorization ---
    "unauthenticated": (401, "the API key is missing or unknown"),
    "stream_token_invalid": (401, "the stream token wasn't issued by this server"),
    "stream_token_expired": (401, "the stream token has expired"),
    "scope_missing": (403, "the API key lacks the scope that this operation needs"),
    "stream_token_elsewhere": (403, "the stream token is for another stream"),
    "host_not_allowed": (403, "the server isn't reached by this host name"),
    "origin_not_allowed": (403, "the server takes no requests from pages of this origin"),
    "approver_not_allowed": (403, "the ticket's approver rules don't let this subject decide it"),
    # --- not found, or not usable ---
    "agent_not_found": (404, "no such agent"),
    "run_not_found": (404, "no such run"),
    "thread_not_found": (404, "no such thread"),
    "ticket_not_found": (404, "no such ticket"),
    "event_not_found": (404, "the run has no such event"),
    "task_not_found": (404, "the run has no such task"),
    "mcp_server_not_found": (404, "the agents file has no such MCP server"),
    "message_not_found": (404, "the thread's log has no such message"),
    "input_not_found": (404, "the thread has no such input"),
    "rule_not_found": (404, "no such rule"),
    "file_not_found": (404, "no such file"),
    "memory_not_found": (404, "no such memory"),
    "agent_required": (422, "the request names no agent, and the thread has none yet"),
    "frontend_tool_taken": (422, "the agent already has a tool with this name"),
    "tool_not_found": (422, "the agent has no tool of this name"),
    "answer_without_text": (422, "the run waits for a text answer, and the message has no text"),
    "backend_unsupported": (
        422,
        "the agent's backend doesn't support what is asked; `features` lists it",
    ),
    "price_unknown": (422, "the run has a limit of its cost, and `models` have no known price"),
    "message_empty": (422, "a message has no content"),
    "seq_beyond_log": (422, "the thread's log has no message with this seq"),
    # --- conflicts with the current state ---
    "mcp_authorization_failed": (422, "no access to an MCP server was given"),
    "mcp_authorization_unused": (409, "the MCP server needs no access of single subjects"),
    "mcp_tool_changed": (409, "an MCP server says something else about a tool by now"),
    "idempotency_key_in_flight": (
        409,
        "a request with this Idempotency-Key is still being processed",
    ),
    "idempotency_key_reused": (422, "this Idempotency-Key was used for another request"),
    "memory_full": (409, "the owner has as many memories as the limits allow"),
    "thread_busy": (409, "another run occupies the thread"),
    "thread_exists": (409, "a thread with this id exists"),
    "has_active_run": (409, "a run occupies the thread"),
    "has_children": (409, "other threads have this one as their parent"),
    "message_id_conflict": (409, "the thread has another message with this id"),
    "not_replaceable": (409, "the run or message was rolled back, or no run of the thread has it"),
    "run_id_conflict": (409, "another request used this run id"),
    "run_finished": (409, "the run has ended"),
    "run_not_finished": (409, "the run hasn't ended"),
    "run_paused": (409, "the run is paused; resume it first"),
    "run_never_began": (409, "the run has written nothing into the log"),
    "run_not_waiting": (409, "the run isn't waiting"),
    "decisions_needed": (409, "the run waits for decisions, and a message can't replace them"),
    "not_steerable": (409, "the run is being cancelled and reads no more messages"),
    "not_retryable": (409, "the run succeeded, isn't the latest of its thread, or has no messages"),
    "already_consumed": (409, "the run has already read the message"),
    "input_retracted": (409, "the run ended without reading the message"),
    "cursor_expired": (410, "events after the cursor are no longer kept; read `snapshot` instead"),
    "revision_mismatch": (412, "the input was changed since this revision"),
    "queue_full": (429, "the queue of the thread, the run or the event is full"),
    # --- decisions ---
    "ticket_already_decided": (409, "another decision came first; `winner` shows it"),
    "ticket_expired": (410, "the ticket has expired"),
    "ticket_void": (
        410,
        "the ticket needs no decision any more: its run ended or got the answer elsewhere",
    ),
    "tickets_of_several_runs": (422, "the batch has tickets of several runs"),
    "ticket_repeated": (422, "the batch has two decisions for one ticket"),
    "decision_id_conflict": (409, "this decision id was used for another decision"),
    "already_voted": (409, "this subject has already voted on the ticket"),
    "agent_version_unavailable": (409, "no process has the version of the agent that the run uses"),
    "args_digest_mismatch": (412, "`args_digest` isn't that of the ticket's arguments"),
    "action_not_allowed": (422, "the ticket doesn't allow this action"),
    "arguments_invalid": (422, "the edited arguments don't match the tool's schema"),
    "response_schema_violation": (422, "the result doesn't match the ticket's response schema"),
    "remember_not_allowed": (422, "this decision can't be remembered as a rule"),
    # --- signals ---
    "signal_id_conflict": (409, "this signal id was used for another signal"),
    "signal_payload_mismatch": (
        422,
        "the payload matches the schema of none of the waiting tickets",
    ),
    # --- unavailable ---
    "mcp_authorization_server_away": (
        503,
        "the authorization server of an MCP server can't be used",
    ),
    "files_unavailable": (503, "the bytes of files can't be read or written at the moment"),
    "draining": (503, "this server is stopping; send the request again"),
    "overloaded": (503, "too many requests for the database connections; try again in a moment"),
    "database_unavailable": (503, "the database is unavailable; try again in a moment"),
}

CODES_BEFORE_ROUTES: Mapping[str, tuple[int, str]] = {
    "malformed_request": (400, "the request isn't valid HTTP"),
    "not_found": (404, "the address doesn't exist"),
    "method_not_allowed": (405, "the address doesn't support this method"),
    "request_timeout": (408, "the request didn't arrive completely in time"),
    "headers_too_large": (431, "the address and the headers are too large"),
    "http_error": (400, "the request can't be served"),
    "console_needs_https": (403, "the console takes no API key over an unencrypted connection"),
    "console_session_refused": (403, "only the console's own pages sign in and out"),
    "internal_error": (500, "a defect of Holdfast"),
}
"""What a request may get outside of the operations of the OpenAPI document, or from a defect."""

WITHOUT_DATABASE = frozenset(
    {"/v1/agents", "/v1/agents/{agent_id}", "/v1/changes", "/v1/me", "/v1/tools"}
)
"""Routes that use no database. They work during an outage and while the server stops."""

WITHOUT_SCOPE = frozenset({"/v1/me"})
"""Routes that need an API key and none of its scopes."""

_CODES = "x-codes"
_PROBLEM = {"$ref": "#/components/schemas/Problem"}
_OF_EVERY_ROUTE = (
    "unauthenticated",
    "host_not_allowed",
    "origin_not_allowed",
    "invalid_request",
)
_OF_DATABASE_ROUTES = ("database_unavailable", "overloaded", "draining")
_OF_WRITE_ROUTES = ("body_too_large", "unsupported_media_type")
_OF_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "cursor": ("cursor_invalid", "cursor_mismatch"),
    "Last-Event-ID": ("cursor_invalid", "cursor_expired"),
    "stream_token": ("stream_token_invalid", "stream_token_expired", "stream_token_elsewhere"),
    "Idempotency-Key": ("idempotency_key_in_flight", "idempotency_key_reused"),
}


def error_responses(*codes: str) -> dict[int | str, dict[str, Any]]:
    """For a route's `responses`: the error codes that are particular to it."""
    found: dict[int | str, dict[str, Any]] = {}
    for code in codes:
        found.setdefault(CODES[code][0], {"description": "", _CODES: []})[_CODES].append(code)
    return found


def declare_errors(document: dict[str, Any], problem: Mapping[str, Any], media_type: str) -> None:
    """Write the error codes of each operation into the OpenAPI document."""
    schemas = document["components"]["schemas"]
    schemas["Problem"] = problem
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    for path, operations in document["paths"].items():
        for method, operation in operations.items() if path.startswith("/v1/") else ():
            responses = operation["responses"]
            own = [code for one in responses.values() for code in one.pop(_CODES, ())]
            codes = sorted({*own, *_common_codes(path, method, operation)})
            for status in sorted({CODES[code][0] for code in codes}):
                those = [code for code in codes if CODES[code][0] == status]
                responses[str(status)] = _response(those, media_type)
            operation["responses"] = dict(sorted(responses.items()))


def _common_codes(path: str, method: str, operation: Mapping[str, Any]) -> Iterator[str]:
    """The error codes of every operation with this method, path and parameters."""
    named = {parameter["name"] for parameter in operation.get("parameters", ())}
    yield from _OF_EVERY_ROUTE
    if path not in WITHOUT_SCOPE:
        yield "scope_missing"
    if path not in WITHOUT_DATABASE:
        yield from _OF_DATABASE_ROUTES
    if "application/json" in operation.get("requestBody", {}).get("content", {}):
        yield "malformed_body"
    if method != "get":
        yield from _OF_WRITE_ROUTES
        if "Idempotency-Key" not in named:
            yield "idempotency_key_unsupported"
    if "Last-Event-ID" in named:
        # The cursor of events is an id, which belongs to no query.
        named -= {"cursor"}
    for name in named & _OF_PARAMETERS.keys():
        yield from _OF_PARAMETERS[name]


def _response(codes: Iterable[str], media_type: str) -> dict[str, Any]:
    meanings = [f"`{code}`: {CODES[code][1]}" for code in codes]
    narrowed = {"type": "object", "properties": {"code": {"enum": list(codes)}}}
    return {
        "description": "; ".join(meanings),
        "content": {media_type: {"schema": {"allOf": [_PROBLEM, narrowed]}}},
    }
