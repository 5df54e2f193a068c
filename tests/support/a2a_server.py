"""A real A2A server in its own process. Its one agent obeys commands in the user's message.

The commands are those of `tests.support.echo_backend`, and `stubborn`, which hangs and refuses to be
cancelled. Run it as a module; it prints its address.
"""

import argparse
import asyncio
import os
import socket

import uvicorn
from a2a.helpers import proto_helpers as make
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events.event_queue import EventQueue
from a2a.server.request_handlers.default_request_handler_v2 import DefaultRequestHandlerV2
from a2a.server.routes.agent_card_routes import create_agent_card_routes
from a2a.server.routes.jsonrpc_routes import create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import a2a_pb2 as wire
from a2a.utils.errors import TaskNotCancelableError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send


class Agent(AgentExecutor):
    """Records its requests for the test."""

    def __init__(self) -> None:
        self.turns: list[str] = []
        self.cancels: list[str] = []
        self.hanging = asyncio.Event()
        self.released = asyncio.Event()

    def forget(self) -> None:
        """Reset for the next test; hanging turns end."""
        self.released.set()
        self.turns, self.cancels = [], []
        self.hanging, self.released = asyncio.Event(), asyncio.Event()

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        words = context.get_user_input()
        message, task = context.message, context.current_task
        assert message is not None
        self.turns.append(message.message_id)
        if task is None:
            task = make.new_task_from_user_message(message)
            await event_queue.enqueue_event(task)
            is_answer = False
        else:
            is_answer = True
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        if is_answer:
            await self._send_text(updater, [f"you answered: {words}"])
            return
        verb, _, argument = words.partition(" ")
        await self._obey(updater, verb, argument, words)

    async def _obey(self, updater: TaskUpdater, verb: str, argument: str, words: str) -> None:
        note = updater.new_agent_message([wire.Part(text=argument)])
        match verb:
            case "say":
                await self._send_text(updater, [f"{word} " for word in argument.split()])
            case "ask":
                await updater.requires_input(note)
            case "login":
                await updater.requires_auth(note)
            case "fail":
                await updater.failed(note)
            case "refuse":
                await updater.reject(note)
            case "cancelled":
                await updater.cancel()
            case "make":
                await self._send_artifact(updater, argument)
            case "hang" | "stubborn":
                await self._hang(updater)
            case "die":
                os._exit(1)
            case _:
                await self._send_text(updater, [f"you said: {words}"])

    async def _send_text(self, updater: TaskUpdater, pieces: list[str]) -> None:
        await updater.start_work()
        for place, piece in enumerate(pieces):
            await updater.add_artifact(
                [wire.Part(text=piece)], artifact_id="answer", append=place > 0
            )
        await updater.complete()

    async def _send_artifact(self, updater: TaskUpdater, text: str) -> None:
        await updater.start_work()
        draft = [wire.Part(text=text, media_type="text/plain")]
        await updater.add_artifact(draft, artifact_id="a1", name="draft")
        await updater.add_artifact([make.new_data_part({"n": 1})], artifact_id="a2", name="facts")
        picture = wire.Part(raw=b"\x89PNG", media_type="image/png", filename="dot.png")
        await updater.add_artifact([picture], artifact_id="a3", name="picture")
        await updater.complete()

    async def _hang(self, updater: TaskUpdater) -> None:
        await updater.start_work()
        await updater.add_artifact([wire.Part(text="still ")], artifact_id="answer")
        released = self.released
        self.hanging.set()
        await released.wait()
        await updater.add_artifact([wire.Part(text="here")], artifact_id="answer", append=True)
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        task = context.current_task
        assert task is not None
        self.cancels.append(task.id)
        if "stubborn" in make.get_message_text(task.history[0]):
            raise TaskNotCancelableError
        await TaskUpdater(event_queue, task.id, task.context_id).cancel()

    # --- for the test -----------------------------------------------------------------------------

    async def seen(self, request: Request) -> Response:
        if "hanging" in request.query_params:
            await self.hanging.wait()
        return JSONResponse({"turns": self.turns, "cancels": self.cancels})

    async def reset(self, _: Request) -> Response:
        self.forget()
        return JSONResponse({})

    async def release(self, _: Request) -> Response:
        self.released.set()
        return JSONResponse({})


class AuthCheck:
    """Accepts requests with the token only."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers", []))
        own = scope.get("path", "") in ("/seen", "/release", "/reset")
        wanted = f"Bearer {self._token}".encode()
        if scope["type"] != "http" or own or headers.get(b"authorization") == wanted:
            await self._app(scope, receive, send)
            return
        await JSONResponse({"error": "who are you?"}, 401)(scope, receive, send)


def build(base: str, *, streaming: bool, token: str | None, elsewhere: str | None) -> ASGIApp:
    agent = Agent()
    interface = wire.AgentInterface(
        url=f"{elsewhere or base}/rpc", protocol_binding="JSONRPC", protocol_version="1.0"
    )
    card = wire.AgentCard(
        name="far",
        description="Obeys commands in the message.",
        version="1",
        supported_interfaces=[interface],
        capabilities=wire.AgentCapabilities(streaming=streaming),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[wire.AgentSkill(id="obey", name="obey", description="Obeys.", tags=["test"])],
    )
    handler = DefaultRequestHandlerV2(agent, InMemoryTaskStore(), card)
    app: ASGIApp = Starlette(
        routes=[
            *create_agent_card_routes(card),
            *create_jsonrpc_routes(handler, "/rpc"),
            Route("/seen", agent.seen),
            Route("/release", agent.release, methods=["POST"]),
            Route("/reset", agent.reset, methods=["POST"]),
        ]
    )
    return app if token is None else AuthCheck(app, token)


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--port", type=int, default=0)
    arguments.add_argument("--no-streaming", action="store_true")
    arguments.add_argument("--token")
    arguments.add_argument("--elsewhere")
    asked = arguments.parse_args()
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", asked.port))
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    app = build(
        base, streaming=not asked.no_streaming, token=asked.token, elsewhere=asked.elsewhere
    )
    print(f"serves on {base}", flush=True)
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
