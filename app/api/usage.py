"""Routes of usage: sums of the ledger for a period, and of one thread."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query
from msgspec import Struct

from app.api.schemas.common import Instant, Page, Str, Uuid
from app.api.schemas.limits import ModelUsageOut, ThreadUsageOut, UsageGroupOut
from app.domain.errors import Invalid
from app.domain.ids import AgentId, RunId, ThreadId
from app.domain.usage.totals import UsageFilter, UsageGroup
from app.http import cursors
from app.http.access import AuthorizedRoute, MayRead, MayReadUsage
from app.http.deps import ContextDep
from app.http.error_codes import error_responses
from app.http.query_params import in_event_loop, listed_names
from app.queries.usage import thread_usage, usage_by_group

router = APIRouter(route_class=AuthorizedRoute, prefix="/v1", tags=["usage"])

DEFAULT_PERIOD = timedelta(days=30)


class UsageQuery(Struct, frozen=True):
    """The period, the groups and the filters."""

    begin: Annotated[
        Instant | None,
        Query(
            alias="from", description="Beginning of the period. By default 30 days before its end."
        ),
    ] = None
    end: Annotated[
        Instant | None,
        Query(alias="to", description="End of the period, exclusive. By default now."),
    ] = None
    group_by: Annotated[
        str,
        Query(
            max_length=100,
            description="What to group by, separated by commas: `agent`, `model`, `provider`, `subject`, `thread`, "
            "`kind` and `day` (in UTC).",
        ),
    ] = "model"
    agent_id: Annotated[Str | None, Query(max_length=200)] = None
    model: Annotated[
        Str | None, Query(max_length=200, description="The provider's name of the model.")
    ] = None
    subject: Annotated[
        Str | None, Query(max_length=200, description="The subject that started the runs.")
    ] = None
    thread_id: Uuid | None = None
    root_run_id: Annotated[Uuid | None, Query(description="The run and all runs below it.")] = None
    cursor: Annotated[
        str | None, Query(max_length=2000, description="`next_cursor` of the previous page.")
    ] = None
    limit: Annotated[int, Query(ge=1, le=200, description="Maximum number of items of a page.")] = (
        50
    )


@router.get("/usage")
async def get_usage(
    ctx: ContextDep,
    principal: MayReadUsage,
    query: Annotated[UsageQuery, in_event_loop(UsageQuery)],
) -> Page[UsageGroupOut]:
    """Get the tokens and the cost of a period, by group. Deleted threads count, too."""
    groups = [UsageGroup(name) for name in _names(query.group_by)]
    name = {
        "list": "usage",
        "from": query.begin,
        "to": query.end,
        "groups": groups,
        "filters": [query.agent_id, query.model, query.subject, query.thread_id, query.root_run_id],
    }
    end = query.end or ctx.clock.now()
    wanted = UsageFilter(
        begin=query.begin or end - DEFAULT_PERIOD,
        end=end,
        agent_id=None if query.agent_id is None else AgentId(query.agent_id),
        model=query.model,
        subject=query.subject,
        thread_id=None if query.thread_id is None else ThreadId(query.thread_id),
        root_run_id=None if query.root_run_id is None else RunId(query.root_run_id),
    )
    ids = [place for place, group in enumerate(groups) if group is UsageGroup.THREAD]
    after = cursors.decode_texts(name, query.cursor, len(groups), ids=ids)
    found = await usage_by_group(ctx, principal, wanted, groups, after=after, limit=query.limit)
    return Page[UsageGroupOut].of(
        found,
        show=UsageGroupOut.model_validate,
        cursor=lambda last: cursors.encode_texts(name, list(last.group.values())),
    )


def _names(group_by: str) -> list[str]:
    names = listed_names("group_by", group_by, tuple(UsageGroup))
    if not names:
        raise Invalid(
            "invalid_request", "`group_by` is empty. Name at least one group, such as model."
        )
    return [group for group in UsageGroup if group in names]


@router.get("/threads/{thread_id}/usage", responses=error_responses("thread_not_found"))
async def get_thread_usage(thread_id: Uuid, ctx: ContextDep, principal: MayRead) -> ThreadUsageOut:
    """Get the tokens and the cost of all runs of a thread, by model."""
    totals = await thread_usage(ctx, principal, ThreadId(thread_id))
    return ThreadUsageOut(
        thread_id=thread_id,
        usage_by_model=[ModelUsageOut.model_validate(total) for total in totals],
    )
