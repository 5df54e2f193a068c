"""The backend for agents of another Holdfast, over HTTP and its event streams.

A turn is a run at the remote. The run's id is derived from the turn's key, so repeated starts create one run.
Its events are read by number, also after a broken connection. Tickets of the remote run and of its children
become tickets here, and their answers are sent back. While only its children execute, the turn continues.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any
from uuid import UUID, uuid5

import httpx2
import structlog
from pydantic import Field

from app.backends.base import Abort, Backend, BackendError, PendingQuestions, Turn, TurnEmitter
from app.backends.endpoint_options import EndpointOptions
from app.backends.remote_holdfast.client import HoldfastClient
from app.backends.remote_holdfast.responses import (
    MAX_ANSWER_BYTES,
    body_of,
    parse_errors_translated,
    parse_refusal,
    unreachable_failure,
)
from app.backends.remote_holdfast.run import RemoteRunView
from app.backends.remote_holdfast.tickets import questions_of
from app.backends.retrying import FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS, TransientFailure
from app.clock import sleep
from app.domain.agents.backend_results import BackendResult, TimedOut
from app.domain.agents.capabilities import (
    Cancellation,
    Capabilities,
    Continuation,
    OutputKind,
    Transcript,
    Waits,
)
from app.domain.agents.endpoints import Endpoint
from app.domain.json_values import JsonObject
from app.domain.threads.messages import Message, block_to_json
from app.domain.tickets.decisions import Action, DecisionAnswer

CAPABILITIES = Capabilities(
    cancellation=Cancellation.REMOTE_ABORT,
    decisions=True,
    continuation=Continuation.REMOTE_STATE,
    waits=Waits.INPUT_AND_AUTH,
    transcript=Transcript.INCREMENTAL_USER_MESSAGES,
    output=OutputKind.TEXT_AND_ARTIFACTS,
)
POLL_INTERVAL_SECONDS = 1.0
"""Poll interval of a suspended run: it may have been answered there since the turn began."""
_NAMES = UUID("5e1b1c3e-7a0f-4f5c-9a52-0d6a5a3f8a11")
_LOST = "remote_run_lost"
_ENDED_CODES = ("run_finished", "not_steerable")
_ANSWERED_BEFORE = ("ticket_already_decided", "ticket_expired", "ticket_void", "ticket_not_found")

log = structlog.get_logger(__name__)


class HoldfastOptions(EndpointOptions):
    """Options of an endpoint that is another Holdfast. Times are in seconds."""

    retry_seconds: float = Field(default=30.0, gt=0, le=86_400)
    """Seconds that the remote may be unreachable during a run."""


class HoldfastFactory:
    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    def option_errors(self, endpoint: Endpoint) -> Sequence[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        if endpoint.target is None:
            found.append(("target", 'is missing; add target = "…", the id of the agent there'))
        return [*found, *HoldfastOptions.errors_of(endpoint)]

    def problem(self, endpoint: Endpoint, environment: Mapping[str, str]) -> str | None:
        return None

    def build(self, endpoint: Endpoint, environment: Mapping[str, str]) -> Backend:
        token = None if endpoint.auth_env is None else environment[endpoint.auth_env]
        retry_seconds = HoldfastOptions.of(endpoint).retry_seconds
        return HoldfastBackend(endpoint, HoldfastClient(endpoint.url, retry_seconds, token))


@dataclass(slots=True)
class HoldfastBackend:
    endpoint: Endpoint
    client: HoldfastClient

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    async def execute_root(self, turn: Turn, emitter: TurnEmitter) -> BackendResult:
        binding: JsonObject = turn.binding or {}
        view = RemoteRunView(emitter)
        try:
            async with asyncio.timeout(self.endpoint.timeout) as within:
                if not turn.joins:
                    binding = await self._begin(turn)
                    await emitter.bind(binding)
                view.continue_from(binding["run_id"], binding["after"])
                result = await self._follow(binding["run_id"], view)
        except TimeoutError:
            if not within.expired():
                raise
            reason = f"the remote agent hasn't finished within {self.endpoint.timeout:g} s"
            result = BackendResult(status=TimedOut(), status_reason=reason)
        return view.bound(result, binding)

    async def pending_questions(self, query: PendingQuestions) -> frozenset[str]:
        """Return the open questions. Of an executing run, these are the known ones that are still open."""
        with parse_errors_translated():
            run = await self.client.request("GET", f"/v1/runs/{query.binding['run_id']}")
            match run["status"]:
                case "waiting":
                    return frozenset(each.name for each in questions_of(run))
                case "done":
                    return frozenset()
                case _:
                    still_open = [name for name in query.questions if await self._is_open(name)]
                    return frozenset(still_open)

    async def _is_open(self, ticket_id: str) -> bool:
        ticket = await self.client.request("GET", f"/v1/tickets/{ticket_id}")
        return bool(ticket["status"] == "open")

    async def abort(self, abort: Abort) -> None:
        """Cancel the run of the binding, and the run that the turn has started, if any."""
        bound, begun = (abort.binding or {}).get("run_id"), self._remote_id(abort.key)
        body = {"reason": "The run that started this run has ended."}
        for run_id in dict.fromkeys((bound, begun)):
            try:
                if run_id is not None:
                    await self.client.request("POST", f"/v1/runs/{run_id}/cancel", body)
            except BackendError as error:
                if error.code != _LOST or run_id == bound:
                    raise

    async def aclose(self) -> None:
        await self.client.aclose()

    # --- beginning a turn -----------------------------------------------------------------------

    async def _begin(self, turn: Turn) -> JsonObject:
        messages = turn.new_messages
        if turn.answers and turn.binding is not None:
            # Before the answers: the run reads messages when it continues, and may end after them.
            messages = await self._steer(turn.binding, turn.messages_besides_answers)
            for each in turn.answers:
                await self._decide(
                    turn.binding["run_id"], each.question, each.decision_id, each.answer
                )
            if not messages:
                return turn.binding
        run_id, thread_id = self._remote_id(turn.key), self._remote_id(turn.thread_id)
        body = {
            "agent_id": self.endpoint.target,
            "run_id": run_id,
            "thread_id": thread_id,
            "messages": [_new_message(message) for message in messages],
        }
        await self.client.request("POST", "/v1/runs", body)
        return {"run_id": run_id, "thread_id": thread_id, "after": 0}

    async def _steer(self, binding: JsonObject, messages: Sequence[Message]) -> list[Message]:
        """Send messages to the run of the binding; returns those that need a new run, because it has ended.

        Each request has a key of its message, so that repeating the turn sends no message twice.
        """
        refused: list[Message] = []
        for message in messages:
            body = {"messages": [_new_message(message)], "mode": "steer"}
            path, key = f"/v1/runs/{binding['run_id']}/inputs", self._remote_id(message.id)
            try:
                await self.client.request("POST", path, body, idempotency_key=key)
            except BackendError as error:
                if error.code not in _ENDED_CODES:
                    raise
                refused.append(message)
        return refused

    def _remote_id(self, what: str) -> str:
        """The remote id for one of our ids. It is always the same."""
        return str(uuid5(_NAMES, f"{what} {self.endpoint.url} {self.endpoint.target}"))

    async def _decide(
        self, run_id: str, ticket_id: str, decision_id: str, answer: DecisionAnswer
    ) -> None:
        """Forward an answer. If it comes too late, the question was already answered at the remote."""
        decision: dict[str, Any] = {
            "ticket_id": ticket_id,
            "decision_id": decision_id,
            "action": answer.action.value,
        }
        if answer.reason is not None:
            decision["reason"] = answer.reason
        if answer.action in (Action.RESPOND, Action.CANCEL):
            # The result of an answer may be null.
            decision["result"] = answer.result
        path = f"/v1/runs/{run_id}/decisions"
        try:
            await self.client.request("POST", path, {"decisions": [decision]})
        except BackendError as error:
            if error.code not in _ANSWERED_BEFORE:
                raise
            log.warning("remote_answer_too_late", run_id=run_id, code=error.code)

    # --- following the run ----------------------------------------------------------------------

    async def _follow(self, run_id: str, view: RemoteRunView) -> BackendResult:
        """Follow the run until it is done or waits for people, across lost connections, restarts and gaps."""
        wait, unreachable_since = FIRST_DELAY_SECONDS, None
        while True:
            before = view.last_id
            try:
                with parse_errors_translated():
                    result = await self._listen(run_id, view)
                    if result is None and view.is_suspended:
                        result = view.apply_record(
                            await self.client.request("GET", f"/v1/runs/{run_id}")
                        )
                unreachable_since = None
            except (httpx2.TransportError, TransientFailure) as error:
                result = None
                now = monotonic()
                if unreachable_since is None:
                    log.warning("remote_unreachable", remote_run_id=run_id, error=repr(error)[:200])
                unreachable_since = (
                    now if unreachable_since is None or view.last_id > before else unreachable_since
                )
                if now - unreachable_since > self.client.retry_seconds:
                    raise (
                        error if isinstance(error, TransientFailure) else unreachable_failure(error)
                    ) from error
            if result is not None:
                return result
            makes_progress = view.last_id > before or (
                view.is_suspended and unreachable_since is None
            )
            wait = FIRST_DELAY_SECONDS if makes_progress else min(2 * wait, MAX_DELAY_SECONDS)
            await sleep(wait)

    async def _listen(self, run_id: str, view: RemoteRunView) -> BackendResult | None:
        """Read the run's stream over one connection. Returns its result if it has ended."""
        try:
            async with (
                asyncio.timeout(POLL_INTERVAL_SECONDS if view.is_suspended else None) as within,
                self.client.events(run_id, view.last_id) as response,
            ):
                if response.status_code == 200:
                    async for sse in httpx2.EventSource(response, MAX_ANSWER_BYTES):
                        if sse.data and (result := await view.apply_event(sse)) is not None:
                            return result
                        if view.needs_snapshot:
                            return None
                        if not view.is_suspended:
                            within.reschedule(None)
                    return None
                if response.status_code not in (204, 410):
                    raise parse_refusal(response.status_code, await body_of(response))
        except TimeoutError:
            return None
        snapshot = await self.client.request("GET", f"/v1/runs/{run_id}/snapshot")
        return view.apply_snapshot(snapshot)


def _new_message(message: Message) -> JsonObject:
    return {"role": "user", "content": [block_to_json(block) for block in message.content]}
