"""The `@tool` decorator and the tool that it makes of a Python function."""

import asyncio
import inspect
import logging
import math
import re
from collections.abc import Awaitable, Callable
from typing import Any, Generic, Literal, ParamSpec, TypeVar, overload

from msgspec import Struct

from app.domain.errors import ConfigurationError, DecisionRejected, HoldfastError
from app.domain.json_values import Json, JsonObject, as_object
from app.domain.tools.reconciliation import DontKnow, Reconciled, ReconciledResult
from app.domain.tools.tool_calls import Effect, ToolDescriptor, ToolResult
from app.runtime.ports.tool_context import ToolContext
from app.tools.functions.approval import Approval, ApprovalCheck, approval_check
from app.tools.functions.call import call, emitting_until_closed, is_being_cancelled, text_of
from app.tools.functions.docstring import read_docstring
from app.tools.functions.failure import ToolFailed
from app.tools.functions.reconcile import Reconciler, ask_reconciler, reconciler_of
from app.tools.functions.result_files import ResultWithFiles, attached, with_attached
from app.tools.functions.results import result_of, tool_failed
from app.tools.functions.signature import InvalidArguments, Parameters, parameters_of
from app.tools.result_limits import MAX_ERROR_CHARACTERS, MAX_RESULT_BYTES, shortened
from app.tools.schemas.validate import build_validator

