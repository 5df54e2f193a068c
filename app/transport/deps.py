"""What routes ask for: the house's parts, and the principal behind a request.

All are `async` though none of them waits: FastAPI would send each of the others through a thread.
"""

from typing import Annotated

from fastapi import Depends, Request

from app.control.desk import Desk
from app.dispatch.liveness import Liveness
from app.dispatch.worker import Worker
from app.events.relay import Relay
from app.transport.departure import Departure
from app.transport.polls import LongPolls
from app.transport.sse import StreamOptions
from app.transport.stream_grants import StreamTokenSigner


async def _desk(request: Request) -> Desk:
    desk: Desk = request.app.state.desk
    return desk


async def _worker(request: Request) -> Worker | None:
    worker: Worker | None = request.app.state.worker
    return worker


async def _liveness(request: Request) -> Liveness:
    liveness: Liveness = request.app.state.liveness
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


async def _departure(request: Request) -> Departure:
    departure: Departure = request.app.state.departure
    return departure


async def require_staying(request: Request) -> None:
    """Refuses what would begin at a server that is closing."""
    (await _departure(request)).refuse_beginnings()


DeskDep = Annotated[Desk, Depends(_desk)]
WorkerDep = Annotated[Worker | None, Depends(_worker)]
LivenessDep = Annotated[Liveness, Depends(_liveness)]
RelayDep = Annotated[Relay, Depends(_relay)]
DepartureDep = Annotated[Departure, Depends(_departure)]
StreamTokenSignerDep = Annotated[StreamTokenSigner, Depends(_stream_token_signer)]
LongPollsDep = Annotated[LongPolls, Depends(_long_polls)]
StreamOptionsDep = Annotated[StreamOptions, Depends(_stream_options)]
