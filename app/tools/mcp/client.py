"""The client of one MCP server, as this package uses it. `protocol` implements it with the library."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeAlias

from msgspec import Struct

from app.domain.errors import HoldfastError
from app.domain.json_values import Json, JsonObject
from app.domain.redaction import Redact
from app.tools.mcp.server_spec import McpServerSpec

ShowProgress: TypeAlias = Callable[[float, float | None, str | None], None]


class ServerAway(HoldfastError):
    """The server can't be reached, so the call did not begin."""


class AuthorizationNeeded(ServerAway):
    """No access token is known, or none is accepted: a person has to give access. The call did not begin."""


class ConnectionLost(HoldfastError):
    """The connection broke while the server had the call: whether it took effect is unknown."""


class SessionEnded(ServerAway):
    """The server has forgotten the session: the call did not begin, and a new client may send it."""


class TaskGone(HoldfastError):
    """The server does not know the task any more."""


class AnswerLost(ConnectionLost):
    """The answer to one call was lost; the client can still be used."""


class CallTimedOut(HoldfastError):
    """The server did not answer in time."""


class RequestRefused(HoldfastError):
    """The server answered with an error of the protocol."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class ServerTools(Struct, frozen=True, kw_only=True):
    """All tools that a server lists, as it describes them."""

    tools: Sequence[JsonObject]
    fresh_for: float | None = None
    """Seconds for which the server says that the list is valid."""


class ServerFile(Struct, frozen=True):
    """An image, a recording or another file in a result, as base64. `part` is its place in the parts."""

    part: int
    name: str
    media_type: str | None
    data: str


class ServerAnswer(Struct, frozen=True):
    """The result of a call. `parts` describe content that isn't text."""

    text: str
    data: Json = None
    is_error: bool = False
    parts: Sequence[JsonObject] = ()
    files: Sequence[ServerFile] = ()


class Question(Struct, frozen=True, kw_only=True):
    """A question of a server: a form with a schema, or an address that a person has to visit."""

    message: str
    schema: JsonObject | None = None
    url: str | None = None


class TaskHandle(Struct, frozen=True, kw_only=True):
    """The server continues the call as a task, and is asked for the result later."""

    id: str
    poll_seconds: float
    message: str | None = None


class InputRequired(Struct, frozen=True, kw_only=True):
    """The server needs answers before it continues the call. `state` comes back to it unchanged."""

    questions: Mapping[str, Question]
    state: str | None
    unsupported: str | None = None
    """What the server asks that can't be answered here, such as a model's answer."""
    task: TaskHandle | None = None
    """The task that asks, if it isn't the call itself."""


class QuestionReply(Struct, frozen=True, kw_only=True):
    """The reply to one question: `accept`, `decline` or `cancel`."""

    action: str
    content: JsonObject | None = None


class AccessTokens(Protocol):
    """The access token for requests to a server at an address."""

    async def token(self) -> str:
        """A valid token. Raises AuthorizationNeeded, or ServerAway if none can be had now."""

    def reject(self, access_token: str) -> None:
        """The server did not accept this token, so another one is needed."""


class Dialogue(Protocol):
    """The questions of one call that a server asks in mid-call."""

    def known_reply(self, question: Question) -> QuestionReply | None:
        """The reply that a person has given before; None for a new question."""

    def ask(self, question: Question) -> QuestionReply:
        """Note a new question for a person, and return the reply for now."""


class ToolRequest(Struct, frozen=True, kw_only=True):
    """One request to call a tool. `replies` and `state` continue an earlier one; `task` asks for its task."""

    tool: str
    arguments: JsonObject
    meta: JsonObject = {}
    replies: Mapping[str, QuestionReply] | None = None
    state: str | None = None
    task: str | None = None
    dialogue: Dialogue | None = None
    """Replies to questions that a server of the older protocol asks in mid-call; None declines them."""
    on_progress: ShowProgress | None = None


class McpClient(Protocol):
    """An open client. Any task may call it; the task that opened it closes it."""

    @property
    def protocol_version(self) -> str: ...

    @property
    def server_version(self) -> str | None:
        """The server's own name and version."""

    @property
    def is_closed(self) -> bool: ...

    async def wait_closed(self) -> None:
        """Wait until the connection is broken."""

    async def list_tools(self) -> ServerTools: ...

    async def call(self, request: ToolRequest) -> ServerAnswer | InputRequired | TaskHandle: ...

    async def cancel_task(self, task: str) -> None:
        """Ask the server to end a task."""


class ClientEvents(Struct, frozen=True, kw_only=True):
    """What a client reports besides the results of its calls."""

    on_tools_changed: Callable[[], None]
    redact: Redact


class OpenLibraryClient(Protocol):
    """Opens a client with the library."""

    def __call__(
        self,
        spec: McpServerSpec,
        environ: Mapping[str, str],
        events: ClientEvents,
        tokens: AccessTokens | None = None,
    ) -> AbstractAsyncContextManager[McpClient]: ...


OpenClient: TypeAlias = Callable[
    [McpServerSpec, Mapping[str, str], ClientEvents], AbstractAsyncContextManager[McpClient]
]
