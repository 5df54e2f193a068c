"""When a run is interrupted because its time is up: at once, or after a grace period if it may ask."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.domain.runs.limits import Amount, Limit, OnLimit, RunLimits
from app.runtime.active_run import ActiveRun
from app.runtime.limits import MAX_GRACE_SECONDS, wall_clock_limit

pytestmark = pytest.mark.anyio


class Timers:
    """Collects the delays of a run's timers, and what each of them asks for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[bool] = []
        """`now` of each interruption."""
        self.cancelled = 0
        self._set: list[tuple[float, Callable[[], None]]] = []
        monkeypatch.setattr(asyncio.get_running_loop(), "call_later", self._call_later)

    def _call_later(self, delay: float, call: Callable[[], None]) -> "Timers":
        self._set.append((delay, call))
        return self

    def cancel(self) -> None:
        self.cancelled += 1

    def out_of_time(self, *, now: bool) -> None:
        self.asked.append(now)

    def fire(self) -> list[tuple[float, bool]]:
        """Each delay, with `now` of its interruption."""
        fired = []
        for delay, call in self._set:
            call()
            fired.append((delay, self.asked.pop()))
        return fired

    def run(self, on_limit: OnLimit, seconds: Amount | None, used: float) -> ActiveRun:
        requested = {} if seconds is None else {Limit.WALL_SECONDS: seconds}
        meter = SimpleNamespace(limits=RunLimits(requested, on_limit))
        fake: Any = SimpleNamespace(usage_meter=meter, active_seconds=used, interruption=self)
        return cast(ActiveRun, fake)


@pytest.mark.parametrize(
    "on_limit, seconds, used, fired",
    [
        (OnLimit.STOP, 10, 4.0, [(6.0, True), (16.0, True)]),
        (OnLimit.ASK, 10, 4.0, [(6.0, False), (16.0, True)]),
        (OnLimit.ASK, 100, 4.0, [(96.0, False), (96.0 + MAX_GRACE_SECONDS, True)]),
        (OnLimit.ASK, None, 4.0, []),
    ],
)
async def test_a_run_that_may_ask_has_a_grace_period_as_long_as_its_limit(
    on_limit: OnLimit,
    seconds: Amount | None,
    used: float,
    fired: list[tuple[float, bool]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timers = Timers(monkeypatch)
    with wall_clock_limit(timers.run(on_limit, seconds, used)):
        assert timers.asked == []
        assert timers.fire() == fired
    assert timers.cancelled == len(fired)


@pytest.mark.parametrize("on_limit", list(OnLimit))
@pytest.mark.parametrize("used", [10.0, 11.0])
async def test_a_run_without_time_left_is_interrupted_at_once(
    on_limit: OnLimit, used: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers = Timers(monkeypatch)
    with wall_clock_limit(timers.run(on_limit, 10, used)):
        assert timers.asked == [on_limit is OnLimit.STOP]
