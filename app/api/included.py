"""The parameter `include`: parts of runs and events that are shown only when a client asks for them."""

from typing import Annotated

from fastapi import Depends, Query
from msgspec import Struct

from app.http.query_params import listed_names

_NAMES = ("state", "trace")
_NAMES_OF_READS = (*_NAMES, "usage")
_DESCRIPTION = (
    "What to show in addition, separated by commas. `state`: the `state` of runs, and `state_snapshot` "
    "events. `trace`: `session_id`, `dispatch_id`, `since_dispatch_id`, `transport_request_id` and "
    "`request` of runs, and `identity` and `since_dispatch_id` in events."
)


class Included(Struct, frozen=True):
    state: bool = False
    """The state of runs, and `state_snapshot` events."""
    trace: bool = False
    """The ids of executions, deliveries and requests, and the stored request of a run."""
    usage: bool = False
    """The usage of runs by model, read from the ledger."""


NOTHING_INCLUDED = Included()


async def _included(
    include: Annotated[str | None, Query(max_length=100, description=_DESCRIPTION)] = None,
) -> Included:
    return _parsed(include, _NAMES)


async def _included_in_read(
    include: Annotated[
        str | None,
        Query(max_length=100, description=f"{_DESCRIPTION} `usage`: `usage_by_model` of runs."),
    ] = None,
) -> Included:
    return _parsed(include, _NAMES_OF_READS)


def _parsed(include: str | None, known: tuple[str, ...]) -> Included:
    if include is None:
        return NOTHING_INCLUDED
    names = listed_names("include", include, known)
    return Included(state="state" in names, trace="trace" in names, usage="usage" in names)


IncludeDep = Annotated[Included, Depends(_included)]
"""For events, and for operations that change runs."""
ReadIncludeDep = Annotated[Included, Depends(_included_in_read)]
"""For operations that read runs. They can also read their usage."""
