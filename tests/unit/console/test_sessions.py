"""Session cookies: what signs them, in which requests they count, and where they may be set."""

from datetime import UTC, datetime, timedelta

import pytest

from app.domain.ids import Tenant
from app.domain.principals import Principal
from app.http.origins.public_url import load_public_url
from app.http.origins.senders import Sender
from app.http.origins.web_access import WebAccess
from app.http.sessions.cookies import cookie_name, session_values, set_cookie
from app.http.sessions.signer import SessionSigner
from app.http.stream_grants import StreamTokenSigner

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
SOON = NOW + timedelta(hours=1)
HERE = "127.0.0.1:8000"
ANYWHERE = WebAccess()
PUBLIC = WebAccess(public_url=load_public_url("https://example.com/agents"))


def signer(*secrets: bytes) -> SessionSigner:
    return SessionSigner(secrets or (b"first",))


def from_page(**more: object) -> Sender:
    """A request of a page of this server."""
    fields = {
        "hosts": [HERE],
        "origins": [f"http://{HERE}"],
        "fetch_sites": ["same-origin"],
        "cookies": ["other=1; holdfast-8000=value"],
    }
    return Sender(**{**fields, **more})  # type: ignore[arg-type]  # the cases name fields of Sender


def test_a_value_names_its_key_until_it_expires() -> None:
    value = signer().sign("key", SOON)
    assert signer().key_id(value, NOW) == "key"
    assert signer().key_id(value, SOON) is None


def test_a_previous_secret_is_accepted() -> None:
    assert signer(b"second", b"first").key_id(signer().sign("key", SOON), NOW) == "key"
    assert signer(b"second").key_id(signer().sign("key", SOON), NOW) is None


@pytest.mark.parametrize("value", ["", ".", "a", "a.b", "e30.e30", "é.é", "=.="])
def test_a_forged_value_names_no_key(value: str) -> None:
    assert signer().key_id(value, NOW) is None


def test_a_stream_token_is_no_session() -> None:
    ann = Principal(Tenant("acme"), "ann", frozenset())
    token = StreamTokenSigner([b"first"]).sign(ann, None, None, SOON)
    assert signer().key_id(token, NOW) is None


def test_the_cookie_counts_for_our_own_page() -> None:
    assert list(session_values(from_page(), ANYWHERE)) == ["value"]
    assert list(session_values(from_page(origins=[]), ANYWHERE)) == ["value"]


@pytest.mark.parametrize(
    "request_of_others",
    [
        {"fetch_sites": ["same-site"], "origins": ["http://127.0.0.1:9000"]},
        {"fetch_sites": ["cross-site"], "origins": ["https://evil.example"]},
        {"fetch_sites": ["same-origin"], "origins": ["https://evil.example"]},
        {"fetch_sites": ["same-origin"], "origins": ["http://127.0.0.1:9000"]},
        {"fetch_sites": ["same-origin", "cross-site"]},
        {"fetch_sites": []},
        {"fetch_sites": ["none"]},
        {"origins": [f"http://{HERE}", f"http://{HERE}"]},
        {"origins": ["null"]},
        {"hosts": [HERE, "evil.example"]},
        {"hosts": []},
    ],
    ids=str,
)
def test_the_cookie_does_not_count_for_requests_of_others(
    request_of_others: dict[str, object],
) -> None:
    assert list(session_values(from_page(**request_of_others), ANYWHERE)) == []


def test_a_typed_address_may_read_and_not_write() -> None:
    typed = {"fetch_sites": ["none"], "origins": []}
    assert list(session_values(from_page(**typed, is_read=True), ANYWHERE)) == ["value"]
    assert list(session_values(from_page(**typed), ANYWHERE)) == []


def test_a_cookie_that_comes_twice_does_not_count() -> None:
    twice = ["holdfast-8000=value; holdfast-8000=other"]
    assert list(session_values(from_page(cookies=twice), ANYWHERE)) == []


def test_a_cookie_of_another_port_does_not_count() -> None:
    assert list(session_values(from_page(cookies=["holdfast-9000=value"]), ANYWHERE)) == []


def test_behind_a_proxy_the_public_origin_counts() -> None:
    proxied = {"hosts": ["10.0.0.1:8000"], "origins": ["https://example.com"]}
    secure = ["__Host-holdfast=value"]
    assert list(session_values(from_page(**proxied, cookies=secure), PUBLIC)) == ["value"]
    assert list(session_values(from_page(**proxied, cookies=secure), ANYWHERE)) == []


@pytest.mark.parametrize(
    ("origin", "host", "access", "name"),
    [
        ("http://127.0.0.1:8000", HERE, ANYWHERE, "holdfast-8000"),
        ("http://localhost", "localhost", ANYWHERE, "holdfast-80"),
        ("http://[::1]:8000", "[::1]:8000", ANYWHERE, "holdfast-8000"),
        ("https://example.com", "example.com", ANYWHERE, "__Host-holdfast"),
        ("https://example.com", "10.0.0.1:8000", PUBLIC, "__Host-holdfast"),
        ("http://example.com", "example.com", ANYWHERE, None),
        ("http://127.0.0.1.example.com", "127.0.0.1.example.com", ANYWHERE, None),
    ],
)
def test_a_cookie_is_set_where_others_cannot_read_it_on_its_way(
    origin: str, host: str, access: WebAccess, name: str | None
) -> None:
    assert cookie_name(from_page(origins=[origin], hosts=[host]), access) == name


def test_scripts_and_other_sites_never_get_the_cookie() -> None:
    assert set_cookie("holdfast-8000", "v") == (
        "holdfast-8000=v; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict"
    )
    assert set_cookie("__Host-holdfast", "v").endswith("; Secure")
