"""The floor: the best speed of one Python process. It forwards the model's stream and stores nothing.

`python -m bench.floor MODEL_URL` prints its port and serves until it is ended. It shares the web server and
the event encoding with Holdfast, sends a frame for each token, and gives no guarantees.
"""

import json
import socket
import sys
from typing import Any

import aiohttp
import uvicorn

_HEADERS = [(b"content-type", b"text/event-stream")]


class Floor:
    """An ASGI application; a request's body names the model."""

    def __init__(self, model_url: str) -> None:
        self._url = f"{model_url}/chat/completions"
        self._http: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        async for frame in self._frames(json.loads(body)["model"]):
            await send({"type": "http.response.body", "body": frame, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def _frames(self, model: str) -> Any:
        if self._http is None:
            self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        question = [{"role": "user", "content": "hello"}]
        request = {"model": model, "stream": True, "messages": question}
        seq = 0
        async with self._http.post(self._url, json=request) as response:
            unfinished = b""
            async for chunk in response.content.iter_any():
                *events, unfinished = (unfinished + chunk).split(b"\n\n")
                for event in events:
                    if (text := _text_of(event)) is not None:
                        seq += 1
                        body = json.dumps({"event_type": "text_delta", "delta": text})
                        yield f"id: {seq}\ndata: {body}\n\n".encode()


def _text_of(event: bytes) -> str | None:
    if event == b"data: [DONE]":
        return None
    choices = json.loads(event.removeprefix(b"data: "))["choices"]
    return choices[0]["delta"].get("content") or None if choices else None


def main() -> None:
    listening = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(listening.getsockname()[1], flush=True)
    config = uvicorn.Config(
        Floor(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        log_level="warning",
        access_log=False,
        # The client keeps idle connections for 15 s. It must not reuse one that the floor is closing.
        timeout_keep_alive=60,
    )
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
