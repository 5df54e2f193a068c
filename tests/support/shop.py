"""The shop of the first week: its agents folder on a server that is killed and started again, and its prompts."""

import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import free_port
from tests.support.servers import Server, serving

FOLDER = Path(__file__).parents[1] / "journeys" / "first_week"


def call(tool: str, **arguments: Any) -> str:
    return f"CALL {tool} {json.dumps(arguments)}"


REFUND = call("refund", number="A-7", amount=80)
THREE_TOOLS = " ".join(
    [
        call("find_order", number="A-7"),
        REFUND,
        call("send_email", to="ann@shop.test", text="Your money is on its way."),
    ]
)
HAND_OFF = " ".join([call("transfer_to_billing"), call("find_order", number="A-7"), REFUND])
DELEGATE = call("agent_run_clerk", prompt=REFUND)
LONG = "count " + " ".join(map(str, range(60)))

PROMPTS = pytest.mark.parametrize(
    ("prompt", "effects"),
    [
        (THREE_TOOLS, {"refund": 1, "e-mail": 1}),
        (HAND_OFF, {"refund": 1}),
        (DELEGATE, {"refund": 1}),
    ],
    ids=["three tools", "hand-off", "delegate"],
)


class Shop:
    """The team's server: one process on a port of its own, killed and started again."""

    def __init__(self, database_url: str, log: Path, origin: str) -> None:
        self._url = database_url
        self._log = log
        self._origin = origin
        self.port = free_port()
        self.base = f"http://127.0.0.1:{self.port}"

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Server]:
        settings = {"agents": FOLDER, "port": self.port, "cors_origins": self._origin}
        async with serving(self._url, **settings) as server:
            yield server

    def effects(self) -> Counter[str]:
        """How often each refund and e-mail happened, by its kind; each under a key of its own."""
        lines = self._log.read_text().splitlines()
        assert len(lines) == len(set(lines)), lines
        return Counter(line.split()[0] for line in lines)


async def killed(server: Server) -> None:
    server.kill()
    await server.gone()
