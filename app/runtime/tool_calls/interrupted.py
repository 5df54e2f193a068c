"""Calls that a lost worker left running: their tools are asked what happened before a call runs again.

The tool answers `Happened`        ─► its result is the result of the call
                 `DidNotHappen`    ─► run it again, under the same key
                 `DontKnow`        ─► run it again if its effect allows that, else ask a person
A tool without a reconciler counts as `DontKnow`.
"""

from typing import TypeAlias, TypeGuard, assert_never

import structlog
from msgspec import Struct

from app.domain.json_values import JsonObject, as_object
from app.domain.tools.reconciliation import DidNotHappen, DontKnow, ReconciledResult
from app.domain.tools.tool_calls import CallState, ToolResult
from app.runtime.active_run import ActiveRun
from app.runtime.ports.tool_context import ToolContext
from app.runtime.ports.tools import Reconciles, Tool
from app.runtime.tool_calls.execute import Executed, context_for

log = structlog.get_logger(__name__)


class Rerun(Struct, frozen=True):
    """The call may be executed again, under the same key."""


class AskHuman(Struct, frozen=True):
    """Only a person can find out whether the call took effect; `why` is the tool's explanation."""

    why: str | None


CallRecovery: TypeAlias = Executed | Rerun | AskHuman


async def recovery_for(run: ActiveRun, state: CallState) -> CallRecovery:
    """How to recover a call that was marked as begun and has no result."""
    tool = run.agent.tools.get(state.call.name)
    arguments = as_object(state.effective_arguments) or {}
    async with run.interruption.interruptible():
        found = await reconcile(tool, arguments, context_for(run, state, run.state.snapshot))
    log.info(
        "interrupted_call_recovered",
        tool=state.call.name,
        call_id=state.call.id,
        found=_name_of(found),
    )
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
    """Whether the tool has a reconciler."""
    return isinstance(tool, Reconciles) and tool.reconciles


async def reconcile(
    tool: Tool | None, arguments: JsonObject, context: ToolContext
) -> ReconciledResult:
    """Ask the tool's reconciler whether an interrupted call took effect."""
    if not can_reconcile(tool):
        return DontKnow()
    try:
        return await tool.reconcile(dict(arguments), context)
    except Exception as error:  # a tool's code; a failing call must not fail its run
        log.warning(
            "tool_reconcile_failed", tool=context.tool_name, call_id=context.call_id, exc_info=True
        )
        return DontKnow(f"its tool was asked and failed: {context.redact(str(error))}")


def _name_of(found: ReconciledResult) -> str:
    match found:
        case ToolResult():
            return "happened"
        case DidNotHappen():
            return "did_not_happen"
        case DontKnow():
            return "unknown"
        case _:
            assert_never(found)
