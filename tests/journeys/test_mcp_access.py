"""MCP servers behind an authorization server: tokens of Holdfast itself, and of each subject that gives access."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
import pytest

from tests.journeys.test_mcp_servers import prompt, result_of, waiting
from tests.support.keys import Holder, write_keys
from tests.support.mcp.authorization_server import CLIENT_ID, CLIENT_SECRET, Issuer, issuing
from tests.support.mcp.http_shop import http_shop
from tests.support.servers import Server, serving
from tests.support.streams import Client

pytestmark = pytest.mark.anyio

OWN, EACH = "client_credentials", "authorization_code"
SUBJECTS = ("ann", "bob", "carl", "dora", "finn", "gus")


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Issuer]:
    with issuing(tmp_path_factory.mktemp("issuer") / "tokens") as running:
        yield running


@pytest.fixture(autouse=True)
def _as_new(issuer: Issuer) -> None:
    issuer.requests.clear()
    issuer.named_issuer, issuer.refuses = None, False


def agents_file(folder: Path, address: str, issuer: Issuer) -> Path:
    tables = ["[models.script]\nprovider = 'scripted'\nscript = 'plain'\ndelay_ms = 1"]
    lost = "http://127.0.0.1:9"
    servers = {
        "own": (OWN, issuer.address),
        "each": (EACH, issuer.address),
        "other": (EACH, issuer.address),
        "lost": (EACH, lost),
    }
    for name, (grant, at) in servers.items():
        tables.append(
            f"[mcp.{name}]\nurl = {json.dumps(address)}\nstartup_timeout = 50\n"
            f"[mcp.{name}.oauth]\nissuer = '{at}'\nclient_id = '{CLIENT_ID}'\n"
            f"client_secret_env = 'SHOP_SECRET'\nscopes = ['orders']\ngrant = '{grant}'\n"
            f"[agents.{name}]\nmodel = 'script'\ntools = ['{name}/find_order']\n"
        )
    tables.append("[mcp.open]\nurl = 'http://127.0.0.1:9/mcp'\n")
    file = folder / "agents.toml"
    file.write_text("\n".join(tables))
    return file


@pytest.fixture(scope="module")
async def server(
    shared_database_url: str, tmp_path_factory: pytest.TempPathFactory, issuer: Issuer
) -> AsyncIterator[Server]:
    folder = tmp_path_factory.mktemp("agents")
    holders = {name: Holder("shop") for name in SUBJECTS}
    keys = write_keys(folder / "keys.toml", {**holders, "eve": Holder("shop", ["runs:read"])})
    async with http_shop(SHOP_TOKENS=str(issuer.tokens)) as shop:
        file = agents_file(folder, shop.address, issuer)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SHOP_SECRET", CLIENT_SECRET)
            async with serving(shared_database_url, agents=file, api_keys_file=keys) as running:
                yield running


@pytest.fixture
async def ann(server: Server) -> AsyncIterator[Client]:
    async with server.client("ann") as client:
        yield client


async def found(client: Client, name: str) -> dict[str, Any]:
    """The result of a run that looks up an order."""
    started = await client.start(name, prompt("find_order", server=name, number="A-7"))
    return await result_of(client, await client.ended(started["id"]))


async def sent_back(client: Client, path: str = "/v1/mcp-servers/each/authorize") -> str:
    """Begin to give access, agree at the authorization server, and return the address that follows."""
    begun = await client.http.get(path)
    assert begun.status_code == 303, begun.text
    async with httpx2.AsyncClient() as browser:
        agreed = await browser.get(begun.headers["location"])
    return str(agreed.headers["location"])


async def give_access(client: Client) -> None:
    done = await client.http.get(await sent_back(client))
    assert done.status_code == 200, done.text
    assert "Access was given" in done.text


async def test_a_run_waits_until_its_subject_has_given_access(
    server: Server, ann: Client, issuer: Issuer
) -> None:
    started = await ann.start("each", prompt("authorize", server="each"))
    ticket = await waiting(ann, started["id"])
    assert ticket["kind"] == "auth"
    assert "/v1/mcp-servers/each/authorize, then respond" in ticket["message"]
    assert "carry" not in ticket
    await give_access(ann)
    await ann.decide(ticket["run"], "respond", result=True)
    run = await ann.ended(started["id"])
    assert "Access was given" in (await result_of(ann, run))["content"][0]["text"]

    assert (await found(ann, "each"))["result"]["data"]["number"] == "A-7"
    async with server.client("bob") as bob:
        asking = await bob.start("each", prompt("find_order", server="each", number="B"))
        ticket = await waiting(bob, asking["id"])
        assert "an account of 'bob'" in ticket["message"]
        await give_access(bob)
        await bob.decide(ticket["run"], "respond", result=True)
        result = await result_of(bob, await bob.ended(asking["id"]))
        assert result["result"]["data"]["number"] == "B"
    assert [each["grant_type"] for each in issuer.requests] == ["authorization_code"] * 2


async def test_holdfast_gets_a_token_of_its_own_and_stores_it_sealed(
    ann: Client, issuer: Issuer, shared_database_url: str
) -> None:
    assert (await found(ann, "own"))["result"]["outcome"] == "succeeded"
    request = issuer.requests[-1]
    assert (request["grant_type"], request["scope"]) == ("client_credentials", "orders")
    assert request["resource"].endswith("/mcp")
    connection = await asyncpg.connect(shared_database_url)
    rows = await connection.fetch(
        "SELECT tenant, subject, sealed FROM mcp_tokens WHERE server = 'own' AND issuer = $1",
        issuer.address,
    )
    await connection.close()
    [row] = rows
    token = issuer.tokens.read_text().split()[-1]
    assert (row["tenant"], row["subject"]) == ("*", "")
    assert token not in row["sealed"]


async def test_a_token_that_the_server_no_longer_accepts_is_replaced(
    ann: Client, issuer: Issuer
) -> None:
    await found(ann, "own")
    issuer.revoke_all()
    before = len(issuer.requests)
    assert (await found(ann, "own"))["result"]["outcome"] == "succeeded"
    assert len(issuer.requests) == before + 1


async def test_a_call_fails_when_its_subject_refuses_access(ann: Client) -> None:
    started = await ann.start("other", prompt("authorize", server="other"))
    ticket = await waiting(ann, started["id"])
    await ann.decide(ticket["run"], "reject")
    result = await result_of(ann, await ann.ended(started["id"]))
    assert result["result"]["data"]["error"]["code"] == "mcp_access_missing"


async def test_access_that_was_withdrawn_is_asked_for_again(server: Server) -> None:
    async with server.client("carl") as carl:
        await give_access(carl)
        assert (await found(carl, "each"))["result"]["outcome"] == "succeeded"
        withdrawn = await carl.http.delete("/v1/mcp-servers/each/authorization")
        assert withdrawn.status_code == 204
        started = await carl.start("each", prompt("find_order", server="each", number="A"))
        assert (await waiting(carl, started["id"]))["kind"] == "auth"


async def test_a_refresh_token_gets_new_tokens_until_the_grant_is_gone(
    server: Server, issuer: Issuer
) -> None:
    async with server.client("dora") as dora:
        await give_access(dora)
        issuer.revoke_all()
        assert (await found(dora, "each"))["result"]["outcome"] == "succeeded"
        assert issuer.requests[-1]["grant_type"] == "refresh_token"
        issuer.revoke_all()
        issuer.refuses = True
        started = await dora.start("each", prompt("find_order", server="each", number="A"))
        assert (await waiting(dora, started["id"]))["kind"] == "auth"


async def refused(client: Client, address: str) -> dict[str, Any]:
    response = await client.http.get(address)
    assert response.headers["content-type"] == "application/problem+json"
    return {"status": response.status_code, **response.json()}


async def test_an_answer_that_another_server_gave_is_refused(ann: Client, issuer: Issuer) -> None:
    issuer.named_issuer = "https://evil.example"
    problem = await refused(ann, await sent_back(ann))
    assert (problem["status"], problem["code"]) == (422, "mcp_authorization_failed")
    assert "expected issuer" in problem["detail"]
    assert issuer.requests == []


async def test_an_answer_needs_the_state_and_the_code_of_this_server(ann: Client) -> None:
    address = await sent_back(ann)
    for wrong in (
        address.replace("state=", "state=x"),
        address.replace("code=", "code=x"),
        address.replace("code=", "error=access_denied&other="),
        address.replace("/each/", "/own/"),
    ):
        problem = await refused(ann, wrong)
        assert problem["code"] in ("mcp_authorization_failed", "mcp_authorization_unused")


async def test_a_code_is_used_once(ann: Client) -> None:
    address = await sent_back(ann)
    assert (await ann.http.get(address)).status_code == 200
    assert (await refused(ann, address))["code"] == "mcp_authorization_failed"


async def test_only_subjects_that_start_runs_give_access_and_only_where_it_is_needed(
    server: Server, ann: Client
) -> None:
    async with server.client("eve") as eve:
        problem = await refused(eve, "/v1/mcp-servers/each/authorize")
        assert (problem["status"], problem["code"]) == (403, "scope_missing")
    for name, code in {
        "own": "mcp_authorization_unused",
        "open": "mcp_authorization_unused",
        "none": "mcp_server_not_found",
    }.items():
        assert (await refused(ann, f"/v1/mcp-servers/{name}/authorize"))["code"] == code


async def test_an_authorization_server_that_is_away_is_named(ann: Client) -> None:
    problem = await refused(ann, "/v1/mcp-servers/lost/authorize")
    assert (problem["status"], problem["code"]) == (503, "mcp_authorization_server_away")
    assert "http://127.0.0.1:9" in problem["detail"]


async def test_what_one_browser_began_another_one_can_not_finish(
    shared_database_url: str, tmp_path: Path, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_SECRET", CLIENT_SECRET)
    file = agents_file(tmp_path, "http://127.0.0.1:9/mcp", issuer)
    async with (
        serving(shared_database_url, agents=file) as server,
        server.client() as first,
        server.client() as second,
    ):
        address = await sent_back(first)
        problem = await refused(second, address)
        assert (problem["status"], problem["code"]) == (422, "mcp_authorization_failed")
        assert "another browser" in problem["detail"]
        assert (await first.http.get(address)).status_code == 200
