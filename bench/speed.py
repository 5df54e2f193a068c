"""Speed against the floor, alternately in several rounds; a ratio is the median over the rounds."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias

import psutil

from bench.clients import FloorClient, HoldfastClient, Load, Timing, load
from bench.database import Postgres
from bench.processes import Served
from bench.table import Line, Mark, count, milliseconds, times

FIRST_FRAME = Mark("<= 2x", most=2)
FIRST_TOKEN = Mark("<= 4x", most=4)
RUNS = Mark(">= 1/3", least=1 / 3)
TOOL_RUNS = Mark(">= 450", least=450)
CPU = Mark("<= 0.9 ms", most=0.9e-3)
POSTGRES_CPU = Mark("<= 0.4 ms", most=0.4e-3)
DECISION = Mark("<= 4 ms", most=4e-3)
DECISIONS = Mark("<= 6 ms", most=6e-3)
APPROVAL_CPU = Mark("<= 4 ms", most=4e-3)
APPROVAL_POSTGRES_CPU = Mark("<= 1.5 ms", most=1.5e-3)
TOKENS = Mark(">= 1/2", least=1 / 2)

Run: TypeAlias = Callable[[], Awaitable[Timing]]
Cpu: TypeAlias = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Amount:
    """The size of one round."""

    runs: int
    at_once: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The processes and clients of a measurement."""

    floor: FloorClient
    ours: HoldfastClient
    floor_process: Served
    our_process: Served
    postgres: Postgres | None
    rounds: int
    share: float
    """The share of the usual number of runs."""

    def amount(self, runs: int, at_once: int) -> Amount:
        return Amount(max(at_once, int(runs * self.share)), at_once)


@dataclass(frozen=True, slots=True)
class Rounds:
    """Results of the rounds of floor and Holdfast, with CPU seconds per run where known."""

    floor: list[Load]
    ours: list[Load]
    floor_cpu: list[float]
    our_cpu: list[float]
    postgres_cpu: list[float]


async def short(stage: Stage) -> list[Line]:
    """A reply of 20 tokens on a thread of its own: alone, 16 at a time, 64 at a time."""
    alone = await _side_by_side(stage, stage.amount(400, 1), stage.floor.short, stage.ours.short)
    many = await _side_by_side(stage, stage.amount(1500, 16), stage.floor.short, stage.ours.short)
    most = await _side_by_side(stage, stage.amount(1500, 64), stage.floor.short, stage.ours.short)
    return [
        _time("1 at a time: first frame, p50", alone, Load.first_frame, FIRST_FRAME),
        _time("1 at a time: first token, p50", alone, Load.first_token, FIRST_TOKEN),
        _rate("16 at a time: runs/s", many, Load.runs_per_second, RUNS),
        *_cpu("16 at a time: CPU per run", many),
        _rate("64 at a time: runs/s", most, Load.runs_per_second, None),
    ]


async def long(stage: Stage) -> list[Line]:
    """A reply of 5,000 tokens."""
    rounds = await _side_by_side(stage, stage.amount(15, 1), stage.floor.long, stage.ours.long)
    return [
        _rate("1 at a time: tokens/s", rounds, Load.tokens_per_second, TOKENS),
        _rate("1 at a time: bytes per token", rounds, Load.bytes_per_token, None),
    ]


async def tool(stage: Stage) -> list[Line]:
    """A call of a tool, then a reply of 20 tokens."""
    rounds = await _ours_alone(stage, stage.amount(400, 8), stage.ours.tool)
    rate = median(one.runs_per_second() for one in rounds.ours)
    return [
        Line("8 at a time: runs/s", count(rate), mark=TOOL_RUNS, judged=rate),
        *_our_cpu("8 at a time: CPU per run", rounds),
    ]


async def hitl(stage: Stage) -> list[Line]:
    """A call that needs approval, the decision, then a reply of 20 tokens."""
    alone = await _ours_alone(stage, stage.amount(150, 1), stage.ours.approval)
    some = await _ours_alone(stage, stage.amount(300, 4), stage.ours.approval)
    return [
        _first_token("1 at a time: decision to first token, p50", alone, DECISION),
        _first_token("4 at a time: decision to first token, p50", some, DECISIONS),
        *_our_cpu("4 at a time: CPU per run", some, APPROVAL_CPU, APPROVAL_POSTGRES_CPU),
    ]


