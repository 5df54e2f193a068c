"""Calls that a lost worker left running: what became of each is found out before anything is done again.

its tool says   it happened, with this result    ─► that is the result
                it didn't happen                 ─► run it, under the same key
                nothing, or doesn't know         ─► run it if that is safe, else ask a person
"""

from dataclasses import dataclass
from typing import TypeAlias, TypeGuard, assert_never

import structlog

from app.domain.json_values import JsonObject, as_object
from app.domain.tools.reconciliation import DidNotHappen, DontKnow, Found
from app.domain.tools.tool_calls import CallState, ToolResult
from app.runtime.active_run import ActiveRun
from app.runtime.ports import Reconciles, Tool, ToolContext
from app.runtime.tool_calls.execute import Executed, context_for

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Rerun:
    """It may be executed once more, under the same key."""


@dataclass(frozen=True, slots=True)
class AskHuman:
    """Nobody here can tell whether it took effect; `why` is what its tool says to that."""

    why: str | None


CallRecovery: TypeAlias = Executed | Rerun | AskHuman


async def recovery_for(run: ActiveRun, state: CallState) -> CallRecovery:
    """What is to be done about a call that was marked and has no result."""
    tool = run.agent.tools.get(state.call.name)
    arguments = as_object(state.effective_arguments) or {}
    async with run.interruption.interruptible():
        found = await reconcile(tool, arguments, context_for(run, state, run.state.snapshot))
    log.info("call_cut_short", tool=state.call.name, call_id=state.call.id, found=_name_of(found))
    match found:
        case ToolResult():
            return Executed(found)
        case DidNotHappen():
            return Rerun()
        case DontKnow(why):
            return Rerun() if state.effect.may_be_rerun else AskHuman(why)
        case _:
            assert_never(found)


def can_reconcile(tool: Tool | None) -> TypeGuard[Reconciles]:
    """Whether a tool offers to say what became of its calls."""
    return isinstance(tool, Reconciles) and tool.reconciles


async def reconcile(tool: Tool | None, arguments: JsonObject, context: ToolContext) -> Found:
    """What a tool knows of a call of its own that was cut short."""
    if not can_reconcile(tool):
        return DontKnow()
    try:
        return await tool.reconcile(dict(arguments), context)
    except Exception as error:  # whoever wrote the tool; no call may take its run along
        log.warning(
            "reconcile_raised", tool=context.tool_name, call_id=context.call_id, exc_info=True
        )
        return DontKnow(f"its tool was asked and failed: {context.redact(str(error))}")


def _name_of(found: Found) -> str:
    match found:
        case ToolResult():
            return "happened"
        case DidNotHappen():
            return "did_not_happen"
        case DontKnow():
            return "unknown"
        case _:
            assert_never(found)
