"""The A2A client of one endpoint, built on the protocol's own library.

A turn is a message to a task. If the agent supports streams, the result is streamed. Otherwise, and after a
broken stream, the task is polled with growing delays.
"""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field
from time import monotonic
from urllib.parse import urlsplit

import httpx
import structlog
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as wire

from app.backends.a2a.bounds import bound_response
from app.backends.a2a.errors import FINAL_CODES, REMOTE_ERRORS, failure_of, remote_errors_translated
from app.backends.a2a.options import CAPABILITIES, A2AOptions
from app.backends.a2a.task import QUESTION_STATES, RemoteTask
from app.backends.base import Abort, BackendError, PendingQuestions, Turn, TurnEmitter
from app.backends.retrying import FIRST_DELAY_SECONDS, retry_within
from app.clock import sleep
from app.domain.agents.backend_results import BackendResult, TimedOut
from app.domain.agents.capabilities import Capabilities
from app.domain.agents.endpoints import Endpoint
from app.domain.json_values import Json
from app.domain.threads.messages import Base64Source, Media, Message, Text, UrlSource

CONNECT_TIMEOUT_SECONDS = 10.0
IDLE_TIMEOUT_SECONDS = 30.0
"""Seconds without an update of an accepted task, after which it is polled over another connection."""
PROGRESS_ACTIVITY = "a2a-task-progress"

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class A2ABackend:
    endpoint: Endpoint
    options: A2AOptions
    token: str | None = field(repr=False)
    _http: httpx.AsyncClient | None = None
    _client: Client | None = None
    _may_stream: bool = False

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    # --- a turn ---------------------------------------------------------------------------------

    async def execute_root(self, turn: Turn, emitter: TurnEmitter) -> BackendResult:
        task = RemoteTask.from_binding(turn.binding or {})
        try:
            async with asyncio.timeout(self.endpoint.timeout) as within:
                with remote_errors_translated():
                    await self._run_turn(turn, emitter, task)
                    return task.result
        except TimeoutError:
            if not within.expired():
                raise
            reason = f"the remote agent hasn't finished within {self.endpoint.timeout:g} s"
            return BackendResult(status=TimedOut(), status_reason=reason, binding=task.binding)

    async def _run_turn(self, turn: Turn, emitter: TurnEmitter, task: RemoteTask) -> None:
        listener = _TurnListener(emitter, task, is_accepted=turn.joins)
        timeout = self.options.retry_seconds
        client = await retry_within(timeout, self._connected)
        if not turn.joins:
            request = self._request(turn)
            task.state = "submitted"
            await retry_within(timeout, lambda: self._send(client, request, listener))
        await self._wait_until_settled(client, listener)

    async def _send(
        self, client: Client, request: wire.SendMessageRequest, listener: "_TurnListener"
    ) -> None:
        """Begin a turn. Once the remote has accepted it, it continues even if the connection breaks."""
        try:
            await listener.receive(client.send_message(request))
        except REMOTE_ERRORS as error:
            if not listener.is_accepted:
                raise failure_of(error) from error
            log.info("a2a_stream_interrupted", error=repr(error)[:200])

    async def _wait_until_settled(self, client: Client, listener: "_TurnListener") -> None:
        """Follow the task until it is settled: by its stream while there is one, else by polling."""
        wait, unreachable_since = FIRST_DELAY_SECONDS, None
        streams = self._may_stream
        while not listener.task.is_settled or not listener.has_update:
            try:
                if streams:
                    await listener.receive(client.subscribe(self._subscription(listener.task)))
                if not listener.task.is_settled or not listener.has_update:
                    await self._ask(client, listener)
                unreachable_since = None
            except NotImplementedError:
                streams = False
                continue
            except REMOTE_ERRORS as error:
                if isinstance(error, FINAL_CODES):
                    raise failure_of(error) from error
                if streams:
                    # The remote may have ended the stream, and still answer polls.
                    streams = False
                    continue
                if unreachable_since is None:
                    log.warning("remote_unreachable", error=repr(error)[:200])
                    unreachable_since = monotonic()
                if monotonic() - unreachable_since > self.options.retry_seconds:
                    raise failure_of(error) from error
            if not listener.task.is_settled:
                await sleep(wait)
                wait = min(2 * wait, self.options.poll_interval)

    async def _ask(self, client: Client, listener: "_TurnListener") -> None:
        listener.task.update_task(await self._fetch(client, listener.task.task_id))
        await listener.emit_progress()

    async def _fetch(self, client: Client, task_id: str) -> wire.Task:
        request = wire.GetTaskRequest(tenant=self._tenant, id=task_id)
        try:
            async with asyncio.timeout(IDLE_TIMEOUT_SECONDS):
                return await client.get_task(request)
        except TimeoutError as error:
            raise httpx.ReadTimeout(f"no answer within {IDLE_TIMEOUT_SECONDS:g} s") from error

    def _request(self, turn: Turn) -> wire.SendMessageRequest:
        """Build the request.

        A task that waits for an answer gets it; else it starts a task in the same context.
        """
        binding = turn.binding or {}
        is_continued = binding.get("last_state") in QUESTION_STATES
        parts = [part for message in turn.new_messages for part in _parts(message)]
        return wire.SendMessageRequest(
            tenant=self._tenant,
            message=wire.Message(
                message_id=turn.key,
                context_id=binding.get("context_id", ""),
                task_id=binding.get("task_id", "") if is_continued else "",
                role=wire.ROLE_USER,
                parts=parts,
            ),
            configuration=wire.SendMessageConfiguration(return_immediately=True),
        )

    def _subscription(self, task: RemoteTask) -> wire.SubscribeToTaskRequest:
        return wire.SubscribeToTaskRequest(tenant=self._tenant, id=task.task_id)

    # --- the end of one -------------------------------------------------------------------------

    async def pending_questions(self, query: PendingQuestions) -> frozenset[str]:
        """The names of the open questions. A task has one question at a time, without a name."""
        client = await self._connected()
        task = RemoteTask()
        try:
            with remote_errors_translated():
                task.update_task(await self._fetch(client, query.binding.get("task_id", "")))
        except REMOTE_ERRORS as error:
            raise failure_of(error, is_read=True) from error
        return query.questions if task.state in QUESTION_STATES else frozenset()

    async def abort(self, abort: Abort) -> None:
        task_id = (abort.binding or {}).get("task_id")
        if not task_id:
            return
        with remote_errors_translated():
            client = await self._connected()
            try:
                await client.cancel_task(wire.CancelTaskRequest(tenant=self._tenant, id=task_id))
            except REMOTE_ERRORS as error:
                raise failure_of(error) from error

    async def aclose(self) -> None:
        http, self._http, self._client = self._http, None, None
        if http is not None:
            await http.aclose()

    # --- the connection -------------------------------------------------------------------------

    @property
    def _tenant(self) -> str:
        return self.endpoint.target or ""

    async def _connected(self) -> Client:
        """A client for the agent's card, which is read once."""
        if self._client is not None:
            return self._client
        if self._http is None:
            # The bounds count bytes as they are sent: a compressed body could become far larger.
            headers = {"Accept-Encoding": "identity"}
            if self.token is not None:
                headers["Authorization"] = f"Bearer {self.token}"
            self._http = httpx.AsyncClient(
                headers=headers,
                event_hooks={"response": [bound_response]},
                timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_SECONDS),
                follow_redirects=False,
            )
        config = ClientConfig(
            streaming=self.options.streaming,
            polling=True,
            httpx_client=self._http,
            supported_protocol_bindings=["JSONRPC", "HTTP+JSON"],
        )
        try:
            resolver = A2ACardResolver(self._http, self.endpoint.url)
            card = await resolver.get_agent_card(self.options.card_path)
            self._drop_proxies(card)
            self._client = ClientFactory(config).create(card)
        except REMOTE_ERRORS as error:
            raise failure_of(error, is_read=True) from error
        self._may_stream = self.options.streaming and card.capabilities.streaming
        return self._client

    def _drop_proxies(self, card: wire.AgentCard) -> None:
        """Drop interfaces outside of the endpoint's origin: a card must not send the token elsewhere."""
        home = urlsplit(self.endpoint.url)
        own = [
            each
            for each in card.supported_interfaces
            if urlsplit(each.url)[:2] == (home.scheme, home.netloc)
        ]
        if not own:
            raise BackendError(
                "remote_card_foreign",
                f"The card of {self.endpoint.url} names no address of its own origin.",
            )
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(own)