async def _side_by_side(stage: Stage, amount: Amount, floor: Run, ours: Run) -> Rounds:
    rounds = Rounds([], [], [], [], [])
    cpu_of_floor = cpu_clock(stage.floor_process)
    await load(floor, runs=amount.at_once, at_once=amount.at_once)
    await load(ours, runs=amount.at_once, at_once=amount.at_once)
    for _ in range(stage.rounds):
        before = cpu_of_floor()
        rounds.floor.append(await load(floor, runs=amount.runs, at_once=amount.at_once))
        rounds.floor_cpu.append((cpu_of_floor() - before) / amount.runs)
        await _measure_ours(stage, amount, ours, rounds)
    return rounds


async def _ours_alone(stage: Stage, amount: Amount, run: Run) -> Rounds:
    rounds = Rounds([], [], [], [], [])
    await load(run, runs=amount.at_once, at_once=amount.at_once)
    for _ in range(stage.rounds):
        await _measure_ours(stage, amount, run, rounds)
    return rounds


async def _measure_ours(stage: Stage, amount: Amount, run: Run, rounds: Rounds) -> None:
    cpu_of_ours = cpu_clock(stage.our_process)
    cpu_of_postgres = stage.postgres.cpu_seconds if stage.postgres else unknown_cpu
    before, before_postgres = cpu_of_ours(), cpu_of_postgres()
    rounds.ours.append(await load(run, runs=amount.runs, at_once=amount.at_once))
    rounds.our_cpu.append((cpu_of_ours() - before) / amount.runs)
    rounds.postgres_cpu.append((cpu_of_postgres() - before_postgres) / amount.runs)


def _first_token(what: str, rounds: Rounds, mark: Mark) -> Line:
    seconds = median(one.first_token() for one in rounds.ours)
    return Line(what, milliseconds(seconds), mark=mark, judged=seconds)


def _our_cpu(
    what: str, rounds: Rounds, mark: Mark | None = None, postgres_mark: Mark | None = None
) -> Iterator[Line]:
    ours, database = median(rounds.our_cpu), median(rounds.postgres_cpu)
    if ours:
        yield Line(what, milliseconds(ours), mark=mark, judged=ours)
    if database:
        yield Line(f"{what}, Postgres", milliseconds(database), mark=postgres_mark, judged=database)


def _time(what: str, rounds: Rounds, of: Callable[[Load], float], mark: Mark) -> Line:
    floor, ours, ratio = _compared(rounds, of)
    return Line(what, milliseconds(ours), milliseconds(floor), times(ratio), mark, ratio)


def _rate(what: str, rounds: Rounds, of: Callable[[Load], float], mark: Mark | None) -> Line:
    floor, ours, ratio = _compared(rounds, of)
    return Line(what, count(ours), count(floor), times(ratio), mark, ratio)


def _compared(rounds: Rounds, of: Callable[[Load], float]) -> tuple[float, float, float]:
    floor, ours = [of(one) for one in rounds.floor], [of(one) for one in rounds.ours]
    ratios = [mine / best for mine, best in zip(ours, floor, strict=True)]
    return median(floor), median(ours), median(ratios)


def _cpu(what: str, rounds: Rounds) -> Iterator[Line]:
    floor, ours = median(rounds.floor_cpu), median(rounds.our_cpu)
    if floor and ours:
        yield Line(what, milliseconds(ours), milliseconds(floor), times(ours / floor), CPU, ours)
    if database := median(rounds.postgres_cpu):
        yield Line(f"{what}, Postgres", milliseconds(database), mark=POSTGRES_CPU, judged=database)


def cpu_clock(process: Served) -> Cpu:
    if process.pid is None:
        return unknown_cpu
    watched = psutil.Process(process.pid)

    def seconds() -> float:
        spent = watched.cpu_times()
        return float(spent.user + spent.system)

    return seconds


def unknown_cpu() -> float:
    return 0.0
