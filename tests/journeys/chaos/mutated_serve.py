"""Serves with a planted bug: `python -m tests.journeys.chaos.mutated_serve fence serve`.

Each bug breaks a guarantee at a place where a developer could have introduced it. Commits are slowed down,
as on a slow disk.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Any

from app import cli
from app.clock import sleep
from app.commands.tickets import decide
from app.commands.tickets.decision_types import DecisionRequest
from app.context import ServiceContext
from app.domain.ids import RunId
from app.domain.principals import Principal
from app.domain.structs import replace
from app.events import transaction as outgoing
from app.events.transaction import EventTransactions, Transaction
from app.storage.events import batched_append
from app.workers import direct_start

SLOW_COMMIT = 0.3

_FENCE_OF_EVENTS = "WHERE h.run_id = w.run_id AND h.attempt = w.attempt\n    ORDER BY"


def without_a_fence() -> None:
    """A worker that lost a run still writes its events."""
    statement = batched_append._FLUSH
    unfenced = statement.text.replace(_FENCE_OF_EVENTS, "ORDER BY")
    assert unfenced != statement.text
    statement.text = unfenced


def publishing_before_the_commit() -> None:
    """Events of a command are published before their transaction commits."""

    @asynccontextmanager
    async def transaction(
        self: EventTransactions, now: datetime | None = None, *, by_key: bool = False
    ) -> AsyncIterator[Transaction]:
        now = now or self._clock.now()
        async with self._database.transaction(by_key=by_key) as connection:
            transaction = Transaction(connection, now)
            yield transaction
            for batch in await outgoing._append_events(transaction, now):
                self._publisher.publish(batch)
                await sleep(SLOW_COMMIT)

    EventTransactions.transaction = transaction  # type: ignore[method-assign]  # the bug


class _Undo(Exception):
    """Rolls a trial transaction back."""


def acknowledging_before_the_commit() -> None:
    """A decision is answered after its validation, and committed afterwards."""
    real = decide.decide
    later: set[asyncio.Task[Any]] = set()

    class Undone(EventTransactions):
        @asynccontextmanager
        async def transaction(
            self, now: datetime | None = None, *, by_key: bool = False
        ) -> AsyncIterator[Transaction]:
            with suppress(_Undo):
                async with self._database.transaction(by_key=by_key) as connection:
                    yield Transaction(connection, now or self._clock.now())
                    raise _Undo

    async def early(
        ctx: ServiceContext,
        principal: Principal,
        run_id: RunId,
        requests: Sequence[DecisionRequest],
        *,
        deliver: bool = True,
        claim: object = None,
        once: object = None,
    ) -> decide.Decided:
        dry = Undone(ctx.database, ctx.publisher, ctx.clock)
        answer = await real(replace(ctx, events=dry), principal, run_id, requests)

        async def commit() -> None:
            await sleep(SLOW_COMMIT)
            await real(ctx, principal, run_id, requests)

        task = asyncio.get_running_loop().create_task(commit())
        later.add(task)
        task.add_done_callback(later.discard)
        return replace(answer, to_claim=None)

    async def never(*_: object) -> None:
        """The decision takes the way that is broken."""

    # The bug.
    vars(direct_start).update(decide=early, decide_at_once=never)


MUTANTS: Mapping[str, Callable[[], None]] = {
    "fence": without_a_fence,
    "publish": publishing_before_the_commit,
    "acknowledge": acknowledging_before_the_commit,
}


def program(mutant: str) -> Sequence[str]:
    """The command that replaces `holdfast`."""
    return (sys.executable, "-m", "tests.journeys.chaos.mutated_serve", mutant)


if __name__ == "__main__":
    MUTANTS[sys.argv.pop(1)]()
    cli.main()
