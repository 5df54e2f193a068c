"""Secrets in foreign text are replaced, in each usual encoding."""

import base64
import json
import re
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from app.bootstrap.secrets import redactor_of
from app.domain.redaction import Redactor
from app.settings import Settings

SECRET = "s3cr/t+ké y=\"of\\acme'"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    "shown",
    [
        SECRET,
        quote(SECRET),
        quote(SECRET, safe=""),
        quote(SECRET, safe="").lower(),
        quote_plus(SECRET),
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        repr(SECRET),
        repr({"key": SECRET}),
    ],
)
def test_a_secret_is_replaced_in_every_encoding(shown: str) -> None:
    redacted = Redactor([SECRET])(f"before {shown} after")
    assert redacted.startswith("before ")
    assert redacted.endswith(" after")
    assert "[secret]" in redacted
    for part in ("acme", "s3cr", "cr%2", "cr/t"):
        assert part not in redacted


FORMS = [
    SECRET,
    json.dumps(SECRET)[1:-1],
    json.dumps(SECRET, ensure_ascii=False)[1:-1],
    repr(SECRET)[1:-1],
    quote(SECRET),
    quote(SECRET, safe=""),
    quote_plus(SECRET),
    re.sub("%..", lambda escape: escape[0].lower(), quote(SECRET, safe="")),
]


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_a_secret_is_replaced_completely(form: str) -> None:
    assert Redactor([SECRET])(f"<{form}>") == "<[secret]>"
    assert Redactor([f"  {SECRET}\n"])(f"<{form}>") == "<[secret]>"


@pytest.mark.parametrize(
    "value, is_secret",
    [
        ("abcde", False),
        ("abcdef", True),
        ("abcde ", False),
        ("ababab", False),
        ("ababac", True),
        ("Password", False),
        ("Password1", True),
    ],
)
def test_a_secret_has_six_characters_of_three_kinds_and_is_no_common_word(
    value: str, is_secret: bool
) -> None:
    assert Redactor([value])(f"<{value}>") == ("<[secret]>" if is_secret else f"<{value}>")


@pytest.mark.parametrize(
    "line, is_replaced", [("fifteen-letters", False), ("sixteen-letters!", True)]
)
def test_a_line_of_a_key_is_replaced_alone_when_it_is_long(line: str, is_replaced: bool) -> None:
    redacted = Redactor([f"{line}\nmore-of-the-same-key"])(f"<{line}>")
    assert redacted == ("<[secret]>" if is_replaced else f"<{line}>")