@dataclass(slots=True)
class _TurnListener:
    """Emits the updates of a task as they arrive."""

    emitter: TurnEmitter
    task: RemoteTask
    is_accepted: bool
    has_update: bool = False
    _emitted: str = ""
    _shown: Json = None

    async def receive(self, stream: AsyncIterator[wire.StreamResponse]) -> None:
        """Read the stream until it ends, the task is settled, or an accepted task sends nothing for long.

        The protocol has no heartbeat, so a silent task has to be polled.
        """
        async with aclosing(stream) as responses:  # type: ignore[type-var]  # the library's are generators
            while not self.task.is_settled or not self.has_update:
                try:
                    async with asyncio.timeout(IDLE_TIMEOUT_SECONDS if self.is_accepted else None):
                        each = await anext(responses)
                except (StopAsyncIteration, TimeoutError):
                    return
                self.task.update(each)
                await self.emit_progress()

    async def emit_progress(self) -> None:
        self.has_update = True
        if not self.is_accepted and self.task.task_id:
            await self.emitter.bind(self.task.binding)
            self.is_accepted = True
        reply = self.task.reply_text
        if not reply.startswith(self._emitted):
            self.emitter.start_over("replaced")
            self._emitted = ""
        self.emitter.text(reply[len(self._emitted) :])
        self._emitted = reply
        if self.task.progress != self._shown:
            self._shown = self.task.progress
            self.emitter.activity(PROGRESS_ACTIVITY, self._shown)
        await self.emitter.wait_for_capacity()


def _parts(message: Message) -> list[wire.Part]:
    parts: list[wire.Part] = []
    for block in message.content:
        match block:
            case Text(text):
                parts.append(wire.Part(text=text))
            case Media(_, UrlSource(url), title):
                parts.append(wire.Part(url=url, filename=title or ""))
            case Media(_, Base64Source(media_type, data), title):
                raw = base64.b64decode(data)
                parts.append(wire.Part(raw=raw, media_type=media_type, filename=title or ""))
            case _:
                continue
    return parts
