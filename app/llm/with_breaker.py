"""Models behind circuit breakers, one for each upstream model of each endpoint, shared by all runs."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

from app import telemetry
from app.clock import Clock, SystemClock
from app.domain.errors import InferenceFailed
from app.domain.inference.failures import FailureKind, failed
from app.llm import breaker
from app.llm.breaker import HEALTHY, Open, Probing, State
from app.runtime.ports import LanguageModel, ModelChunk, ModelRequest

MAX_CIRCUITS = 1000
"""Runs may ask for models by any name: the breaker that was touched longest ago is forgotten first."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Circuit:
    endpoint: str
    upstream_model: str


class Breakers:
    """The breakers of a process. One that isn't kept is closed and has seen no failure."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._states: dict[Circuit, State] = {}

    def require_closed(self, circuit: Circuit) -> State | None:
        """The state in which a request passes, or None when it may not."""
        state = self._states.get(circuit)
        if state is None:
            return HEALTHY
        passed = breaker.request_allowed(state, self._clock.now())
        if passed is not None:
            self._keep(circuit, passed)
        return passed

    def asked_again_in(self, circuit: Circuit) -> float:
        """Seconds until a request that was refused may pass."""
        state = self._states.get(circuit, HEALTHY)
        return breaker.asked_again_in(state, self._clock.now()).total_seconds()

    def answer_started(self, circuit: Circuit) -> None:
        self._change(circuit, breaker.answer_started)

    def record_success(self, circuit: Circuit) -> None:
        self._change(circuit, breaker.record_success)

    def probe_abandoned(self, circuit: Circuit) -> None:
        now = self._clock.now()
        self._change(circuit, lambda state: breaker.probe_abandoned(state, now))

    def record_failure(self, circuit: Circuit) -> bool:
        """Whether this failure has opened the breaker."""
        before = self._states.get(circuit, HEALTHY)
        after = breaker.record_failure(before, self._clock.now())
        self._keep(circuit, after)
        return isinstance(after, Open) and not isinstance(before, Open)

    def _change(self, circuit: Circuit, transition: Callable[[State], State]) -> None:
        state = self._states.get(circuit)
        if state is not None:
            self._keep(circuit, transition(state))

    def _keep(self, circuit: Circuit, state: State) -> None:
        self._states.pop(circuit, None)
        if state != HEALTHY:
            self._states[circuit] = state
        if len(self._states) > MAX_CIRCUITS:
            del self._states[next(iter(self._states))]


class ModelWithBreaker:
    """A model that isn't asked while its breaker is open: `model_unavailable`, at once, with the seconds
    until it may be asked."""

    def __init__(self, model: LanguageModel, endpoint: str, breakers: Breakers) -> None:
        self._model = model
        self._endpoint = endpoint
        self._breakers = breakers

    @property
    def name(self) -> str:
        return self._model.name

    @asynccontextmanager
    async def stream(
        self, request: ModelRequest
    ) -> AsyncIterator[AsyncIterator[Sequence[ModelChunk]]]:
        breakers = self._breakers
        circuit = Circuit(self._endpoint, request.options.upstream_model or self.name)
        passed = breakers.require_closed(circuit)
        if passed is None:
            telemetry.circuit_refusals.labels(self.name).inc()
            raise failed(
                FailureKind.MODEL_UNAVAILABLE,
                f"{circuit.upstream_model} failed too often lately and isn't asked for a while",
                retry_after=breakers.asked_again_in(circuit),
            )
        is_probe = isinstance(passed, Probing)
        try:
            async with self._model.stream(request) as chunks:
                breakers.answer_started(circuit)
                is_probe = False
                yield chunks
        except InferenceFailed as error:
            self._note(circuit, error, is_probe=is_probe)
            raise
        except BaseException:
            if is_probe:
                breakers.probe_abandoned(circuit)
            raise
        breakers.record_success(circuit)

    def _note(self, circuit: Circuit, error: InferenceFailed, *, is_probe: bool) -> None:
        if FailureKind(error.kind).counted:
            if self._breakers.record_failure(circuit):
                telemetry.circuit_openings.labels(self.name).inc()
                log.warning("circuit_opened", model=circuit.upstream_model, failure=error.kind)
        elif is_probe:
            self._breakers.probe_abandoned(circuit)
