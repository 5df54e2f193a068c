"""A month of conversations, by the statements of real runs, each at the time at which it would have been."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.clock import new_id
from app.domain.checkpoints import Checkpoint
from app.domain.events.agent_events import AgentEvent
from app.domain.events.run_events import RunFinish, RunStart
from app.domain.events.step_events import InferenceComplete, StepEnd, StepStart, TextDelta
from app.domain.events.tool_call_events import (
    ToolCallDelta,
    ToolCallDone,
    ToolCallReady,
    ToolCallStart,
)
from app.domain.ids import CallId, ThreadId, WorkerId
from app.domain.runs.runs import Done, MessageOutput, NewRun
from app.domain.runs.terminations import NaturalEnd
from app.domain.structs import replace
from app.domain.threads.messages import MessageRange, Role, ToolCall
from app.storage.checkpoints import batched
from app.storage.events import batched_append
from app.storage.events.batched_append import Flush
from app.storage.postgres.database import RawPool
from app.storage.runs import claims
from tests.support.stored_runs import TENANT, checkpoint_of, entries_of, message, some_run

QUESTION = "Where is my order number 20261118-42, and can you send it to my office instead, please?"
_SYLLABLES = [a + b for a in "bdfgklmnprstvw" for b in ("a", "e", "in", "o", "ur", "it")]
_CHANCE = random.Random(20261118)
PIECES = tuple(
    "".join("".join(_CHANCE.choices(_SYLLABLES, k=_CHANCE.randint(1, 4))) + " " for _ in range(2))
    for _ in range(150)
)
"""A streamed answer of three hundred different words."""
ARGUMENTS = ('{"number"', ': "202611', '18-42", "f', 'ull": true}')
RESULT = {"status": "success", "data": {"state": "packed", "carrier": "post", "days": 2}}
DELTAS = len(PIECES) + len(ARGUMENTS)
MERGED = DELTAS - 2
"""Rows of one run that merging saves."""
MESSAGES = 4


@dataclass(slots=True)
class Conversation:
    """A thread and the end of its log."""

    thread_id: ThreadId
    next_seq: int = 1


async def day(
    pool: RawPool, owner: WorkerId, at: datetime, *, threads: int, runs_each: int
) -> None:
    """Writes one day: `threads` conversations of `runs_each` finished runs."""
    conversations = [Conversation(ThreadId(new_id())) for _ in range(threads)]
    for place in range(runs_each):
        now = at + timedelta(seconds=place)
        runs = [await _start(pool, owner, conversation, now) for conversation in conversations]
        flushes = [
            Flush(run.tenant, run.thread_id, run.id, 1, entries_of(*_speech(run))) for run in runs
        ]
        assert len(await batched_append.flush(pool, flushes, now)) == threads
        ends = [
            (_end(run, conversation, now), entries_of(*_last_words(run), step=None))
            for run, conversation in zip(runs, conversations, strict=True)
        ]
        written = await batched.checkpoint(
            pool, [(replace(end, calls_settled=True), emitted) for end, emitted in ends], now
        )
        assert len(written) == threads
        for conversation in conversations:
            conversation.next_seq += MESSAGES - 1


async def _start(
    pool: RawPool, owner: WorkerId, conversation: Conversation, at: datetime
) -> NewRun:
    run = some_run(QUESTION, thread_id=conversation.thread_id)
    created = entries_of(*_created(run), step=None)
    assert await claims.admit(pool, run, owner, created, at) is not None
    conversation.next_seq += 1
    return run


def _created(run: NewRun) -> Sequence[AgentEvent]:
    return [RunStart(_identity(run))]


def _identity(run: NewRun) -> dict[str, str]:
    return {
        "run_id": run.id,
        "thread_id": run.thread_id,
        "root_run_id": run.id,
        "agent_id": run.agent_id,
        "session_id": f"{run.id}:1",
        "origin": "User",
    }


def _speech(run: NewRun) -> list[AgentEvent]:
    call = "call_0a1b2c3d"
    usage = {"input_tokens": 800, "output_tokens": 400}
    return [
        StepStart(new_id()),
        ToolCallStart(call, "find_order"),
        *(ToolCallDelta(call, piece) for piece in ARGUMENTS),
        ToolCallReady(call, "find_order", {"number": "20261118-42", "full": True}),
        InferenceComplete("gpt-5.4-mini", 900, usage),
        ToolCallDone(call, new_id(), RESULT, "succeeded"),
        StepEnd(),
        StepStart(new_id()),
        *map(TextDelta, PIECES),
        InferenceComplete("gpt-5.4-mini", 4_000, usage),
        StepEnd(),
    ]


def _last_words(run: NewRun) -> list[AgentEvent]:
    result = {"response": "".join(PIECES)}
    return [RunFinish(_identity(run), "done", {"type": "natural_end"}, "succeeded", result)]


def _end(run: NewRun, conversation: Conversation, at: datetime) -> Checkpoint:
    call = ToolCall(CallId("call_0a1b2c3d"), "find_order", {"number": "20261118-42", "full": True})
    messages = (
        replace(message("Let me see.", Role.ASSISTANT), tool_calls=(call,)),
        replace(message(str(RESULT), Role.TOOL), tool_call_id=call.id),
        message("".join(PIECES), Role.ASSISTANT),
    )
    produced = tuple(one.produced_by(run.id, step_index=0) for one in messages)
    first = conversation.next_seq
    output = MessageOutput(
        range=MessageRange(first, first + len(produced) - 1),
        message_ids=tuple(one.id for one in produced),
    )
    return replace(
        checkpoint_of(run, next_seq=first, state=Done(NaturalEnd(), at, "".join(PIECES))),
        messages=produced,
        output=output,
        steps=2,
    )


async def side_rows(pool: RawPool, at: datetime, runs: int) -> None:
    """Rows that a day leaves in the queue's log and among the stored answers for repeated requests."""
    await pool.execute(
        "INSERT INTO pgq.pgqueuer_log (created, job_id, status, priority, entrypoint)"
        " SELECT $1, n, s::pgq.pgqueuer_status, 0, 'run' FROM generate_series(1, $2::int) n,"
        " unnest(ARRAY['queued', 'picked', 'successful']) s",
        at,
        runs,
    )
    await pool.execute(
        "INSERT INTO idempotency_keys (tenant, subject, route, key, fingerprint, status, body,"
        " created_at) SELECT $3, 'ann', 'POST /v1/runs', gen_random_uuid()::text,"
        " repeat('f', 64), 202, repeat('b', 900), $1 FROM generate_series(1, $2::int)",
        at,
        runs,
        TENANT,
    )
