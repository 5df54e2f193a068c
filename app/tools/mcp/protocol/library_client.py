"""Opens the client of one server with the library, for programs and for addresses."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from typing import Any

import anyio
import mcp_types as wire
import structlog
from mcp import Client, MCPError
from mcp.client.session import ClientRequestContext, IncomingMessage, MessageHandlerFnT
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import ProgressFnT
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from app import distribution
from app.clock import sleep
from app.domain.json_values import JsonObject
from app.tools.mcp.client import (
    AccessTokens,
    AnswerLost,
    AuthorizationNeeded,
    CallTimedOut,
    ClientEvents,
    ConnectionLost,
    Dialogue,
    InputRequired,
    QuestionReply,
    RequestRefused,
    ServerAnswer,
    ServerAway,
    ServerTools,
    SessionEnded,
    TaskGone,
    TaskHandle,
    ToolRequest,
)
from app.tools.mcp.protocol.conversion import (
    answer_of,
    described,
    input_required,
    question_of,
    wire_replies,
    wire_reply,
)
from app.tools.mcp.protocol.http import (
    BROKEN,
    MAX_EVENT_BYTES,
    NOT_AUTHORIZED,
    NOT_SENT,
    http_client,
)
from app.tools.mcp.protocol.stdio import MAX_LOG_LINE, stdio_streams
from app.tools.mcp.protocol.tasks import (
    CALL_RESULT,
    CancelTask,
    GetTask,
    TaskCreated,
    TasksExtension,
    TaskState,
    UpdateTask,
    answer_of_task,
    handle_of,
    params_of,
)
from app.tools.mcp.server_spec import Elicitation, McpServerSpec

MAX_PAGES = 20
"""The most pages of a tool list that are read."""
FIRST_POLL_SECONDS = 0.05
MAX_POLL_SECONDS = 1.0
CANCEL_TASK_SECONDS = 2.0
_TIMED_OUT = -32001
_TASK_UNKNOWN = (-32602, -32002)
_HEADER_MISMATCH = -32020
_CLOSED = -32000
_LOST_CODES = frozenset({BROKEN, -32700})
_SESSION_ENDED = (-32600, "Session terminated")
_BROKEN_STREAMS = (
    anyio.ClosedResourceError,
    anyio.BrokenResourceError,
    anyio.EndOfStream,
)

log = structlog.get_logger(__name__)


@asynccontextmanager
async def open_client(
    spec: McpServerSpec,
    environ: Mapping[str, str],
    events: ClientEvents,
    tokens: AccessTokens | None = None,
) -> AsyncIterator["LibraryClient"]:
    """Start the server or connect to it, and agree on the protocol. The same task has to leave the context."""
    questions = _Questions()
    closed = anyio.Event()
    async with AsyncExitStack() as stack:
        transport: AbstractAsyncContextManager[Any]
        if spec.url is None:
            transport = stdio_streams(spec, environ, events.redact, closed)
        else:
            http = await stack.enter_async_context(http_client(spec, environ, tokens))
            transport = streamable_http_client(
                spec.url, http_client=http, max_sse_event_size=MAX_EVENT_BYTES
            )
        client = Client(
            transport,
            read_timeout_seconds=spec.timeout,
            elicitation_callback=questions.reply
            if spec.elicitation is Elicitation.TICKET
            else None,
            message_handler=_handler(spec.name, events),
            client_info=wire.Implementation(name="holdfast", version=distribution.VERSION),
            cache=None,
            extensions=[TasksExtension()],
        )
        with _connection_errors():
            await stack.enter_async_context(client)
        opened = LibraryClient(client, spec, questions, closed)
        async with asyncio.TaskGroup() as listening:
            task = listening.create_task(opened.listen(events))
            try:
                yield opened
            finally:
                task.cancel()


def _handler(server: str, events: ClientEvents) -> MessageHandlerFnT:
    async def handle(message: IncomingMessage) -> None:
        if isinstance(message, wire.ToolListChangedNotification):
            events.on_tools_changed()
        elif isinstance(message, wire.LoggingMessageNotification):
            text = events.redact(str(message.params.data)[:MAX_LOG_LINE])
            log.debug("mcp_server_message", server=server, level=message.params.level, line=text)

    return handle


class _Questions:
    """The questions that a server of the older protocol asks while it has a call.

    Such a question doesn't name its call. So it is answered only if one call is open, or if the answer to it is
    known already. Any other is declined.
    """

    def __init__(self) -> None:
        self._open: list[Dialogue] = []

    @contextmanager
    def of_call(self, dialogue: Dialogue | None) -> Iterator[None]:
        if dialogue is None:
            yield
            return
        self._open.append(dialogue)
        try:
            yield
        finally:
            self._open.remove(dialogue)

    async def reply(
        self, context: ClientRequestContext, params: wire.ElicitRequestParams
    ) -> wire.ElicitResult:
        question = question_of(params)
        for dialogue in self._open:
            if (known := dialogue.known_reply(question)) is not None:
                return wire_reply(known)
        if len(self._open) == 1:
            return wire_reply(self._open[0].ask(question))
        return wire_reply(QuestionReply(action="decline"))


@dataclass(slots=True)
class LibraryClient:
    """An open client of one server."""

    _client: Client
    _spec: McpServerSpec
    _questions: _Questions
    _closed: anyio.Event

    @property
    def protocol_version(self) -> str:
        return self._client.protocol_version

    @property
    def server_version(self) -> str | None:
        info = self._client.server_info
        return None if info is None else f"{info.name} {info.version}"

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    async def wait_closed(self) -> None:
        await self._closed.wait()

    async def list_tools(self) -> ServerTools:
        tools: list[JsonObject] = []
        cursor: str | None = None
        fresh_for: float | None = None
        for _ in range(MAX_PAGES):
            params = wire.PaginatedRequestParams(cursor=cursor)
            with self._errors():
                page = await self._client.session.list_tools(params=params)
            tools += [described(tool) for tool in page.tools]
            fresh_for = page.ttl_ms / 1000 if page.ttl_ms else None
            cursor = page.next_cursor
            if not cursor:
                break
        return ServerTools(tools=tools, fresh_for=fresh_for)

    async def listen(self, events: ClientEvents) -> None:
        """Report changes of the tool list, if the server of the newer protocol announces them."""
        tools = self._client.server_capabilities.tools
        if self.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return
        if tools is None or not tools.list_changed:
            return
        try:
            async with self._client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    events.on_tools_changed()
        except (MCPError, RuntimeError, TimeoutError, *_BROKEN_STREAMS) as error:
            log.debug("mcp_changes_not_announced", server=self._spec.name, error=repr(error)[:200])

    async def call(self, request: ToolRequest) -> ServerAnswer | InputRequired | TaskHandle:
        if request.task is not None:
            return await self._look_at(request.task, request.replies)
        with self._questions.of_call(request.dialogue):
            try:
                return await self._call(request)
            except RequestRefused as error:
                if error.code != _HEADER_MISMATCH:
                    raise
            # The headers of the request come from the list of tools, which has changed.
            await self.list_tools()
            return await self._call(request)

    async def _call(self, request: ToolRequest) -> ServerAnswer | InputRequired | TaskHandle:
        replies = None if request.replies is None else wire_replies(request.replies)
        state, pause = request.state, FIRST_POLL_SECONDS
        while True:
            params = wire.CallToolRequestParams.model_validate(
                {
                    "name": request.tool,
                    "arguments": dict(request.arguments),
                    "input_responses": replies,
                    "request_state": state,
                    "_meta": dict(request.meta) or None,
                }
            )
            with self._errors():
                result = await self._client.session.send_request(
                    wire.CallToolRequest(params=params),
                    CALL_RESULT,
                    request_read_timeout_seconds=self._spec.timeout,
                    progress_callback=_progress(request),
                )
            if isinstance(result, TaskCreated):
                return handle_of(result)
            if isinstance(result, wire.CallToolResult):
                return answer_of(result)
            if result.input_requests:
                return input_required(result)
            # The server has more to do, and asks for the same request again.
            replies, state = None, result.request_state
            await sleep(pause)
            pause = min(2 * pause, MAX_POLL_SECONDS)

    async def _look_at(
        self, task: str, replies: Mapping[str, QuestionReply] | None
    ) -> ServerAnswer | InputRequired | TaskHandle:
        """Answer a task's questions, if there are replies, and ask how it is."""
        with self._errors():
            try:
                if replies is not None:
                    given = {
                        key: wire_reply(each).model_dump(
                            mode="json", by_alias=True, exclude_none=True
                        )
                        for key, each in replies.items()
                    }
                    update = UpdateTask(params=params_of(task, given))
                    await self._client.session.send_request(
                        update, wire.EmptyResult, self._spec.timeout
                    )
                state = await self._client.session.send_request(
                    GetTask(params=params_of(task)), TaskState, self._spec.timeout
                )
            except MCPError as error:
                if error.code in _TASK_UNKNOWN:
                    raise TaskGone(error.message) from error
                raise
            return answer_of_task(state)

    async def cancel_task(self, task: str) -> None:
        with self._errors():
            await self._client.session.send_request(
                CancelTask(params=params_of(task)), wire.EmptyResult, CANCEL_TASK_SECONDS
            )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with _connection_errors():
                yield
        except AnswerLost:
            raise
        except (ConnectionLost, SessionEnded):
            self._closed.set()
            raise


def _progress(request: ToolRequest) -> ProgressFnT | None:
    show = request.on_progress
    if show is None:
        return None

    async def shown(progress: float, total: float | None, message: str | None) -> None:
        show(progress, total, message)

    return shown


@contextmanager
def _connection_errors() -> Iterator[None]:
    """Translate the library's errors."""
    try:
        yield
    except MCPError as error:
        if error.code == _TIMED_OUT:
            raise CallTimedOut(error.message) from error
        if error.code == NOT_AUTHORIZED:
            raise AuthorizationNeeded(error.message) from error
        if error.code == NOT_SENT:
            raise ServerAway(error.message) from error
        if error.code in _LOST_CODES:
            raise AnswerLost(error.message) from error
        if error.code == _CLOSED:
            raise ConnectionLost(error.message) from error
        if (error.code, error.message) == _SESSION_ENDED:
            raise SessionEnded("its session has ended") from error
        raise RequestRefused(error.code, error.message) from error
    except ValidationError as error:
        raise RequestRefused(0, f"its answer breaks the protocol ({error.title})") from error
    except _BROKEN_STREAMS as error:
        raise ConnectionLost("the connection is closed") from error
