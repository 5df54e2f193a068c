"""Models behind circuit breakers, one for each upstream model of each endpoint, shared by all runs."""

from asyncio import CancelledError
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic

import structlog

from app import telemetry
from app.clock import Clock, SystemClock
from app.domain.errors import InferenceFailed
from app.domain.inference.failures import FailureKind, failed
from app.llm import breaker
from app.llm.breaker import HEALTHY, Open, Probing, State
from app.runtime.ports.models import LanguageModel, ModelChunk, ModelRequest
from app.runtime.ports.outputs import NativeOutputModel

MAX_CIRCUITS = 1000
"""Runs may name any model: the circuit that was used longest ago is removed first."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Circuit:
    endpoint: str
    upstream_model: str


class Breakers:
    """The breakers of a process. A circuit without a stored state is closed and has no failures."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._states: dict[Circuit, State] = {}

    def require_closed(self, circuit: Circuit) -> State | None:
        """Return the state in which a request passes, or None if the request is refused."""
        state = self._states.get(circuit)
        if state is None:
            return HEALTHY
        allowed = breaker.request_allowed(state, self._clock.now())
        if allowed is not None:
            self._store(circuit, allowed)
        return allowed

    def seconds_until_retry(self, circuit: Circuit) -> float:
        """Seconds until the next request may pass."""
        state = self._states.get(circuit, HEALTHY)
        return breaker.time_until_retry(state, self._clock.now()).total_seconds()

    def answer_started(self, circuit: Circuit) -> None:
        self._change(circuit, breaker.answer_started)

    def record_success(self, circuit: Circuit) -> None:
        self._change(circuit, breaker.record_success)

    def probe_abandoned(self, circuit: Circuit) -> None:
        now = self._clock.now()
        self._change(circuit, lambda state: breaker.probe_abandoned(state, now))

    def record_failure(self, circuit: Circuit) -> bool:
        """Record a failure. Returns whether it has opened the breaker."""
        before = self._states.get(circuit, HEALTHY)
        after = breaker.record_failure(before, self._clock.now())
        self._store(circuit, after)
        return isinstance(after, Open) and not isinstance(before, Open)

    def _change(self, circuit: Circuit, transition: Callable[[State], State]) -> None:
        state = self._states.get(circuit)
        if state is not None:
            self._store(circuit, transition(state))

    def _store(self, circuit: Circuit, state: State) -> None:
        self._states.pop(circuit, None)
        if state != HEALTHY:
            self._states[circuit] = state
        if len(self._states) > MAX_CIRCUITS:
            del self._states[next(iter(self._states))]


class ModelWithBreaker:
    """A model that gets no requests while its breaker is open.

    Meanwhile requests fail with `model_unavailable` and the remaining seconds.
    """

    def __init__(self, model: LanguageModel, endpoint: str, breakers: Breakers) -> None:
        self._model = model
        self._endpoint = endpoint
        self._breakers = breakers

    @property
    def name(self) -> str:
        return self._model.name

    def has_native_output(self, *, with_tools: bool, models: Sequence[str] = ()) -> bool:
        model = self._model
        return isinstance(model, NativeOutputModel) and model.has_native_output(
            with_tools=with_tools, models=models
        )

    @asynccontextmanager
    async def stream(
        self, request: ModelRequest
    ) -> AsyncIterator[AsyncIterator[Sequence[ModelChunk]]]:
        breakers = self._breakers
        circuit = Circuit(self._endpoint, request.options.upstream_model or self.name)
        allowed = breakers.require_closed(circuit)
        if allowed is None:
            telemetry.circuit_refusals.labels(self.name).inc()
            raise failed(
                FailureKind.MODEL_UNAVAILABLE,
                f"{circuit.upstream_model} failed too often lately and gets no requests for a while",
                retry_after=breakers.seconds_until_retry(circuit),
            )
        is_probe = isinstance(allowed, Probing)
        has_started, began = False, monotonic()
        try:
            async with self._model.stream(request) as chunks:
                breakers.answer_started(circuit)
                is_probe, has_started = False, True
                yield chunks
        except CancelledError:
            # The runtime cancels the request of a silent model. Other cancellations are no failure.
            if not has_started and monotonic() - began >= request.idle_timeout:
                silent = failed(FailureKind.TIMEOUT, "the model sent nothing")
                self._record_failure(circuit, silent, is_probe=is_probe)
            elif is_probe:
                breakers.probe_abandoned(circuit)
            raise
        except InferenceFailed as error:
            self._record_failure(circuit, error, is_probe=is_probe)
            raise
        except BaseException:
            if is_probe:
                breakers.probe_abandoned(circuit)
            raise
        breakers.record_success(circuit)

    def _record_failure(self, circuit: Circuit, error: InferenceFailed, *, is_probe: bool) -> None:
        if FailureKind(error.kind).counted:
            if self._breakers.record_failure(circuit):
                telemetry.circuit_openings.labels(self.name).inc()
                log.warning("circuit_opened", model=circuit.upstream_model, failure=error.kind)
        elif is_probe:
            self._breakers.probe_abandoned(circuit)
