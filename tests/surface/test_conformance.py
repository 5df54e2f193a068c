"""Every response conforms to the OpenAPI document, and shows no data of another tenant.

Valid and invalid requests are generated from the document. Some name rows of the client's tenant, some
rows of another tenant. Requests without an existing id change nothing.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.errors import FlakyStrategyDefinition
from schemathesis import GenerationMode, Response

from tests.support.rows import all_rows
from tests.support.servers import Server
from tests.surface.conftest import OURS, THEIRS
from tests.surface.document import LABELS
from tests.surface.examples import CHOSEN, EXAMPLES, generated
from tests.surface.schema_client import (
    SCHEMA,
    STREAM,
    Case,
    Operation,
    SchemaClient,
    aim,
    aim_body,
    limit_wait,
    streams,
)
from tests.surface.tenant_data import TenantData

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

WITHOUT_INVALID_REQUESTS = {
    "GET /health",
    "GET /health/live",
    "GET /v1/agents",
    "GET /v1/agents/{agent_id}",
    "DELETE /v1/mcp-servers/{server_id}/authorization",
    "GET /v1/mcp-servers/{server_id}",
    "POST /v1/mcp-servers/{server_id}/restart",
    "GET /v1/changes",
    "POST /v1/files",
    "GET /v1/system",
    "GET /v1/me",
}

MAX_RESTARTS = 5


def operation_of(label: str) -> Operation:
    method, _, path = label.partition(" ")
    operation: Operation = SCHEMA[path][method]
    return operation


@pytest.mark.parametrize("label", LABELS)
async def test_every_response_conforms_to_the_document(
    server: Server, ours: TenantData, theirs: TenantData, label: str
) -> None:
    operation, schema_client = operation_of(label), SchemaClient(server.base, OURS, theirs)
    accepted = st.sampled_from(["*/*", STREAM] if streams(operation) else ["*/*"])

    @generated
    @given(case=operation.as_strategy(), accept=accepted, target=st.integers(0, 5), data=st.data())
    def ask(case: Case, accept: str, target: int, data: st.DataObject) -> None:
        def one_of(ids: Sequence[str]) -> str:
            return data.draw(st.sampled_from(ids))

        if target > 0:
            aim(case, ours if target > 1 else theirs, one_of)
        limit_wait(case)
        schema_client.ask(case, is_wrong=False, accept=accept)

    await asyncio.to_thread(ask)
    assert schema_client.answers


@pytest.mark.parametrize("label", [one for one in LABELS if one not in WITHOUT_INVALID_REQUESTS])
async def test_invalid_requests_are_refused_and_change_nothing(
    server: Server, theirs: TenantData, served_database: str, label: str
) -> None:
    operation, schema_client = operation_of(label), SchemaClient(server.base, OURS, theirs)

    @generated
    @given(case=operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
    def ask(case: Case) -> None:
        limit_wait(case)
        schema_client.ask(case, is_wrong=True)

    for key in (OURS, THEIRS):
        async with server.client(key) as client:
            # The first read of an inbox numbers its notices.
            await client.get("/v1/tickets/events")
    before = await all_rows(served_database)
    await asyncio.to_thread(ask)
    if label.startswith("GET ") or all(status >= 400 for status in schema_client.answers):
        assert await all_rows(served_database) == before


async def test_every_response_in_a_sequence_conforms_to_the_document(
    server: Server, ours: TenantData, theirs: TenantData
) -> None:
    schema_client = SchemaClient(server.base, OURS, theirs)
    wrong: list[AssertionError] = []

    class Machine(SCHEMA.as_state_machine()):  # type: ignore[misc]  # the class is generated, too
        """Uses values from earlier responses in later requests."""

        def before_call(self, case: Case) -> None:
            limit_wait(case)
            aim_body(case, ours, lambda found: found[len(schema_client.answers) % len(found)])

        def get_call_kwargs(self, case: Case) -> dict[str, Any]:
            return {**schema_client.with_key, "base_url": server.base}

        def validate_response(self, response: Response, case: Case, **sent: Any) -> None:
            try:
                schema_client.check(case, response)
            except AssertionError as error:
                wrong.append(error)
                raise

    def run_sequences() -> None:
        """Restart when a repetition differs: later requests depend on earlier responses, which depend on stored
        rows."""
        for _ in range(MAX_RESTARTS):
            try:
                Machine.run(
                    settings=settings(CHOSEN, max_examples=EXAMPLES, stateful_step_count=12)
                )
            except FlakyStrategyDefinition:
                assert not wrong
            else:
                return

    await asyncio.to_thread(run_sequences)
    assert schema_client.answers.keys() >= {200, 404, 422}
    assert schema_client.answers.keys() & {201, 202}, "no request created a row for later requests"
