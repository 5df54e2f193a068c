"""Reconcilers: functions that look up whether a call took effect after its worker was lost."""

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any, get_type_hints

from msgspec import Struct

from app.domain.errors import ConfigurationError
from app.domain.json_values import JsonObject
from app.domain.tools.reconciliation import DidNotHappen, DontKnow, Happened, ReconciledResult
from app.domain.tools.tool_calls import ResultStatus, ToolDescriptor
from app.runtime.ports.tool_context import ToolContext
from app.tools.functions.call import call, emitting_until_closed, is_being_cancelled, text_of
from app.tools.functions.results import result_of
from app.tools.result_limits import MAX_ERROR_CHARACTERS, shortened

TIMEOUT_SECONDS = 30.0
"""The time-out of a reconciler whose tool has none."""
ARGUMENTS = "arguments"

_log = logging.getLogger(__name__)


class Reconciler(Struct, frozen=True):
    """A function of a call's idempotency key, and optionally of its context and its arguments."""

    function: Callable[..., Any]
    key_name: str
    context_name: str | None
    wants_arguments: bool

    def values(self, arguments: JsonObject, context: ToolContext) -> dict[str, Any]:
        values: dict[str, Any] = {self.key_name: context.idempotency_key}
        if self.context_name is not None:
            values[self.context_name] = context
        if self.wants_arguments:
            values[ARGUMENTS] = dict(arguments)
        return values


def reconciler_of(tool_name: str, function: Callable[..., Any]) -> Reconciler:
    """Return the function with the kinds of its parameters. The first parameter is the key."""
    if not inspect.isroutine(function):
        raise _unusable(tool_name, "it must be a function")
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or any(
        each.kind not in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY) for each in parameters
    ):
        raise _unusable(tool_name, "its parameters must have names, and the first one is the key")
    hints = get_type_hints(function)
    key, *others = parameters
    contexts = [each.name for each in others if hints.get(each.name) is ToolContext]
    unknown = [
        each.name
        for each in others
        if each.name not in (*contexts, ARGUMENTS) and each.default is each.empty
    ]
    if unknown or len(contexts) > 1:
        raise _unusable(
            tool_name,
            f"beside the key it can have a ToolContext and `{ARGUMENTS}`, but not "
            + (", ".join(unknown) or "two contexts"),
        )
    wants_arguments = any(each.name == ARGUMENTS for each in others)
    return Reconciler(function, key.name, contexts[0] if contexts else None, wants_arguments)


async def ask_reconciler(
    reconciler: Reconciler,
    descriptor: ToolDescriptor,
    arguments: JsonObject,
    context: ToolContext,
    max_result_bytes: int,
) -> ReconciledResult:
    """Return what the function finds. If it fails or takes too long, returns `DontKnow` with the reason."""
    open_context = emitting_until_closed(context)
    timeout = descriptor.timeout or TIMEOUT_SECONDS
    try:
        async with asyncio.timeout(timeout) as deadline:
            answer = await call(
                reconciler.function,
                reconciler.values(arguments, open_context),
                context.wait_for_capacity,
            )
    except asyncio.CancelledError:
        if is_being_cancelled():
            raise
        return DontKnow("its tool was asked, and something that it waited for was cancelled")
    except (Exception, SystemExit) as error:  # noqa: BLE001  a tool's code
        if deadline.expired():
            return DontKnow(f"its tool was asked and didn't answer within {timeout:g} s")
        _log.warning("tool %s failed to reconcile", descriptor.name, exc_info=error)
        why = shortened(context.redact(text_of(error)), MAX_ERROR_CHARACTERS)
        return DontKnow(f"its tool was asked and failed: {why}")
    finally:
        open_context.closed.set()
    return _reconciled(descriptor, answer, max_result_bytes)


def _reconciled(
    descriptor: ToolDescriptor, answer: object, max_result_bytes: int
) -> ReconciledResult:
    match answer:
        case Happened(value):
            result = result_of(descriptor, value, max_result_bytes)
            if result.status is ResultStatus.PENDING:
                return DontKnow("its tool was asked and answered with a question")
            return result
        case DidNotHappen():
            return answer
        case DontKnow(why):
            return DontKnow(None if why is None else shortened(why, MAX_ERROR_CHARACTERS))
        case None:
            return DontKnow()
        case _:
            return DontKnow(
                f"its tool was asked and answered with a value of type {type(answer).__name__}, "
                "which is none of Happened, DidNotHappen, DontKnow"
            )


def _unusable(tool_name: str, why: str) -> ConfigurationError:
    return ConfigurationError(f"tool {tool_name!r}: reconcile: {why}")
