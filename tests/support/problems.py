"""Checks the problem document of a refusal."""

from typing import Any
from uuid import UUID

import httpx2

from tests.surface.document import declares

ALWAYS = {
    "type",
    "title",
    "status",
    "detail",
    "instance",
    "code",
    "trace_id",
    "retryable",
}


def the_problem(response: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    """The response's problem document; it must be complete and have this status and code."""
    assert (response.status_code, _code(response)) == (status, code), response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert problem.keys() >= ALWAYS
    path = response.request.url.path
    assert declares(response.request.method, path, status, code), (
        f"{response.request.method} {path} answers {code}: add it to the refusals(…) of its route."
    )
    assert problem["type"] == f"/problems/{code}"
    assert problem["status"] == status
    assert problem["title"]
    assert problem["detail"]
    assert "error" not in problem
    assert problem["instance"] == response.request.url.raw_path.decode().partition("?")[0]
    assert problem["retryable"] is (status in (429, 503))
    UUID(problem["trace_id"])
    return problem


def _code(response: httpx2.Response) -> str:
    if "json" not in response.headers.get("content-type", ""):
        return ""
    return str(response.json().get("code"))
