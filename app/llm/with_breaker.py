"""Models behind circuit breakers, one for each upstream model of each endpoint, shared by all runs."""

from asyncio import CancelledError
from collections.abc import AsyncIterator, Callable, Sequence
from time import monotonic
from types import TracebackType

import structlog
from msgspec import Struct

from app import telemetry
from app.clock import Clock, SystemClock
from app.domain.errors import InferenceFailed
from app.domain.inference.failures import FailureKind, failed
from app.llm import breaker
from app.llm.breaker import HEALTHY, Open, Probing, State
from app.runtime.ports.models import AnswerContext, LanguageModel, ModelChunk, ModelRequest
from app.runtime.ports.outputs import NativeOutputModel

MAX_CIRCUITS = 1000
"""Runs may name any model: the circuit that was used longest ago is removed first."""

log = structlog.get_logger(__name__)


class Circuit(Struct, frozen=True):
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

    def stream(self, request: ModelRequest) -> "_GuardedAnswer":
        circuit = Circuit(self._endpoint, request.options.upstream_model or self.name)
        return _GuardedAnswer(self._model, request, circuit, self._breakers)


class _GuardedAnswer:
    """The block of one answer, whose end or failure changes the state of its circuit."""

    def __init__(
        self, model: LanguageModel, request: ModelRequest, circuit: Circuit, breakers: Breakers
    ) -> None:
        self._model = model
        self._request = request
        self._circuit = circuit
        self._breakers = breakers
        self._answer: AnswerContext | None = None
        self._is_probe = False
        self._began = 0.0
        self._has_started = False

    async def __aenter__(self) -> AsyncIterator[Sequence[ModelChunk]]:
        allowed = self._breakers.require_closed(self._circuit)
        if allowed is None:
            telemetry.circuit_refusals.labels(self._model.name).inc()
            raise failed(
                FailureKind.MODEL_UNAVAILABLE,
                f"{self._circuit.upstream_model} failed too often lately and gets no requests for a while",
                retry_after=self._breakers.seconds_until_retry(self._circuit),
            )
        self._is_probe, self._began = isinstance(allowed, Probing), monotonic()
        try:
            self._answer = self._model.stream(self._request)
            chunks = await self._answer.__aenter__()
        except BaseException as error:
            self._record(error)
            raise
        self._breakers.answer_started(self._circuit)
        self._is_probe, self._has_started = False, True
        return chunks

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._answer is not None
        try:
            await self._answer.__aexit__(error_type, error, traceback)
        except BaseException as failure:
            self._record(failure)
            raise
        if error is None:
            self._breakers.record_success(self._circuit)
        else:
            self._record(error)

    def _record(self, error: BaseException) -> None:
        """Count the failure of the answer. A probe that ends in another way is abandoned."""
        failure = self._failure_in(error)
        if failure is None or not FailureKind(failure.kind).counted:
            if self._is_probe:
                self._breakers.probe_abandoned(self._circuit)
        elif self._breakers.record_failure(self._circuit):
            telemetry.circuit_openings.labels(self._model.name).inc()
            log.warning("circuit_opened", model=self._circuit.upstream_model, failure=failure.kind)

    def _failure_in(self, error: BaseException) -> InferenceFailed | None:
        """None if the model isn't the cause."""
        if isinstance(error, InferenceFailed):
            return error
        # The runtime cancels the request of a silent model. Other cancellations are no failure.
        is_silent = isinstance(error, CancelledError) and self._is_silent()
        return failed(FailureKind.TIMEOUT, "the model sent nothing") if is_silent else None

    def _is_silent(self) -> bool:
        return not self._has_started and monotonic() - self._began >= self._request.idle_timeout
