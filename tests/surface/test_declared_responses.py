"""A scenario produces every response that the document declares, and no other response.

A new code: add it to `CODES` in app/http/error_codes.py, name it in the route's `refusals(…)`, renew the
snapshot, and add a scenario to scenarios.py, or to inputs.py, pending_inputs.py or stopping.py if it fits there;
successes.py has those of the other statuses.
"""

import ast
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import app
from app.http.error_codes import CODES
from app.http.errors import STATUS
from tests.support.databases import Databases
from tests.support.problems import the_problem
from tests.support.routes import Route
from tests.surface import (  # noqa: F401  they fill the registry
    bucket_outage,
    inputs,
    memories,
    overload,
    pausing,
    pending_inputs,
    signals,
    stopping,
    successes,
)
from tests.surface.common_refusals import COMMON_REFUSALS
from tests.surface.document import Declared, declared
from tests.surface.scenarios import SCENARIOS
from tests.surface.servers import Servers, open_servers

pytestmark = pytest.mark.anyio

APP = Path(app.__file__).parent

DECLARED = sorted(declared())
PROMISED = {
    "POST /v1/runs": "agent_not_found thread_not_found thread_busy run_id_conflict queue_full "
    "message_too_large body_too_large invalid_request draining",
    "GET /v1/runs/{run_id}": "run_not_found",
    "GET /v1/runs": "cursor_mismatch",
    "GET /v1/threads/{thread_id}/runs": "cursor_mismatch",
    "GET /v1/runs/{run_id}/events": "cursor_expired cursor_invalid run_not_found",
    "GET /v1/threads/{thread_id}/events": "cursor_expired cursor_invalid thread_not_found",
    "GET /v1/runs/{run_id}/snapshot": "run_not_found",
    "GET /v1/threads/{thread_id}/snapshot": "thread_not_found",
    "POST /v1/runs/{run_id}/decisions": "ticket_not_found ticket_already_decided ticket_expired "
    "approver_not_allowed args_digest_mismatch response_schema_violation arguments_invalid",
    "POST /v1/runs/{run_id}/cancel": "run_not_found",
    "POST /v1/runs/{run_id}/pause": "run_not_found run_finished backend_unsupported",
    "POST /v1/runs/{run_id}/resume": "run_not_found run_finished",
    "POST /v1/runs/{run_id}/inputs": "run_not_found not_steerable run_finished run_paused",
    "POST /v1/threads/{thread_id}/messages": "thread_not_found not_steerable",
    "GET /v1/threads/{thread_id}/inputs": "thread_not_found",
    "GET /v1/threads/{thread_id}/inputs/{input_id}": "thread_not_found input_not_found",
    "PATCH /v1/threads/{thread_id}/inputs/{input_id}": "input_not_found already_consumed "
    "revision_mismatch",
    "DELETE /v1/threads/{thread_id}/inputs/{input_id}": "input_not_found already_consumed "
    "revision_mismatch",
    "DELETE /v1/threads/{thread_id}": "has_children has_active_run",
    "GET /v1/runs/{run_id}/explain": "run_not_found",
    "POST /v1/stream-tokens": "scope_missing",
    "POST /v1/signals": "signal_id_conflict signal_payload_mismatch",
    "GET /v1/memories/{memory_key}": "memory_not_found scope_missing",
    "PUT /v1/memories/{memory_key}": "memory_too_large memory_full memory_has_secret",
    "POST /v1/runs/{run_id}/retry": "run_not_found run_not_finished",
    "GET /v1/runs/{run_id}/audit": "run_not_found",
}
"""Codes that clients may rely on: the document may declare more, never fewer."""

OF_VISITED_ROUTES = frozenset(
    ("mcp_authorization_failed", "mcp_authorization_server_away", "mcp_authorization_unused")
)
"""Codes of routes that browsers visit. They are not in the document; `tests/journeys/test_mcp_access.py` produces them."""

_STATUSES = {kind.__name__: status for kind, status in STATUS.items()}


@pytest.fixture(scope="module")
async def servers(
    postgres: Databases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Servers]:
    async with open_servers(postgres, tmp_path_factory.mktemp("keys")) as made:
        yield made


@pytest.mark.parametrize("row", DECLARED, ids=str)
async def test_every_declared_response_is_produced(servers: Servers, row: Declared) -> None:
    scenario = SCENARIOS.get(str(row)) or COMMON_REFUSALS.get(row.code)
    assert scenario is not None, (
        f"{row} is declared, and nothing produces it. Add to tests/surface/scenarios.py a function "
        f'under @answers("{row}"), or take the code out of the refusals(…) of the route.'
    )
    method, _, path = row.operation.partition(" ")
    response = await scenario(servers, Route(method, path))
    if row.code:
        the_problem(response, row.status, row.code)
    else:
        assert response.status_code == row.status, response.text


def test_every_produced_response_is_declared() -> None:
    rows = {str(row) for row in DECLARED}
    assert SCENARIOS.keys() <= rows
    assert COMMON_REFUSALS.keys() <= {row.code for row in DECLARED}


def test_every_error_code_is_declared_by_an_operation() -> None:
    assert CODES.keys() == {row.code for row in DECLARED if row.code} | OF_VISITED_ROUTES


def test_every_promised_error_code_is_declared() -> None:
    found = {(row.operation, row.code) for row in DECLARED}
    assert {(where, code) for where, codes in PROMISED.items() for code in codes.split()} <= found


def test_every_raised_error_code_has_the_status_of_its_exception() -> None:
    raised = {
        (call.args[0].value, _STATUSES[call.func.id])
        for file in APP.rglob("*.py")
        for call in ast.walk(ast.parse(file.read_text()))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in _STATUSES
        and call.args
        and isinstance(call.args[0], ast.Constant)
    }
    assert {(code, status) for code, (status, _) in CODES.items()} >= raised
    assert len(raised) > 40
