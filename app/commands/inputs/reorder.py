"""Reorder: what waits for the runs of a thread is read in another order.

Those that are named share out among themselves the places that they have; the others stay. What one run
reads it reads together, so that to move a message before that of another run means to move the run, all
of whose messages have to come along. The run that occupies the thread is always the first to read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from app.commands.idempotency import IdempotentCommand, begin_once, keep_answer
from app.commands.inputs.pending_inputs import InputVersion, find_pending, require_pending
from app.context import ServiceContext
from app.domain.errors import Invalid
from app.domain.events.command_events import InputsReordered
from app.domain.ids import InputId, RunId, ThreadId
from app.domain.principals import Principal, Scope
from app.domain.threads.inputs import Input, in_new_order, runs_in_order
from app.events.transaction import Transaction
from app.queries.records import locked_thread
from app.storage.runs import thread_queue
from app.storage.threads import pending_inputs


async def reorder(
    ctx: ServiceContext,
    principal: Principal,
    thread_id: ThreadId,
    wanted: Sequence[InputVersion],
    *,
    once: IdempotentCommand[Sequence[Input]] | None = None,
) -> Sequence[Input]:
    """All that waits, in its new order; or refuse and change nothing."""
    principal.require(Scope.RUNS_WRITE)
    named = [seen.input_id for seen in wanted]
    if len(set(named)) < len(named):
        raise Invalid("input_repeated", "Each input has one place. Remove the repetition.")
    tenant = principal.tenant
    async with ctx.events.transaction() as transaction:
        connection = transaction.connection
        await begin_once(connection, principal, once)
        thread = await locked_thread(connection, tenant, thread_id)
        for seen in wanted:
            require_pending(await find_pending(connection, tenant, thread, seen))
        before = await pending_inputs.pending(connection, tenant, thread_id)
        after = in_new_order(before, named)
        places_before = dict(await thread_queue.queued_runs(connection, tenant, thread_id))
        places = _places(after, places_before)
        for run_id, place in places.items():
            if places_before[run_id] != place:
                await thread_queue.set_position(connection, tenant, run_id, place)
        moved = {new.id for old, new in zip(before, after, strict=True) if old.id != new.id}
        reordered = [
            replace(
                each,
                place=places.get(each.run_id, each.place),
                revision=each.revision + (each.id in moved),
            )
            for each in _with_positions(after)
        ]
        for each in reordered:
            if each.id in moved:
                await pending_inputs.move(connection, tenant, each)
        await _tell(transaction, principal, thread_id, reordered, moved)
        await keep_answer(connection, principal, once, reordered)
    return reordered


def _places(after: Sequence[Input], before: Mapping[RunId, int]) -> dict[RunId, int]:
    """Where each run that reads something stands in line from now on: on one of the same places."""
    order = runs_in_order(after)
    if order is None or any(run_id not in before for run_id in order[1:]):
        raise Invalid(
            "order_impossible",
            "The messages of one run are read together, and those of the run that occupies the thread "
            "before all others. Name all the messages of a run that is to be moved.",
        )
    in_line = [run_id for run_id in order if run_id in before]
    return dict(zip(in_line, sorted(before[run_id] for run_id in in_line), strict=True))


def _with_positions(after: Sequence[Input]) -> list[Input]:
    """Each run's messages in their new order on the positions that they have had."""
    free: dict[RunId, list[int]] = {}
    for each in after:
        free.setdefault(each.run_id, []).append(each.position)
    rising = {run_id: iter(sorted(positions)) for run_id, positions in free.items()}
    return [replace(each, position=next(rising[each.run_id])) for each in after]


async def _tell(
    transaction: Transaction,
    principal: Principal,
    thread_id: ThreadId,
    reordered: Sequence[Input],
    moved: set[InputId],
) -> None:
    """Each run whose messages have moved says how they stand now."""
    in_line = await thread_queue.queued_runs(transaction.connection, principal.tenant, thread_id)
    positions = {run_id: place for place, (run_id, _) in enumerate(in_line, 1)}
    for run_id in dict.fromkeys(each.run_id for each in reordered if each.id in moved):
        ids = [str(each.id) for each in reordered if each.run_id == run_id]
        event = InputsReordered(ids, positions.get(run_id, 0))
        transaction.emit(principal.tenant, thread_id, run_id, event)
