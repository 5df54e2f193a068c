"""Whatever is asked, the answer is one that the document declares, and never one of somebody else's.

Requests are made up out of the document: such as it allows, and such as it forbids. Some are about what
the asker has, some about what another tenant has. Those that name nothing which exists change nothing.
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
from tests.surface.asking import (
    SCHEMA,
    STREAM,
    Asker,
    Case,
    Operation,
    aim,
    aim_body,
    be_quick,
    streams,
)
from tests.surface.belongings import Belongings
from tests.surface.conftest import OURS, THEIRS
from tests.surface.document import LABELS
from tests.surface.examples import CHOSEN, EXAMPLES, made_up

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(600)]

TAKES_ANYTHING = {"GET /health", "GET /health/live", "GET /v1/agents", "GET /v1/agents/{agent_id}"}

MOST_BEGINNINGS = 5


def operation_of(label: str) -> Operation:
    method, _, path = label.partition(" ")
    operation: Operation = SCHEMA[path][method]
    return operation


@pytest.mark.parametrize("label", LABELS)
async def test_answers_are_as_the_document_says(
    server: Server, ours: Belongings, theirs: Belongings, label: str
) -> None:
    operation, asker = operation_of(label), Asker(server.base, OURS, theirs)
    accepted = st.sampled_from(["*/*", STREAM] if streams(operation) else ["*/*"])

    @made_up
    @given(case=operation.as_strategy(), accept=accepted, whose=st.integers(0, 5), data=st.data())
    def ask(case: Case, accept: str, whose: int, data: st.DataObject) -> None:
        def one_of(ids: Sequence[str]) -> str:
            return data.draw(st.sampled_from(ids))

        if whose > 0:
            aim(case, ours if whose > 1 else theirs, one_of)
        be_quick(case)
        asker.ask(case, is_wrong=False, accept=accept)

    await asyncio.to_thread(ask)
    assert asker.answers


@pytest.mark.parametrize("label", [one for one in LABELS if one not in TAKES_ANYTHING])
async def test_wrong_requests_are_refused_and_change_nothing(
    server: Server, theirs: Belongings, served_database: str, label: str
) -> None:
    operation, asker = operation_of(label), Asker(server.base, OURS, theirs)

    @made_up
    @given(case=operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
    def ask(case: Case) -> None:
        be_quick(case)
        asker.ask(case, is_wrong=True)

    for key in (OURS, THEIRS):
        async with server.client(key) as client:
            # Whoever reads an inbox first gives its notices their numbers.
            await client.get("/v1/tickets/events")
    before = await all_rows(served_database)
    await asyncio.to_thread(ask)
    if label.startswith("GET ") or all(status >= 400 for status in asker.answers):
        assert await all_rows(served_database) == before


async def test_one_request_after_the_other_is_answered_as_the_document_says(
    server: Server, ours: Belongings, theirs: Belongings
) -> None:
    asker = Asker(server.base, OURS, theirs)
    wrong: list[AssertionError] = []

    class Machine(SCHEMA.as_state_machine()):  # type: ignore[misc]  # the class is made up, too
        """Goes on with what earlier answers have told."""

        def before_call(self, case: Case) -> None:
            be_quick(case)
            aim_body(case, ours, lambda found: found[len(asker.answers) % len(found)])

        def get_call_kwargs(self, case: Case) -> dict[str, Any]:
            return {**asker.with_key, "base_url": server.base}

        def validate_response(self, response: Response, case: Case, **sent: Any) -> None:
            try:
                asker.check(case, response)
            except AssertionError as error:
                wrong.append(error)
                raise

    def go_on() -> None:
        """What there is to go on with is up to the answers, and those to what was asked before: where a
        repetition finds something else it begins anew."""
        for _ in range(MOST_BEGINNINGS):
            try:
                Machine.run(
                    settings=settings(CHOSEN, max_examples=EXAMPLES, stateful_step_count=12)
                )
            except FlakyStrategyDefinition:
                assert not wrong
            else:
                return

    await asyncio.to_thread(go_on)
    assert asker.answers.keys() >= {200, 404, 422}
    assert asker.answers.keys() & {201, 202}, "nothing was made to go on with"
