"""Fresh calls: those that the model has just asked for, before anything has become of them."""

from collections.abc import Sequence

from app.domain.threads.messages import Message, ToolCall
from app.domain.tools.tool_calls import CallState, CallStatus, Effect, idempotency_key
from app.runtime.active_run import ActiveRun
from app.runtime.tool_calls.batch import ToolBatch


def new_calls(run: ActiveRun, calls: Sequence[ToolCall]) -> list[CallState]:
    """The calls of one answer in their order, each with the key that all its tries share."""
    states = []
    for position, call in enumerate(calls):
        tool = run.agent.tools.get(call.name)
        states.append(
            CallState(
                call=call,
                step_index=run.step_index,
                position=position,
                status=CallStatus.PENDING,
                effect=Effect.UNSAFE if tool is None else tool.descriptor.effect,
                idempotency_key=idempotency_key(run.record.id, run.step_index, call.id),
            )
        )
    return states


def with_calls_declined(run: ActiveRun, said: Message) -> ToolBatch:
    """What the model said is kept, and its calls have an answer, though none of them runs."""
    batch = ToolBatch(run, [said])
    for state in new_calls(run, said.tool_calls):
        batch.interrupt(state)
    return batch
