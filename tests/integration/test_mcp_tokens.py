"""Access tokens of MCP servers: renewed before they expire, once for all processes."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from app.bootstrap.mcp_tokens import FernetSeal, SealedTokens
from app.clock import SystemClock
from app.domain.ids import Tenant
from app.storage.postgres.connect import DatabaseOptions
from app.storage.postgres.database import Database
from app.tools.mcp.client import AuthorizationNeeded, ServerAway
from app.tools.mcp.oauth.authorization_server import AuthorizationServer, metadata_urls
from app.tools.mcp.oauth.token_source import TokenSource
from app.tools.mcp.oauth.token_store import HOLDFAST, Holder, TokenKey, Tokens
from app.tools.mcp.server_spec import Grant, OAuthSpec
from tests.support.mcp.authorization_server import CLIENT_ID, CLIENT_SECRET, Issuer, issuing

pytestmark = pytest.mark.anyio

CLOCK = SystemClock()
ANN = Holder(Tenant("shop"), "ann")
REPLICAS = 3


@pytest.fixture
def issuer(tmp_path: Path) -> Iterator[Issuer]:
    with issuing(tmp_path / "tokens") as running:
        yield running


@pytest.fixture
async def stores(database_url: str) -> AsyncIterator[list[SealedTokens]]:
    """The stores of several processes."""
    options = DatabaseOptions(pool_size=3, hot_pool_size=3)
    async with AsyncExitStack() as stack:
        found = []
        for _ in range(REPLICAS):
            database = await Database.open(database_url, options)
            stack.push_async_callback(database.close)
            found.append(SealedTokens(database, FernetSeal(b"s" * 32)))
        yield found


def source(
    store: SealedTokens,
    issuer: Issuer,
    grant: Grant = Grant.CLIENT_CREDENTIALS,
    holder: Holder = HOLDFAST,
) -> TokenSource:
    oauth = OAuthSpec(issuer=issuer.address, client_id=CLIENT_ID, grant=grant)
    key = TokenKey(holder=holder, server="shop", issuer=issuer.address)
    server = AuthorizationServer(oauth, CLIENT_SECRET, CLOCK)
    return TokenSource(key, "https://shop.example/mcp", server, store, CLOCK)


def tokens(access: str, seconds: float, refresh: str | None = None) -> Tokens:
    return Tokens(
        access_token=access,
        expires_at=CLOCK.now() + timedelta(seconds=seconds),
        lifetime=3600,
        refresh_token=refresh,
    )


async def test_many_calls_of_many_processes_request_one_token(
    stores: list[SealedTokens], issuer: Issuer
) -> None:
    sources = [source(store, issuer) for store in stores]
    found = await asyncio.gather(*(each.token() for each in sources for _ in range(10)))
    assert len(set(found)) == 1
    assert len(issuer.requests) == 1


async def test_a_refresh_token_is_used_once_by_all_processes_together(
    stores: list[SealedTokens], issuer: Issuer
) -> None:
    issuer.refresh_tokens.add("first")
    sources = [source(store, issuer, Grant.AUTHORIZATION_CODE, ANN) for store in stores]
    await stores[0].save(sources[0].key, tokens("old", -1, "first"))
    found = await asyncio.gather(*(each.token() for each in sources for _ in range(5)))
    assert len(set(found)) == 1
    assert [each["refresh_token"] for each in issuer.requests] == ["first"]


async def test_a_token_is_renewed_before_it_expires(
    stores: list[SealedTokens], issuer: Issuer
) -> None:
    own = source(stores[0], issuer)
    await stores[0].save(own.key, tokens("nearly", 30))
    assert await own.token() != "nearly"
    later = source(stores[0], issuer)
    await stores[0].save(later.key, tokens("long", 3000))
    assert await later.token() == "long"


async def test_a_valid_token_is_used_while_another_process_renews_it(
    stores: list[SealedTokens], issuer: Issuer
) -> None:
    own = source(stores[0], issuer)
    await stores[0].save(own.key, tokens("nearly", 30))
    assert await stores[1].claim(own.key, 30)
    assert await own.token() == "nearly"
    assert issuer.requests == []


async def test_a_renewal_whose_process_died_is_done_by_another_one(
    stores: list[SealedTokens], issuer: Issuer
) -> None:
    own = source(stores[0], issuer)
    assert await stores[1].claim(own.key, 0.2)
    assert not await stores[0].claim(own.key, 0.2)
    assert await own.token()
    assert len(issuer.requests) == 1


async def test_a_valid_token_is_used_while_the_authorization_server_fails(
    stores: list[SealedTokens], issuer: Issuer
) -> None:
    issuer.refuses = True
    own = source(stores[0], issuer)
    await stores[0].save(own.key, tokens("nearly", 30))
    assert await own.token() == "nearly"
    own.reject("nearly")
    with pytest.raises(ServerAway, match="invalid_grant"):
        await own.token()


async def test_a_person_is_asked_when_the_refresh_token_is_refused(
    stores: list[SealedTokens], issuer: Issuer
) -> None:
    own = source(stores[0], issuer, Grant.AUTHORIZATION_CODE, ANN)
    with pytest.raises(AuthorizationNeeded):
        await own.token()
    await stores[0].save(own.key, tokens("old", -1, "unknown"))
    with pytest.raises(AuthorizationNeeded):
        await own.token()
    assert await stores[0].load(own.key) is None


async def test_metadata_of_another_issuer_is_not_used(
    stores: list[SealedTokens], issuer: Issuer
) -> None:
    own = source(stores[0], issuer)
    issuer.address = "https://evil.example"
    with pytest.raises(ServerAway, match="names another issuer"):
        await own.token()


async def test_a_row_that_was_copied_or_sealed_elsewhere_counts_as_none(
    stores: list[SealedTokens], issuer: Issuer
) -> None:
    own = source(stores[0], issuer, Grant.AUTHORIZATION_CODE, ANN)
    await stores[0].save(own.key, tokens("anns", 3000))
    await stores[0].database.pool.execute("UPDATE mcp_tokens SET subject = 'bob'")
    of_bob = source(stores[0], issuer, Grant.AUTHORIZATION_CODE, Holder(Tenant("shop"), "bob"))
    assert await stores[0].load(of_bob.key) is None
    elsewhere = SealedTokens(stores[0].database, FernetSeal(b"o" * 32))
    await elsewhere.save(own.key, tokens("anns", 3000))
    assert await stores[0].load(own.key) is None


def test_metadata_is_looked_for_where_both_standards_put_it() -> None:
    assert metadata_urls("https://login.example/team") == [
        "https://login.example/.well-known/oauth-authorization-server/team",
        "https://login.example/.well-known/openid-configuration/team",
        "https://login.example/team/.well-known/openid-configuration",
    ]
