"""Holdfast: agents of another deployment of this very service, over HTTP and its event streams.

A turn is a run there, under an id that follows from the turn: however often it is started, there is one.
Its events are followed by their numbers, over every cut; what it asks is asked here, and answered there.
So is what runs below it ask, to which it has given work; while these get on by themselves, so does the turn.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any
from uuid import UUID, uuid5

import httpx2
import structlog
from pydantic import Field

from app.backends.base import Abort, Backend, BackendError, Look, Turn, Voice
from app.backends.endpoint_options import EndpointOptions
from app.backends.holdfast_questions import Asker, asker_of, questions_of
from app.backends.holdfast_run import RemoteRunHeard
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

CAPABILITIES = Capabilities(
    cancellation=Cancellation.REMOTE_ABORT,
    decisions=True,
    continuation=Continuation.REMOTE_STATE,
    waits=Waits.INPUT_AND_AUTH,
    transcript=Transcript.INCREMENTAL_USER_MESSAGES,
    output=OutputKind.TEXT_AND_ARTIFACTS,
)
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
LOOK_AGAIN = 1.0
"""Seconds after which a run that rests is looked at again: what is asked far below it isn't in its stream."""
SILENCE = 30.0
"""Seconds without as much as a heartbeat after which a stream counts as dead."""
_NAMES = UUID("5e1b1c3e-7a0f-4f5c-9a52-0d6a5a3f8a11")
_LOST = "remote_run_lost"
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
                heard.go_on_from(binding["after"])
                result = await self._follow(binding["run_id"], heard)
        except TimeoutError:
            if not within.expired():
                raise
            reason = f"the remote agent hasn't finished within {self.endpoint.timeout:g} s"
            result = BackendResult(status=TimedOut(), status_reason=reason)
        return heard.bound(result, binding)

    async def asked_now(self, look: Look) -> frozenset[str]:
        """At work, it may still have others below it that wait: what it rests for then isn't known yet."""
        run = await self._ask("GET", f"/v1/runs/{look.binding['run_id']}")
        match run["status"]:
            case "waiting":
                return frozenset(each.question.name for each in questions_of(run))
            case "done":
                return frozenset()
            case _:
                askers = {name: asker_of(look.binding, name) for name in look.questions}
                still_open = await self._open_at({asker.run_id for asker in askers.values()})
                return frozenset(name for name, asker in askers.items() if asker in still_open)

    async def _open_at(self, run_ids: Collection[str]) -> Collection[Asker]:
        pages = [
            await self._ask("GET", f"/v1/tickets?status=open&limit=100&run_id={run_id}")
            for run_id in run_ids
        ]
        return {
            Asker(each["run_id"], each["ticket_id"]) for page in pages for each in page["items"]
        }

    async def abort(self, abort: Abort) -> None:
        """The run that is known of, and the one that the turn has begun there, if it has."""
        bound, begun = (abort.binding or {}).get("run_id"), self._named(abort.key)
        body = {"reason": "The run that this one was started for is over."}
        for run_id in dict.fromkeys((bound, begun)):
            try:
                if run_id is not None:
                    await self._ask("POST", f"/v1/runs/{run_id}/cancel", body)
            except BackendError as error:
                if error.code != _LOST or run_id == bound:
                    raise

    async def aclose(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    # --- beginning a turn -----------------------------------------------------------------------

    async def _begin(self, turn: Turn) -> JsonObject:
        if turn.answers and turn.binding is not None:
            for each in turn.answers:
                asker = asker_of(turn.binding, each.question)
                await self._decide(asker, each.decision_id, each.answer)
            return turn.binding
        run_id, thread_id = self._named(turn.key), self._named(turn.thread_id)
        body = {
            "agent_id": self.endpoint.target,
            "run_id": run_id,
            "thread_id": thread_id,
            "messages": [
                {"role": "user", "content": message.text} for message in turn.new_messages
            ],
        }
        await self._ask("POST", "/v1/runs", body)
        return {"run_id": run_id, "thread_id": thread_id, "after": 0}

    def _named(self, what: str) -> str:
        """What something of ours is called there: always the same."""
        return str(uuid5(_NAMES, f"{what} {self.endpoint.url} {self.endpoint.target}"))

    async def _decide(self, asker: Asker, decision_id: str, answer: Answer) -> None:
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
            await self._ask("POST", path, {"decisions": [decision]})
        except BackendError as error:
            if error.code not in _ANSWERED_BEFORE:
                raise
            log.warning("remote_answer_too_late", run_id=asker.run_id, code=error.code)

    # --- following it ---------------------------------------------------------------------------

    async def _follow(self, run_id: str, heard: RemoteRunHeard) -> BackendResult:
        """Listen until it is done, or waits for people; over cuts, restarts and gaps."""
        wait, away_since = FIRST_PAUSE, None
        while True:
            before = heard.last_id
            try:
                result = await self._listen(run_id, heard)
                if result is None and heard.rests:
                    result = heard.take_view(await self._ask("GET", f"/v1/runs/{run_id}"))
                away_since = None
            except httpx2.TransportError as error:
                result = None
                now = monotonic()
                away_since = now if away_since is None or heard.last_id > before else away_since
                if now - away_since > self.options.patience:
                    raise BackendError("remote_unreachable", repr(error)[:500]) from error
            if result is not None:
                return result
            gets_on = heard.last_id > before or (heard.rests and away_since is None)
            wait = FIRST_PAUSE if gets_on else min(2 * wait, LONGEST_PAUSE)
            await pause(wait)

    async def _listen(self, run_id: str, heard: RemoteRunHeard) -> BackendResult | None:
        """One connection to its stream, for as long as it executes; what it came to, if it has ended."""
        headers = {"Accept": "text/event-stream"}
        if heard.last_id:
            headers["Last-Event-ID"] = str(heard.last_id)
        try:
            async with (
                asyncio.timeout(LOOK_AGAIN if heard.rests else None) as within,
                self._client.stream(
                    "GET", f"/v1/runs/{run_id}/events", headers=headers
                ) as response,
            ):
                if response.status_code == 200:
                    async for sse in httpx2.EventSource(response):
                        if sse.data and (result := await heard.take(sse)) is not None:
                            return result
                        if heard.is_to_be_looked_at:
                            return None
                        if not heard.rests:
                            within.reschedule(None)
                    return None
                if response.status_code not in (204, 410):
                    await response.aread()
                    raise _refused(response)
        except TimeoutError:
            return None
        snapshot = await self._ask("GET", f"/v1/runs/{run_id}/snapshot")
        return heard.take_snapshot(snapshot)

    # --- requests -------------------------------------------------------------------------------

    async def _ask(self, method: str, path: str, body: JsonObject | None = None) -> JsonObject:
        """Ask until there is an answer: nothing that is asked here does harm when it is asked twice."""
        wait, since = FIRST_PAUSE, monotonic()
        while True:
            try:
                response = await self._client.request(method, path, json=body)
            except httpx2.TransportError as error:
                trouble: BackendError = BackendError("remote_unreachable", repr(error)[:500])
            else:
                if response.is_success:
                    answer: JsonObject = response.json()
                    return answer
                trouble = _refused(response)
                if response.status_code not in (429, 502, 503, 504):
                    raise trouble
            if monotonic() - since > self.options.patience:
                raise trouble
            await pause(wait)
            wait = min(2 * wait, LONGEST_PAUSE)

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


def _refused(response: httpx2.Response) -> BackendError:
    """A problem of theirs as one of ours, under the same code."""
    try:
        problem = response.json()
        code, detail = str(problem["code"]), str(problem["detail"])
    except (ValueError, KeyError, TypeError):
        code, detail = "remote_refused", f"HTTP {response.status_code}"
    if response.status_code == 404 and code != "ticket_not_found":
        code = _LOST if code == "run_not_found" else code
    return BackendError(code, detail[:500])
