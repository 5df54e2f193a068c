"""New calls: the calls of the model's latest answer, before any of them runs."""

from collections.abc import Sequence

from app.domain.threads.messages import Message, ToolCall
from app.domain.tools.tool_calls import CallState, CallStatus, Effect, idempotency_key
from app.runtime.active_run import ActiveRun
from app.runtime.tool_calls.batch import ToolBatch


def new_calls(run: ActiveRun, calls: Sequence[ToolCall]) -> list[CallState]:
    """The calls of one answer in their order, each with the idempotency key of all its tries."""
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
                tool_digest=None if tool is None else tool.descriptor.digest,
            )
        )
    return states


def with_calls_declined(run: ActiveRun, answer: Message) -> ToolBatch:
    """The model's answer, with each of its calls reported as interrupted; none of them runs."""
    batch = ToolBatch(run, [answer])
    for state in new_calls(run, answer.tool_calls):
        batch.interrupt(state)
    return batch
