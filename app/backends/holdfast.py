"""Holdfast: agents of another deployment of this very service, over HTTP and its event streams.

A turn is a run there, under an id that follows from the turn: however often it is started, there is one.
Its events are followed by their numbers, over every cut; what it asks is asked here, and answered there.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any
from uuid import UUID, uuid5

import httpx2
import structlog
from pydantic import Field

from app.backends.base import Abort, Backend, BackendError, Turn, Voice
from app.backends.endpoint_options import EndpointOptions
from app.backends.holdfast_answers import (
    MOST_BYTES,
    answer_in,
    body_of,
    out_of_reach,
    refusal_in,
    understood,
)
from app.backends.holdfast_run import RemoteRunHeard
from app.backends.patience import FIRST_PAUSE, LONGEST_PAUSE, PassingTrouble, patiently
from app.clock import pause
from app.domain.backends import BackendResult, TimedOut
from app.domain.capabilities import (
    Cancellation,
    Capabilities,
    Continuation,
    OutputKind,
    Transcript,
    Waits,
)
from app.domain.decisions import Action, Answer
from app.domain.endpoints import Endpoint
from app.domain.json_values import JsonObject
from app.domain.messages import block_to_json

CAPABILITIES = Capabilities(
    cancellation=Cancellation.REMOTE_ABORT,
    decisions=True,
    continuation=Continuation.REMOTE_STATE,
    waits=Waits.INPUT_AND_AUTH,
    transcript=Transcript.INCREMENTAL_USER_MESSAGES,
    output=OutputKind.TEXT_AND_ARTIFACTS,
)
SILENCE = 30.0
"""Seconds without as much as a heartbeat after which a stream counts as dead."""
_NAMES = UUID("5e1b1c3e-7a0f-4f5c-9a52-0d6a5a3f8a11")
_ANSWERED_BEFORE = ("ticket_already_decided", "ticket_expired", "ticket_void", "ticket_not_found")

log = structlog.get_logger(__name__)


class HoldfastOptions(EndpointOptions):
    """Of another Holdfast. Seconds."""

    patience: float = Field(default=30.0, gt=0, le=86_400)
    """How long it may be out of reach in the middle of a run."""


class HoldfastFactory:
    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    def faults(self, endpoint: Endpoint) -> Sequence[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        if endpoint.target is None:
            found.append(("target", 'is missing; add target = "…", the id of the agent there'))
        return [*found, *HoldfastOptions.faults_of(endpoint)]

    def problem(self, endpoint: Endpoint, environment: Mapping[str, str]) -> str | None:
        return None

    def build(self, endpoint: Endpoint, environment: Mapping[str, str]) -> Backend:
        token = None if endpoint.auth_env is None else environment[endpoint.auth_env]
        options = HoldfastOptions.of(endpoint)
        return HoldfastBackend(endpoint, options, token)


@dataclass(slots=True)
class HoldfastBackend:
    endpoint: Endpoint
    options: HoldfastOptions
    token: str | None = field(repr=False)
    _http: httpx2.AsyncClient | None = None

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    async def execute_root(self, turn: Turn, voice: Voice) -> BackendResult:
        heard = RemoteRunHeard(voice)
        binding: JsonObject = turn.binding or {}
        try:
            async with asyncio.timeout(self.endpoint.timeout) as within:
                if not turn.joins:
                    binding = await self._begin(turn)
                    await voice.accepted(binding)
                heard.last_id = binding["after"]
                result = await self._follow(binding["run_id"], heard)
        except TimeoutError:
            if not within.expired():
                raise
            reason = f"the remote agent hasn't finished within {self.endpoint.timeout:g} s"
            result = BackendResult(status=TimedOut(), status_reason=reason)
        return heard.bound(result, binding)

    async def abort(self, abort: Abort) -> None:
        run_id = (abort.binding or {}).get("run_id")
        if run_id is not None:
            body = {"reason": "The run that this one was started for is over."}
            await self._ask("POST", f"/v1/runs/{run_id}/cancel", body)

    async def aclose(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    # --- beginning a turn -----------------------------------------------------------------------

    async def _begin(self, turn: Turn) -> JsonObject:
        if turn.answers and turn.binding is not None:
            for each in turn.answers:
                await self._decide(
                    turn.binding["run_id"], each.question, each.decision_id, each.answer
                )
            return turn.binding
        there = f"{self.endpoint.url} {self.endpoint.target}"
        run_id = str(uuid5(_NAMES, f"{turn.key} {there}"))
        thread_id = str(uuid5(_NAMES, f"{turn.thread_id} {there}"))
        body = {
            "agent_id": self.endpoint.target,
            "run_id": run_id,
            "thread_id": thread_id,
            "messages": [
                {"role": "user", "content": [block_to_json(block) for block in message.content]}
                for message in turn.new_messages
            ],
        }
        await self._ask("POST", "/v1/runs", body)
        return {"run_id": run_id, "thread_id": thread_id, "after": 0}

    async def _decide(
        self, run_id: str, question: str, decision_id: str, answer: Answer | None
    ) -> None:
        """Pass an answer on; one that comes too late there has been given by somebody else."""
        if answer is None:
            return
        decision: dict[str, Any] = {
            "ticket_id": question,
            "decision_id": decision_id,
            "action": answer.action.value,
            "reason": answer.reason,
        }
        if answer.action in (Action.RESPOND, Action.APPROVE, Action.CANCEL):
            decision["result"] = answer.result
        body = {"decisions": [{key: value for key, value in decision.items() if value is not None}]}
        try:
            await self._ask("POST", f"/v1/runs/{run_id}/decisions", body)
        except BackendError as error:
            if error.code not in _ANSWERED_BEFORE:
                raise
            log.warning("remote_answer_too_late", run_id=run_id, code=error.code)

    # --- following it ---------------------------------------------------------------------------

    async def _follow(self, run_id: str, heard: RemoteRunHeard) -> BackendResult:
        """Listen until it is done, or waits for people; over cuts, restarts and gaps."""
        wait, away_since = FIRST_PAUSE, None
        while True:
            before = heard.last_id
            try:
                with understood():
                    result = await self._listen(run_id, heard)
                away_since = None
            except (httpx2.TransportError, PassingTrouble) as error:
                result = None
                now = monotonic()
                if away_since is None:
                    log.warning(
                        "remote_out_of_reach", remote_run_id=run_id, error=repr(error)[:200]
                    )
                away_since = now if away_since is None or heard.last_id > before else away_since
                if now - away_since > self.options.patience:
                    raise (
                        error if isinstance(error, PassingTrouble) else out_of_reach(error)
                    ) from error
            if result is not None:
                return result
            wait = FIRST_PAUSE if heard.last_id > before else min(2 * wait, LONGEST_PAUSE)
            await pause(wait)

    async def _listen(self, run_id: str, heard: RemoteRunHeard) -> BackendResult | None:
        """One connection to its stream; what it came to, if it came to that."""
        headers = {"Accept": "text/event-stream"}
        if heard.last_id:
            headers["Last-Event-ID"] = str(heard.last_id)
        async with self._client.stream(
            "GET", f"/v1/runs/{run_id}/events", headers=headers
        ) as response:
            if response.status_code == 200:
                async for sse in httpx2.EventSource(response, MOST_BYTES):
                    if sse.data and (result := await heard.take(sse)) is not None:
                        return result
                return None
            if response.status_code not in (204, 410):
                raise refusal_in(response.status_code, await body_of(response))
        snapshot = await self._ask("GET", f"/v1/runs/{run_id}/snapshot")
        return heard.take_snapshot(snapshot)

    # --- requests -------------------------------------------------------------------------------

    async def _ask(self, method: str, path: str, body: JsonObject | None = None) -> JsonObject:
        """Ask until there is an answer: nothing that is asked here does harm when it is asked twice."""
        return await patiently(self.options.patience, lambda: self._ask_once(method, path, body))

    async def _ask_once(self, method: str, path: str, body: JsonObject | None) -> JsonObject:
        try:
            async with self._client.stream(method, path, json=body) as response:
                answer = await body_of(response)
            if response.is_success:
                with understood():
                    return answer_in(answer)
        except httpx2.TransportError as error:
            raise out_of_reach(error) from error
        raise refusal_in(response.status_code, answer)

    @property
    def _client(self) -> httpx2.AsyncClient:
        if self._http is None:
            headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
            self._http = httpx2.AsyncClient(
                base_url=self.endpoint.url,
                headers=headers,
                timeout=httpx2.Timeout(SILENCE, pool=None),
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=32),
            )
        return self._http
