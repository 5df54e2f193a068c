"""How the runs of a period ended, in parts of the same width."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial

from msgspec import Struct

from app.context import ServiceContext
from app.domain.errors import Invalid
from app.domain.ids import AgentId, Tenant
from app.domain.principals import Principal, Scope
from app.domain.runs.terminations import Outcome
from app.queries.kept_answers import KeptAnswers
from app.storage.runs import statistics
from app.storage.runs.statistics import PeriodCount

MAX_BUCKETS = 1000
MAX_RUNS = statistics.MAX_READ
DEFAULT_BUCKETS = 24
UNFINISHED = "unfinished"


class Bucket(StrEnum):
    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"

    @property
    def width(self) -> timedelta:
        return _WIDTHS[self]

    def floor(self, at: datetime) -> datetime:
        """The beginning of the bucket of a time."""
        midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
        return midnight + (at - midnight) // self.width * self.width


_WIDTHS = {
    Bucket.MINUTE: timedelta(minutes=1),
    Bucket.HOUR: timedelta(hours=1),
    Bucket.DAY: timedelta(days=1),
}


@dataclass(slots=True)
class BucketCount:
    """Runs that were created in one bucket, by outcome."""

    begins_at: datetime
    runs: dict[str, int]
    input_tokens: int = 0
    output_tokens: int = 0

    def add(self, counted: PeriodCount) -> None:
        self.runs[UNFINISHED if counted.outcome is None else counted.outcome.value] += counted.runs
        self.input_tokens += counted.input_tokens
        self.output_tokens += counted.output_tokens


class RunStatistics(Struct, frozen=True, kw_only=True):
    begin: datetime
    end: datetime
    bucket: Bucket
    is_complete: bool
    """False if the period has more than `MAX_RUNS` runs: only the newest are counted."""
    buckets: tuple[BucketCount, ...]


class StatisticsPeriod(Struct, frozen=True):
    """The wanted period; by default it ends now and has `DEFAULT_BUCKETS` buckets."""

    bucket: Bucket
    begin: datetime | None
    end: datetime | None

    def around(self, now: datetime) -> tuple[datetime, datetime]:
        """Its begin, which is the begin of a bucket, and its end."""
        end = now if self.end is None else self.end.astimezone(now.tzinfo)
        begin = (
            end - (DEFAULT_BUCKETS - 1) * self.bucket.width if self.begin is None else self.begin
        )
        begin = self.bucket.floor(begin.astimezone(now.tzinfo))
        if begin >= end:
            raise Invalid("invalid_request", "query.from: must be before the end of the period.")
        if end - begin > MAX_BUCKETS * self.bucket.width:
            raise Invalid(
                "invalid_request",
                f"query.bucket: the period has more than {MAX_BUCKETS} buckets. Shorten the period, or ask for "
                "wider buckets.",
            )
        return begin, end


class RunHistory:
    """Statistics of each tenant's runs, kept for some seconds."""

    def __init__(self) -> None:
        self._kept: KeptAnswers[RunStatistics] = KeptAnswers()

    async def of_period(
        self,
        ctx: ServiceContext,
        principal: Principal,
        period: StatisticsPeriod,
        agent: AgentId | None,
    ) -> RunStatistics:
        principal.require(Scope.RUNS_READ)
        begin, end = period.around(ctx.clock.now())
        question = (principal.tenant, agent, period, begin)
        ask = partial(_read, ctx, principal.tenant, agent, period.bucket, begin, end)
        return await self._kept.get(question, ask)


async def _read(
    ctx: ServiceContext,
    tenant: Tenant,
    agent: AgentId | None,
    bucket: Bucket,
    begin: datetime,
    end: datetime,
) -> RunStatistics:
    async with ctx.database.reading() as connection:
        counts = await statistics.of_period(
            connection, tenant, agent, begin=begin, end=end, width=bucket.width
        )
    buckets = _empty_buckets(bucket, begin, end)
    for one in counts:
        buckets[one.begins_at].add(one)
    return RunStatistics(
        begin=begin,
        end=end,
        bucket=bucket,
        is_complete=sum(one.runs for one in counts) < MAX_RUNS,
        buckets=tuple(buckets.values()),
    )


def _empty_buckets(
    bucket: Bucket, begin: datetime, end: datetime
) -> Mapping[datetime, BucketCount]:
    names = [*(outcome.value for outcome in Outcome), UNFINISHED]
    count = -(-(end - begin) // bucket.width)
    starts = (begin + index * bucket.width for index in range(count))
    return {at: BucketCount(at, dict.fromkeys(names, 0)) for at in starts}
