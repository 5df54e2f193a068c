"""`holdfast memory`: a person lists, shows, exports and erases what agents keep about them."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.commands import holdfast
from tests.support.databases import Databases
from tests.support.servers import Server, serving

pytestmark = pytest.mark.anyio

AGENTS = Path(__file__).parent / "terminal" / "agents.toml"


@pytest.fixture(scope="module")
async def server(postgres: Databases) -> AsyncIterator[Server]:
    async with postgres.fresh() as url, serving(url, agents=AGENTS) as server:
        yield server


async def keep(server: Server, **values: object) -> None:
    async with server.client() as client:
        await client.http.delete("/v1/memories", params={"scope": "own"})
        for key, value in values.items():
            kept = await client.http.put(f"/v1/memories/{key}", json={"value": value})
            assert kept.status_code == 200, kept.text


async def test_memories_are_listed_shown_and_exported(server: Server) -> None:
    await keep(server, colour="green", address={"city": "Kyoto"})
    listed = await holdfast("memory", "list", url=server.base)
    assert listed.code == 0, listed.err
    assert [line.split()[0] for line in listed.out.splitlines()] == ["KEY", "address", "colour"]
    found = await holdfast("memory", "list", "--search", "kyoto", "--json", url=server.base)
    assert [json.loads(line)["key"] for line in found.out.splitlines()] == ["address"]
    shown = await holdfast("memory", "show", "colour", url=server.base)
    assert shown.out == "green\n"
    exported = await holdfast("memory", "export", url=server.base)
    assert [json.loads(line)["value"] for line in exported.out.splitlines()] == [
        "green",
        {"city": "Kyoto"},
    ]


async def test_a_memory_is_forgotten_and_then_all_of_them(server: Server) -> None:
    await keep(server, colour="green", name="Ann", pet="Rex")
    one = await holdfast("memory", "forget", "colour", url=server.base)
    assert (one.code, one.out) == (0, "deleted colour\n")
    again = await holdfast("memory", "forget", "colour", url=server.base)
    assert again.code == 7
    assert "memory_not_found" in again.err
    unnamed = await holdfast("memory", "forget", url=server.base)
    assert unnamed.code == 2
    everything = await holdfast("memory", "forget", "--all", "--yes", url=server.base)
    assert (everything.code, everything.out) == (0, "deleted 2 memories\n")
    assert (await holdfast("memory", "export", url=server.base)).out == ""
