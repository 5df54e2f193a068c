"""What the routes share that cancel or pause: they are idempotent, and can wait until the request has taken effect."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, TypeAlias

from msgspec import Struct

from app.api.included import IncludeDep
from app.api.runs.waiting import WaitDep, wait_for
from app.domain.errors import AlreadyAnswered
from app.domain.idempotency import StoredResponse
from app.domain.ids import RunId, Tenant
from app.domain.runs.runs import RunRecord
from app.http.deps import ContextDep, LongPollsDep
from app.http.idempotency_key import REPLAYED_HEADER, KeyDep
from app.http.query_params import in_event_loop
from app.queries import records

Runs: TypeAlias = Sequence[RunRecord]


class InterruptedRuns(Struct, frozen=True):
    """The runs as they are now, and headers of the response."""

    runs: Runs
    headers: Mapping[str, str]


class InterruptRequest(Struct, frozen=True):
    ctx: ContextDep
    polls: LongPollsDep
    key: KeyDep
    wait: WaitDep
    included: IncludeDep

    async def carry_out(
        self,
        tenant: Tenant,
        command: Callable[[], Awaitable[Runs]],
        *,
        of_answer: Callable[[StoredResponse], Sequence[RunId]],
        is_settled: Callable[[RunRecord], bool],
        ends_runs: bool,
    ) -> InterruptedRuns:
        """Do the command; with `wait`, also if an earlier request did it, wait until it has taken effect.

        `of_answer` names the runs of the earlier request's answer.
        """
        replayed: Mapping[str, str] = {}
        try:
            runs = await command()
        except AlreadyAnswered as before:
            if not self.wait.seconds or before.answer.status == 200:
                raise
            runs = await self._read(tenant, of_answer(before.answer))
            replayed = REPLAYED_HEADER
        unsettled = [run for run in runs if not is_settled(run)]
        if self.wait.seconds and unsettled:
            await wait_for(self.ctx, tenant, self.polls, unsettled, self.wait, until_done=ends_runs)
            runs = await self._read(tenant, [run.id for run in runs])
        return InterruptedRuns(runs, {**replayed, **self.wait.headers})

    async def _read(self, tenant: Tenant, run_ids: Sequence[RunId]) -> Runs:
        return [(await records.read_view(self.ctx, tenant, run_id)).run for run_id in run_ids]


InterruptDep = Annotated[InterruptRequest, in_event_loop(InterruptRequest)]
