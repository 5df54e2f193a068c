"""A2A spoken: one endpoint's agent, by the protocol's own client.

A turn is a message to a task: streamed where the agent can stream, and asked for with growing pauses
where it can't, or where its stream breaks off.
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

from app.backends.a2a.errors import FINAL_CODES, REMOTE_ERRORS, failure_of, remote_errors_translated
from app.backends.a2a.options import CAPABILITIES, A2AOptions
from app.backends.a2a.task import QUESTION_STATES, RemoteTask
from app.backends.base import Abort, BackendError, PendingQuestions, Turn, TurnEmitter
from app.backends.retrying import FIRST_PAUSE, retry_within
from app.clock import sleep
from app.domain.agents.backend_results import BackendResult, TimedOut
from app.domain.agents.capabilities import Capabilities
from app.domain.agents.endpoints import Endpoint
from app.domain.json_values import Json
from app.domain.threads.messages import Base64Source, Media, Message, Text, UrlSource

CONNECT_TIMEOUT_SECONDS = 10.0
SILENCE_TIMEOUT_SECONDS = 30.0
"""Seconds without a word of an accepted task, after which it is asked about over another connection."""
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

    async def execute_root(self, turn: Turn, voice: TurnEmitter) -> BackendResult:
        task = RemoteTask.was_asked(turn.binding or {})
        try:
            async with asyncio.timeout(self.endpoint.timeout) as within:
                with remote_errors_translated():
                    await self._run_turn(turn, voice, task)
                    return task.result
        except TimeoutError:
            if not within.expired():
                raise
            reason = f"the remote agent hasn't finished within {self.endpoint.timeout:g} s"
            return BackendResult(status=TimedOut(), status_reason=reason, binding=task.binding)

    async def _run_turn(self, turn: Turn, voice: TurnEmitter, task: RemoteTask) -> None:
        listening = _TurnListener(voice, task, is_accepted=turn.joins)
        patience = self.options.retry_seconds
        client = await retry_within(patience, self._connected)
        if not turn.joins:
            request = self._request(turn)
            task.state = "submitted"
            await retry_within(patience, lambda: self._send(client, request, listening))
        await self._wait_until_settled(client, listening)

    async def _send(
        self, client: Client, request: wire.SendMessageRequest, listening: "_TurnListener"
    ) -> None:
        """Begin a turn. What the remote has accepted goes on, whatever becomes of the connection."""
        try:
            await listening.receive(client.send_message(request))
        except REMOTE_ERRORS as error:
            if not listening.is_accepted:
                raise failure_of(error) from error
            log.info("a2a_stream_broke_off", error=repr(error)[:200])

    async def _wait_until_settled(self, client: Client, listening: "_TurnListener") -> None:
        """Until the task is settled: by its stream as long as there is one, else by asking."""
        wait, out_of_reach_since = FIRST_PAUSE, None
        streams = self._may_stream
        while not listening.task.is_settled or not listening.has_heard:
            try:
                if streams:
                    await listening.receive(client.subscribe(self._subscription(listening.task)))
                if not listening.task.is_settled or not listening.has_heard:
                    await self._ask(client, listening)
                out_of_reach_since = None
            except NotImplementedError:
                streams = False
                continue
            except REMOTE_ERRORS as error:
                if isinstance(error, FINAL_CODES):
                    raise failure_of(error) from error
                if streams:
                    # It may stream no more, and still answer questions.
                    streams = False
                    continue
                if out_of_reach_since is None:
                    log.warning("remote_out_of_reach", error=repr(error)[:200])
                    out_of_reach_since = monotonic()
                if monotonic() - out_of_reach_since > self.options.retry_seconds:
                    raise failure_of(error) from error
            if not listening.task.is_settled:
                await sleep(wait)
                wait = min(2 * wait, self.options.poll_interval)

    async def _ask(self, client: Client, listening: "_TurnListener") -> None:
        listening.task.update_task(await self._fetch(client, listening.task.task_id))
        await listening.emit_progress()

    async def _fetch(self, client: Client, task_id: str) -> wire.Task:
        request = wire.GetTaskRequest(tenant=self._tenant, id=task_id)
        try:
            async with asyncio.timeout(SILENCE_TIMEOUT_SECONDS):
                return await client.get_task(request)
        except TimeoutError as error:
            raise httpx.ReadTimeout(f"no answer within {SILENCE_TIMEOUT_SECONDS:g} s") from error

    def _request(self, turn: Turn) -> wire.SendMessageRequest:
        """A task that has asked gets its answer; otherwise there is a new one in the same context."""
        binding = turn.binding or {}
        goes_on = binding.get("last_state") in QUESTION_STATES
        parts = [part for message in turn.new_messages for part in _parts(message)]
        return wire.SendMessageRequest(
            tenant=self._tenant,
            message=wire.Message(
                message_id=turn.key,
                context_id=binding.get("context_id", ""),
                task_id=binding.get("task_id", "") if goes_on else "",
                role=wire.ROLE_USER,
                parts=parts,
            ),
            configuration=wire.SendMessageConfiguration(return_immediately=True),
        )

    def _subscription(self, task: RemoteTask) -> wire.SubscribeToTaskRequest:
        return wire.SubscribeToTaskRequest(tenant=self._tenant, id=task.task_id)

    # --- the end of one -------------------------------------------------------------------------

    async def pending_questions(self, look: PendingQuestions) -> frozenset[str]:
        """A task asks one thing at a time, which has no name there."""
        client = await self._connected()
        task = RemoteTask()
        try:
            with remote_errors_translated():
                task.update_task(await self._fetch(client, look.binding.get("task_id", "")))
        except REMOTE_ERRORS as error:
            raise failure_of(error, is_read=True) from error
        return look.questions if task.state in QUESTION_STATES else frozenset()

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

    # --- the way there --------------------------------------------------------------------------

    @property
    def _tenant(self) -> str:
        return self.endpoint.target or ""

    async def _connected(self) -> Client:
        """A client by the agent's own card, which is read once."""
        if self._client is not None:
            return self._client
        if self._http is None:
            headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
            self._http = httpx.AsyncClient(
                headers=headers,
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
        """Only addresses of the endpoint's own origin count: a card must not lead the token away."""
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
    """What is heard of a task, told on as it comes."""

    voice: TurnEmitter
    task: RemoteTask
    is_accepted: bool
    has_heard: bool = False
    _told: str = ""
    _shown: Json = None

    async def receive(self, stream: AsyncIterator[wire.StreamResponse]) -> None:
        """Until the stream ends, the task is settled, or an accepted one is silent for long: the protocol
        knows no heartbeat, so whether somebody is there can only be asked."""
        async with aclosing(stream) as heard:  # type: ignore[type-var]  # the library's are generators
            while not self.task.is_settled or not self.has_heard:
                try:
                    async with asyncio.timeout(
                        SILENCE_TIMEOUT_SECONDS if self.is_accepted else None
                    ):
                        each = await anext(heard)
                except (StopAsyncIteration, TimeoutError):
                    return
                self.task.update(each)
                await self.emit_progress()

    async def emit_progress(self) -> None:
        self.has_heard = True
        if not self.is_accepted and self.task.task_id:
            await self.voice.bind(self.task.binding)
            self.is_accepted = True
        spoken = self.task.reply_text
        if not spoken.startswith(self._told):
            self.voice.start_over("replaced")
            self._told = ""
        self.voice.text(spoken[len(self._told) :])
        self._told = spoken
        if self.task.progress != self._shown:
            self._shown = self.task.progress
            self.voice.activity(PROGRESS_ACTIVITY, self._shown)
        await self.voice.wait_for_capacity()


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