@pytest.mark.parametrize("length", range(6, 13))
@pytest.mark.parametrize("offset", range(3))
def test_base64_is_replaced_except_for_characters_shared_with_neighbours(
    length: int, offset: int
) -> None:
    secret = "s3cretsecret"[:length]
    shown = base64.b64encode(b"\0" * offset + secret.encode()).decode()
    # Each base64 character is six bits: these characters hold only bits of the secret.
    first, last = -(-offset * 8 // 6), (offset + length) * 8 // 6
    redacted = Redactor([secret])(shown)
    if last - first >= 8:
        assert redacted == f"{shown[:first]}[secret]{shown[last:]}"
    else:
        assert redacted == shown


def test_url_safe_base64_is_replaced_too() -> None:
    secret = "~~~???>>>abc"
    shown = base64.urlsafe_b64encode(secret.encode()).decode()
    assert {"-", "_"} & set(shown)
    assert Redactor([secret])(shown) == "[secret]"


@pytest.mark.parametrize("around", ["", "u:", "ab:", "abc:"])
@pytest.mark.parametrize("behind", ["", "x", "xy", "xyz"])
def test_base64_is_replaced_at_every_offset_of_the_secret(around: str, behind: str) -> None:
    secret = "a-key-of-sixteen"
    shown = encoded(f"{around}{secret}{behind}")
    redacted = Redactor([secret])(f"Authorization: Basic {shown}")
    assert redacted.count("[secret]") == 1
    left = redacted.removeprefix("Authorization: Basic ").replace("[secret]", "")
    assert len(left.rstrip("=")) <= len(encoded(around)) + len(encoded(behind)) + 1


@pytest.mark.parametrize(
    "trivial", ["", " ", "a", "12345", "      ", "-------", "aaaaaaaaaa", "postgres"]
)
def test_a_value_that_is_too_short_or_common_is_not_replaced(trivial: str) -> None:
    text = "postgres a 12345 ------- aaaaaaaaaa: the quick brown fox"
    assert Redactor([trivial])(text) is text


def test_text_without_a_secret_stays_the_same_object() -> None:
    text = "nothing to see here " * 100
    assert Redactor([SECRET, "another-secret"])(text) is text


def test_of_two_overlapping_secrets_the_longer_one_is_replaced() -> None:
    redacted = Redactor(["long-secret", "long-secret-and-more"])(
        "long-secret-and-more, long-secret"
    )
    assert redacted == "[secret], [secret]"


def test_each_long_line_of_a_key_is_replaced() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcw\n-----END KEY-----\n"
    assert "MIIE" not in Redactor([key])("  MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcw")


def test_the_password_of_any_url_is_replaced() -> None:
    redacted = Redactor([])("can't reach postgresql://ann:pw@db:5432/x nor https://example.com/a@b")
    assert redacted == "can't reach postgresql://ann:[secret]@db:5432/x nor https://example.com/a@b"


AGENTS = """
[models.gpt]
provider = "openai-compatible"
model = "any"
api_key_env = "KEY_OF_GPT"
headers = { "X-Api-Key" = "header-of-gpt", "X-Team" = "platform", Authorization = "Bearer token-of-gpt" }

[agents.far.endpoint]
backend = "a2a"
auth_env = "TOKEN_OF_FAR"

[[agents.near.plugins.some.deep]]
password_env = "PASSWORD_OF_PLUGIN"
"""


def test_every_secret_of_the_configuration_is_replaced(tmp_path: Path) -> None:
    agents = tmp_path / "agents.toml"
    agents.write_text(AGENTS)
    settings = Settings.model_validate(
        {
            "DATABASE_URL": "postgresql://ann:p%40ss-of-db@db/holdfast?sslpassword=ssl-of-db",
            "listen_url": "postgresql://ann@db/x?password=listen-pass",
            "NATS_URL": "nats://bob:pass-of-nats@a:4222, nats://token-of-nats@b:4222",
            "agents": agents,
            "api_key": "key-of-client",
            "stream_token_secret": "secret-of-stream-tokens",
            "stream_token_secret_previous": "secret-before-this-one",
        }
    )
    environ = {
        "KEY_OF_GPT": "value-of-gpt",
        "TOKEN_OF_FAR": "value-of-far",
        "PASSWORD_OF_PLUGIN": "value-of-plugin",
        "ANTHROPIC_API_KEY": "value-of-anthropic",
        "PGPASSWORD": "value-of-pg",
        "OTHER": "value-of-other",
    }
    redact = redactor_of(settings, environ)
    for secret in (
        "p%40ss-of-db",
        "p@ss-of-db",
        "ssl-of-db",
        "listen-pass",
        "pass-of-nats",
        "token-of-nats",
        "header-of-gpt",
        "token-of-gpt",
        "key-of-client",
        "secret-of-stream-tokens",
        "secret-before-this-one",
        *(value for name, value in environ.items() if name != "OTHER"),
    ):
        assert redact(f"<{secret}>") == "<[secret]>", secret
    assert redact("value-of-other platform holdfast") == "value-of-other platform holdfast"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "postgresql://postgres:postgres@localhost/postgres",
        "postgresql://team:team@db/app",
        "postgresql://ann:reports@db/reports",
        "not a url",
        "postgresql://ann@db/x",
    ],
)
def test_a_password_that_equals_a_name_is_not_replaced(url: str) -> None:
    settings = Settings.model_validate({"DATABASE_URL": url or None})
    text = "the team postgres wrote 9 reports about localhost: ann, app, not a url"
    assert redactor_of(settings, {})(text) is text


def test_an_unreadable_agents_file_gives_no_secrets(tmp_path: Path) -> None:
    broken = tmp_path / "agents.toml"
    broken.write_text("[[")
    for file in (broken, tmp_path / "missing.toml"):
        redactor_of(Settings.model_validate({"agents": file}), {})