P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger(__name__)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Function names that every provider accepts."""
MAX_RETRIES = 10


class FunctionTool(Struct, Generic[P, R], frozen=True, kw_only=True):
    """A function as a `Tool`. It can still be called like the function."""

    function: Callable[P, R]
    descriptor: ToolDescriptor
    parameters: Parameters
    max_result_bytes: int = MAX_RESULT_BYTES
    reconciler: Reconciler | None = None
    approval: ApprovalCheck | None = None

    @property
    def needs_approval(self) -> bool:
        return self.approval is not None

    @property
    def may_open_tickets(self) -> bool:
        """Whether it asks for approval, or gets a context by which it may ask."""
        return self.approval is not None or bool(self.parameters.context_names)

    async def approval_question(self, arguments: JsonObject, context: ToolContext) -> str | None:
        if self.approval is None:
            return None
        return await self.approval.question(arguments, context)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def invalid_arguments(self, arguments: Json) -> str | None:
        # Converts the arguments and not only checks them: a person must not approve a call that can't run.
        try:
            self.parameters.read(arguments)
        except InvalidArguments as error:
            return str(error)
        return None

    async def execute(self, arguments: Json, context: ToolContext) -> ToolResult:
        open_context = emitting_until_closed(context)
        try:
            return await self._attempt(arguments, open_context)
        except InvalidArguments as error:
            text = f"Invalid arguments: {context.redact(str(error))}"
            text = shortened(text, MAX_ERROR_CHARACTERS)
            return ToolResult.error(self.descriptor.name, text, may_be_retried=False)
        finally:
            open_context.closed.set()

    async def _attempt(self, arguments: Json, context: ToolContext) -> ToolResult:
        name, timeout = self.descriptor.name, self.descriptor.timeout
        values = self.parameters.read(arguments)
        values |= dict.fromkeys(self.parameters.context_names, context)
        try:
            async with asyncio.timeout(timeout) as deadline:
                returned = await call(self.function, values, context.wait_for_capacity)
        except InvalidArguments:
            raise
        except asyncio.CancelledError:
            if is_being_cancelled():
                raise
            # The tool awaited something that was cancelled; the run was not.
            return tool_failed(name, "something that the tool waited for was cancelled")
        except DecisionRejected as error:
            return ToolResult.error(name, context.redact(str(error)), may_be_retried=False)
        except ToolFailed as error:
            text = shortened(context.redact(error.message), MAX_ERROR_CHARACTERS)
            return ToolResult.error_with_code(
                name, error.code, text, may_be_retried=error.may_be_retried
            )
        except (Exception, SystemExit) as error:  # noqa: BLE001  a tool's error never ends a run
            if deadline.expired():
                return ToolResult.error(name, f"Timed out after {timeout:g} s")
            _log.warning("tool %s failed", name, exc_info=error)
            return tool_failed(name, context.redact(text_of(error)))
        return await self._result(returned, context)

    async def _result(self, returned: Any, context: ToolContext) -> ToolResult:
        if not isinstance(returned, ResultWithFiles):
            return result_of(self.descriptor, returned, self.max_result_bytes)
        result = result_of(self.descriptor, returned.value, self.max_result_bytes)
        try:
            return with_attached(result, await attached(context, returned.files))
        except HoldfastError as error:
            return tool_failed(self.descriptor.name, context.redact(str(error)))

    @property
    def reconciles(self) -> bool:
        return self.reconciler is not None

    async def reconcile(self, arguments: Json, context: ToolContext) -> ReconciledResult:
        if self.reconciler is None:
            return DontKnow()
        return await ask_reconciler(
            self.reconciler,
            self.descriptor,
            as_object(arguments) or {},
            context,
            self.max_result_bytes,
        )


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    retries: int = 0,
    effect: Effect | Literal["read", "idempotent", "unsafe"] = "unsafe",
    response_schema: JsonObject | None = None,
    max_result_bytes: int = MAX_RESULT_BYTES,
    approval: Approval = False,
    reconcile: Callable[..., Reconciled | Awaitable[Reconciled]] | None = None,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    retries: int = 0,
    effect: Effect | Literal["read", "idempotent", "unsafe"] = "unsafe",
    response_schema: JsonObject | None = None,
    max_result_bytes: int = MAX_RESULT_BYTES,
    approval: Approval = False,
    reconcile: Callable[..., Reconciled | Awaitable[Reconciled]] | None = None,
) -> Any:
    """Make a tool of a function, async or not: `@tool` or `@tool(timeout=10, effect="read")`.

    The signature becomes the schema, the docstring the description. `timeout` is the seconds for each try.
    `effect` declares whether running a call twice is safe, and `retries` is the number of retries of a failed
    call. A person's answer must match `response_schema`.

    `approval` says which calls a person must approve before they run: True for all, conditions such as
    `"amount > 50"`, or a function, async or not, of the arguments (a dict) and optionally of a `ToolContext`. It
    returns True or the question if approval is needed. If it fails, a person is asked.

    `reconcile` is called first for a call that was running when its worker was lost. It is a function, async or
    not, of the call's idempotency key, and optionally of a `ToolContext` and of `arguments`. It changes nothing
    and returns `Happened(result)`, `DidNotHappen()` or `DontKnow(why)`. If it doesn't know or fails, `effect`
    decides.
    """

    def made(function: Callable[..., Any]) -> FunctionTool[..., Any]:
        known_as = name if name is not None else getattr(function, "__name__", repr(function))
        _check_usable(known_as, function, timeout, max_result_bytes)
        _check_repeatable(known_as, effect, retries)
        text, described = read_docstring(function)
        parameters = parameters_of(known_as, function, described)
        if response_schema is not None:
            _check_response_schema(known_as, response_schema)
        descriptor = ToolDescriptor(
            name=known_as,
            description=text if description is None else description,
            parameters=parameters.schema,
            effect=Effect(effect),
            timeout=timeout,
            retries=retries,
            response_schema=response_schema,
        )
        check = approval_check(known_as, parameters.schema, approval)
        return FunctionTool(
            function=function,
            descriptor=descriptor,
            parameters=parameters,
            max_result_bytes=max_result_bytes,
            reconciler=None if reconcile is None else reconciler_of(known_as, reconcile),
            approval=check,
        )

    return made if function is None else made(function)


def _check_usable(
    name: str, function: object, timeout: float | None, max_result_bytes: int
) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigurationError(
            f"tool {name!r}: a name has 1 to 64 of the characters A-Z a-z 0-9 _ -;"
            ' give another one: @tool(name="…")'
        )
    if not inspect.isroutine(function):
        raise ConfigurationError(f"tool {name!r}: @tool belongs on a function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(
            f"tool {name!r}: it yields, but a tool returns;"
            " use ToolContext.stream_output to show output earlier"
        )
    if timeout is not None and not 0 < timeout < math.inf:
        raise ConfigurationError(f"tool {name!r}: timeout must be a number of seconds above 0")
    if max_result_bytes < 1:
        raise ConfigurationError(f"tool {name!r}: max_result_bytes must be at least 1")


def _check_repeatable(name: str, effect: str, retries: int) -> None:
    if effect not in tuple(Effect):
        known = ", ".join(Effect)
        raise ConfigurationError(f"tool {name!r}: effect {effect!r} isn't one of {known}")
    if not 0 <= retries <= MAX_RETRIES:
        raise ConfigurationError(f"tool {name!r}: retries must be a number from 0 to {MAX_RETRIES}")
    if retries and not Effect(effect).may_be_rerun:
        raise ConfigurationError(
            f"tool {name!r}: a call whose effect is unsafe must not be tried again;"
            ' leave retries out, or say effect="idempotent" when running it twice does no harm'
        )


def _check_response_schema(name: str, response_schema: JsonObject) -> None:
    try:
        build_validator(response_schema)
    except ConfigurationError as error:
        raise ConfigurationError(f"tool {name!r}: response_schema: {error}") from error
