"""What routes ask for: the house's parts, and the principal behind a request.

All are `async` though none of them waits: FastAPI would send each of the others through a thread.
"""

from typing import Annotated

from fastapi import Depends, Request

from app.context import ServiceContext
from app.events.fanout.relay import Relay
from app.http.limits.draining import DrainState
from app.http.limits.long_polls import LongPolls
from app.http.sse import StreamOptions
from app.http.stream_grants import StreamTokenSigner
from app.workers.heartbeat import Heartbeat
from app.workers.worker import Worker


async def _context(request: Request) -> ServiceContext:
    ctx: ServiceContext = request.app.state.ctx
    return ctx


async def _worker(request: Request) -> Worker | None:
    worker: Worker | None = request.app.state.worker
    return worker


async def _heartbeat(request: Request) -> Heartbeat:
    liveness: Heartbeat = request.app.state.liveness
    return liveness


async def _relay(request: Request) -> Relay:
    relay: Relay = request.app.state.relay
    return relay


async def _stream_token_signer(request: Request) -> StreamTokenSigner:
    signer: StreamTokenSigner = request.app.state.stream_token_signer
    return signer


async def _stream_options(request: Request) -> StreamOptions:
    options: StreamOptions = request.app.state.stream_options
    return options


async def _long_polls(request: Request) -> LongPolls:
    polls: LongPolls = request.app.state.long_polls
    return polls


async def _drain_state(request: Request) -> DrainState:
    drain_state: DrainState = request.app.state.drain_state
    return drain_state


async def require_not_draining(request: Request) -> None:
    """Refuses what would begin at a server that is closing."""
    (await _drain_state(request)).refuse_new_work()


ContextDep = Annotated[ServiceContext, Depends(_context)]
WorkerDep = Annotated[Worker | None, Depends(_worker)]
HeartbeatDep = Annotated[Heartbeat, Depends(_heartbeat)]
RelayDep = Annotated[Relay, Depends(_relay)]
DrainStateDep = Annotated[DrainState, Depends(_drain_state)]
StreamTokenSignerDep = Annotated[StreamTokenSigner, Depends(_stream_token_signer)]
LongPollsDep = Annotated[LongPolls, Depends(_long_polls)]
StreamOptionsDep = Annotated[StreamOptions, Depends(_stream_options)]
