"""Every operation of the OpenAPI document, for checks over all routes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx2

from tests.support.streams import Client, start_body

UNKNOWN = "00000000-0000-7000-8000-000000000000"
"""An id that no row has."""


@dataclass(frozen=True, slots=True)
class Route:
    """An operation of the OpenAPI document, and a valid request for it."""

    method: str
    path: str

    @property
    def ids(self) -> list[str]:
        return re.findall(r"{(\w+)}", self.path)

    async def ask(self, client: Client, ids: Mapping[str, str], **request: Any) -> httpx2.Response:
        body = BODIES.get((self.method, self.path))
        if body is not None:
            request["json"] = body
        needed = HEADERS.get((self.method, self.path))
        if needed is not None:
            request["headers"] = {**request.get("headers", {}), **needed}
        query = PARAMETERS.get((self.method, self.path))
        if query is not None:
            request["params"] = {**query, **request.get("params", {})}
        path = self.path.format(**{"task_id": f"bg_{UNKNOWN}", **ids, "seq": "999999"})
        return await client.http.request(self.method, path, **request)


def ids_of(run: Mapping[str, Any]) -> dict[str, str]:
    """The values of path parameters for the run and its thread."""
    return {"run_id": run["id"], "thread_id": run["thread_id"]}


BODIES = {
    ("POST", "/v1/runs"): start_body("quick", "hello"),
    ("POST", "/v1/runs/{run_id}/decisions"): {
        "decisions": [{"ticket_id": UNKNOWN, "action": "approve"}]
    },
    ("POST", "/v1/decisions"): {"decisions": [{"ticket_id": UNKNOWN, "action": "approve"}]},
    ("POST", "/v1/runs/{run_id}/inputs"): {"messages": [{"role": "user", "content": "hello"}]},
    ("POST", "/v1/threads/{thread_id}/messages"): {
        "messages": [{"role": "user", "content": "hello"}]
    },
    ("PATCH", "/v1/threads/{thread_id}/inputs/{input_id}"): {
        "message": {"role": "user", "content": "hello"}
    },
    ("POST", "/v1/threads"): {"title": "mine"},
    ("PATCH", "/v1/threads/{thread_id}"): {"title": "mine now"},
    ("POST", "/v1/signals"): {"signal_id": "signal-1", "name": "payment_settled", "key": "inv-7"},
    ("POST", "/v1/files"): {"any": "bytes"},
    ("POST", "/v1/stream-tokens"): {"run_id": UNKNOWN},
    ("PUT", "/v1/memories/{memory_key}"): {"value": "green"},
    ("POST", "/v1/mcp-servers/{server_id}/tools/accept"): {"digests": ["sha256:0"]},
}
HEADERS = {("PATCH", "/v1/threads/{thread_id}/inputs/{input_id}"): {"If-Match": '"1"'}}
PARAMETERS = {("DELETE", "/v1/memories"): {"scope": "own"}}
NEEDS_NO_KEY = {"/health", "/health/live"}


async def routes_of(client: Client) -> list[Route]:
    """All operations except the public ones."""
    document = await client.get("/openapi.json")
    return [
        Route(method.upper(), path)
        for path, operations in document["paths"].items()
        for method in operations
        if path not in NEEDS_NO_KEY
    ]
