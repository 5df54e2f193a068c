"""Holdfast: agents of another deployment of this very service, over HTTP and its event streams.

A turn is a run there, under an id that follows from the turn: however often it is started, there is one.
Its events are followed by their numbers, over every cut; what it asks is asked here, and answered there.
So is what runs below it ask, to which it has given work; while these get on by themselves, so does the turn.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
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
from app.backends.remote_holdfast.tickets import TicketOwner, owner_of, questions_of
from app.backends.retrying import FIRST_PAUSE, LONGEST_PAUSE, TransientFailure
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
from app.domain.threads.messages import block_to_json
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
"""Seconds after which a run that rests is looked at again: what is asked far below it isn't in its stream."""
_NAMES = UUID("5e1b1c3e-7a0f-4f5c-9a52-0d6a5a3f8a11")
_LOST = "remote_run_lost"
_ANSWERED_BEFORE = ("ticket_already_decided", "ticket_expired", "ticket_void", "ticket_not_found")

log = structlog.get_logger(__name__)


class HoldfastOptions(EndpointOptions):
    """Of another Holdfast. Seconds."""

    retry_seconds: float = Field(default=30.0, gt=0, le=86_400)
    """How long it may be out of reach in the middle of a run."""


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
        patience = HoldfastOptions.of(endpoint).retry_seconds
        return HoldfastBackend(endpoint, HoldfastClient(endpoint.url, patience, token))


@dataclass(slots=True)
class HoldfastBackend:
    endpoint: Endpoint
    client: HoldfastClient

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    async def execute_root(self, turn: Turn, voice: TurnEmitter) -> BackendResult:
        heard = RemoteRunView(voice)
        binding: JsonObject = turn.binding or {}
        try:
            async with asyncio.timeout(self.endpoint.timeout) as within:
                if not turn.joins:
                    binding = await self._begin(turn)
                    await voice.bind(binding)
                heard.continue_from(binding["after"])
                result = await self._follow(binding["run_id"], heard)
        except TimeoutError:
            if not within.expired():
                raise
            reason = f"the remote agent hasn't finished within {self.endpoint.timeout:g} s"
            result = BackendResult(status=TimedOut(), status_reason=reason)
        return heard.bound(result, binding)

    async def pending_questions(self, look: PendingQuestions) -> frozenset[str]:
        """At work, it may still have others below it that wait: what it rests for then isn't known yet."""
        with parse_errors_translated():
            run = await self.client.request("GET", f"/v1/runs/{look.binding['run_id']}")
            match run["status"]:
                case "waiting":
                    return frozenset(each.question.name for each in questions_of(run))
                case "done":
                    return frozenset()
                case _:
                    askers = {name: owner_of(look.binding, name) for name in look.questions}
                    still_open = await self._open_at({asker.run_id for asker in askers.values()})
                    return frozenset(name for name, asker in askers.items() if asker in still_open)

    async def _open_at(self, run_ids: Collection[str]) -> Collection[TicketOwner]:
        pages = [
            await self.client.request("GET", f"/v1/tickets?status=open&limit=100&run_id={run_id}")
            for run_id in run_ids
        ]
        return {
            TicketOwner(each["run_id"], each["ticket_id"])
            for page in pages
            for each in page["items"]
        }

    async def abort(self, abort: Abort) -> None:
        """The run that is known of, and the one that the turn has begun there, if it has."""
        bound, begun = (abort.binding or {}).get("run_id"), self._named(abort.key)
        body = {"reason": "The run that this one was started for is over."}
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
        if turn.answers and turn.binding is not None:
            for each in turn.answers:
                asker = owner_of(turn.binding, each.question)
                await self._decide(asker, each.decision_id, each.answer)
            return turn.binding
        run_id, thread_id = self._named(turn.key), self._named(turn.thread_id)
        body = {
            "agent_id": self.endpoint.target,
            "run_id": run_id,
            "thread_id": thread_id,
            "messages": [
                {"role": "user", "content": [block_to_json(block) for block in message.content]}
                for message in turn.new_messages
            ],
        }
        await self.client.request("POST", "/v1/runs", body)
        return {"run_id": run_id, "thread_id": thread_id, "after": 0}

    def _named(self, what: str) -> str:
        """What something of ours is called there: always the same."""
        return str(uuid5(_NAMES, f"{what} {self.endpoint.url} {self.endpoint.target}"))

    async def _decide(self, asker: TicketOwner, decision_id: str, answer: DecisionAnswer) -> None:
        """Pass an answer on; one that comes too late there has been given by somebody else."""
        decision: dict[str, Any] = {
            "ticket_id": asker.ticket_id,
            "decision_id": decision_id,
            "action": answer.action.value,
        }
        if answer.reason is not None:
            decision["reason"] = answer.reason
        if answer.action in (Action.RESPOND, Action.CANCEL):
            # An answer may be null.
            decision["result"] = answer.result
        path = f"/v1/runs/{asker.run_id}/decisions"
        try:
            await self.client.request("POST", path, {"decisions": [decision]})
        except BackendError as error:
            if error.code not in _ANSWERED_BEFORE:
                raise
            log.warning("remote_answer_too_late", run_id=asker.run_id, code=error.code)

    # --- following it ---------------------------------------------------------------------------

    async def _follow(self, run_id: str, heard: RemoteRunView) -> BackendResult:
        """Listen until it is done, or waits for people; over cuts, restarts and gaps."""
        wait, away_since = FIRST_PAUSE, None
        while True:
            before = heard.last_id
            try:
                with parse_errors_translated():
                    result = await self._listen(run_id, heard)
                    if result is None and heard.is_suspended:
                        result = heard.apply_record(
                            await self.client.request("GET", f"/v1/runs/{run_id}")
                        )
                away_since = None
            except (httpx2.TransportError, TransientFailure) as error:
                result = None
                now = monotonic()
                if away_since is None:
                    log.warning(
                        "remote_out_of_reach", remote_run_id=run_id, error=repr(error)[:200]
                    )
                away_since = now if away_since is None or heard.last_id > before else away_since
                if now - away_since > self.client.retry_seconds:
                    raise (
                        error if isinstance(error, TransientFailure) else unreachable_failure(error)
                    ) from error
            if result is not None:
                return result
            gets_on = heard.last_id > before or (heard.is_suspended and away_since is None)
            wait = FIRST_PAUSE if gets_on else min(2 * wait, LONGEST_PAUSE)
            await sleep(wait)

    async def _listen(self, run_id: str, heard: RemoteRunView) -> BackendResult | None:
        """One connection to its stream, for as long as it executes; what it came to, if it has ended."""
        try:
            async with (
                asyncio.timeout(POLL_INTERVAL_SECONDS if heard.is_suspended else None) as within,
                self.client.events(run_id, heard.last_id) as response,
            ):
                if response.status_code == 200:
                    async for sse in httpx2.EventSource(response, MAX_ANSWER_BYTES):
                        if sse.data and (result := await heard.apply_event(sse)) is not None:
                            return result
                        if heard.needs_snapshot:
                            return None
                        if not heard.is_suspended:
                            within.reschedule(None)
                    return None
                if response.status_code not in (204, 410):
                    raise parse_refusal(response.status_code, await body_of(response))
        except TimeoutError:
            return None
        snapshot = await self.client.request("GET", f"/v1/runs/{run_id}/snapshot")
        return heard.apply_snapshot(snapshot)
