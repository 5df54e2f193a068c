"""Dependencies of routes: the parts of the application.

All are `async`, because FastAPI runs other dependencies in a thread pool.
"""

from typing import Annotated, Any

from fastapi import Depends, Request

from app.context import ServiceContext
from app.events.fanout.relay import Relay
from app.http.limits.draining import DrainState
from app.http.limits.long_polls import LongPolls
from app.http.sse import StreamOptions
from app.http.stream_grants import StreamTokenSigner
from app.queries.run_statistics import RunHistory
from app.queries.workload import Workload
from app.workers.heartbeat import Heartbeat
from app.workers.worker import Worker


def _part(name: str) -> Any:
    """A dependency on the part of this name in the application's state."""

    async def part(request: Request) -> Any:
        return getattr(request.app.state, name)

    return Depends(part)


async def require_not_draining(request: Request) -> None:
    """Refuses new runs while the server is stopping."""
    drain_state: DrainState = request.app.state.drain_state
    drain_state.refuse_new_work()


ContextDep = Annotated[ServiceContext, _part("ctx")]
WorkerDep = Annotated[Worker | None, _part("worker")]
HeartbeatDep = Annotated[Heartbeat, _part("heartbeat")]
RelayDep = Annotated[Relay, _part("relay")]
DrainStateDep = Annotated[DrainState, _part("drain_state")]
StreamTokenSignerDep = Annotated[StreamTokenSigner, _part("stream_token_signer")]
LongPollsDep = Annotated[LongPolls, _part("long_polls")]
WorkloadDep = Annotated[Workload, _part("workload")]
RunHistoryDep = Annotated[RunHistory, _part("run_history")]
StreamOptionsDep = Annotated[StreamOptions, _part("stream_options")]
