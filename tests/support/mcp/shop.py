"""A shop as an MCP server. Payments are lines of a file; what else happens is set by variables.

`SHOP_FILE` is the file, `SHOP_KEY` seals the state of questions, so that another process can read it, and
`SHOP_TTL` is the time in seconds for which such a state is valid. The file `SHOP_NEWS` changes a description. `SHOP_ITEMS` is a number of further tools. With
`SHOP_PORT` it serves HTTP, and with `SHOP_TOKENS` it accepts only the access tokens of that file.
"""

import os
import signal
from itertools import count
from pathlib import Path
from typing import Annotated

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.server.request_state import RequestStateSecurity
from mcp_types import BlobResourceContents, EmbeddedResource, ImageContent, ToolAnnotations
from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

FILE = Path(os.environ.get("SHOP_FILE", "/dev/null"))
NEWS = Path(os.environ.get("SHOP_NEWS", "/dev/null"))
security = RequestStateSecurity(
    keys=[os.environ.get("SHOP_KEY", "0" * 32)], ttl=float(os.environ.get("SHOP_TTL", "600"))
)
shop = MCPServer("shop", version="1.0", request_state_security=security)
READ = ToolAnnotations(read_only_hint=True)
VISITS = count(1)


class Consent(BaseModel):
    agrees: bool
    note: str = ""


def consent(amount: int) -> Elicit[Consent]:
    return Elicit(f"May {amount} be paid?", Consent)


def note(line: str) -> None:
    with FILE.open("a") as file:
        file.write(f"{line}\n")


@shop.tool(
    annotations=READ, description="Find an order." + (NEWS.read_text() if NEWS.is_file() else "")
)
def find_order(number: str) -> dict[str, str]:
    return {"number": number, "state": "sent"}


@shop.tool()
def pay(amount: int, agreed: Annotated[Consent, Resolve(consent)]) -> str:
    """Pay an amount, after a person agreed."""
    note(f"paid {amount} {agreed.agrees} {agreed.note}")
    return f"paid {amount}" if agreed.agrees else "not paid"


@shop.tool(annotations=READ)
def read_with_consent(amount: int, agreed: Annotated[Consent, Resolve(consent)]) -> str:
    """Read something, after a person agreed."""
    return f"read {amount} {agreed.agrees}"


@shop.tool(annotations=READ)
async def wait(seconds: float, ctx: Context) -> str:
    """Wait, and show progress."""
    note("waiting")
    await ctx.report_progress(1, 2, "half")
    await anyio.sleep(seconds)
    return "waited"


@shop.tool()
async def ship(seconds: float) -> str:
    """Ship an order, which takes a while."""
    note("shipped")
    await anyio.sleep(seconds)
    return "shipped"


@shop.tool(annotations=READ)
def visits() -> int:
    """Count the calls of this process."""
    return next(VISITS)


@shop.tool()
def die_unsafely() -> str:
    """End the server in mid-call."""
    note("died")
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@shop.tool(annotations=READ)
def die_once() -> str:
    """End the server in the first call only."""
    note("tried")
    if FILE.read_text().count("tried") == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


@shop.tool(annotations=READ)
def photos(data: list[str]) -> list[ImageContent | EmbeddedResource]:
    """Show images, whose type the server has wrong, and an archive."""
    archive = BlobResourceContents(
        uri="shop://orders/all.zip", mime_type="application/zip", blob="UEsDBA=="
    )
    images = [ImageContent(type="image", data=each, mime_type="image/jpeg") for each in data]
    return [*images, EmbeddedResource(type="resource", resource=archive)]


@shop.tool(annotations=READ)
def environment(name: str) -> str:
    return os.environ.get(name, "unset")


def add_items(number: int) -> None:
    """Add so many tools, each of which names an item."""
    for position in range(number):
        shop.add_tool(
            lambda position=position: f"item {position}",
            name=f"item_{position}",
            description=f"Show item {position} of the shop.",
            annotations=READ,
        )


def _lines(file: str) -> list[str]:
    return Path(file).read_text().splitlines()


def with_tokens(app: ASGIApp) -> ASGIApp:
    """Refuse requests without a token of the file `SHOP_TOKENS`, if there is that variable."""
    file = os.environ.get("SHOP_TOKENS")

    async def checked(scope: Scope, receive: Receive, send: Send) -> None:
        if file is not None and scope["type"] == "http":
            given = Headers(scope=scope).get("authorization", "").removeprefix("Bearer ")
            if given not in await anyio.to_thread.run_sync(_lines, file):
                await Response(status_code=401)(scope, receive, send)
                return
        await app(scope, receive, send)

    return checked


if __name__ == "__main__":
    add_items(int(os.environ.get("SHOP_ITEMS", "0")))
    if "SHOP_PORT" in os.environ:
        app = with_tokens(shop.streamable_http_app())
        uvicorn.run(app, port=int(os.environ["SHOP_PORT"]), log_level="error")
    else:
        shop.run("stdio")
