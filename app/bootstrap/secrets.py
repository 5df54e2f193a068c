"""Collects the secrets that the configuration names, for the redactor of the process."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

from app.domain.redaction import Redactor
from app.llm.catalog import KEY_VARIABLES
from app.settings import Settings

_USUAL_VARIABLES = ("PGPASSWORD", *KEY_VARIABLES)
_NAMES_VARIABLE = "_env"
"""The suffix of keys in the agents file that name the environment variable of a secret."""
_NAMES_VARIABLES = "env_from"
"""The key of an MCP server that lists the variables of its program."""
_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)


def redactor_of(settings: Settings, environ: Mapping[str, str]) -> Redactor:
    """A redactor for the secrets of the settings, the agents file and well-known variables."""
    return Redactor(_secrets(settings, environ))


def _secrets(settings: Settings, environ: Mapping[str, str]) -> Iterator[str]:
    for value in (
        settings.api_key,
        settings.stream_token_secret,
        settings.stream_token_secret_previous,
    ):
        if value is not None:
            yield value
    for url in (settings.database_url, settings.listen_url):
        yield from _of_database(url or "")
    for url in (settings.nats_url or "").split(","):
        yield from _of_nats(url.strip())
    table = _table_of(settings.agents)
    for name in (*_USUAL_VARIABLES, *_variables_in(table)):
        yield environ.get(name, "")
    yield from _headers_in(table)


def _table_of(agents: Path | None) -> Mapping[str, Any]:
    """The parsed agents file; empty if it can't be read, which loading the agents reports."""
    if agents is None:
        return {}
    try:
        return tomllib.loads(agents.read_text())
    except (OSError, ValueError):
        return {}


def _variables_in(value: Any) -> Iterator[str]:
    """The variables that the file names for secrets, at any depth."""
    for key, item in _entries(value):
        if key.endswith(_NAMES_VARIABLE) and isinstance(item, str):
            yield item
        if key == _NAMES_VARIABLES and isinstance(item, list):
            yield from (each for each in item if isinstance(each, str))


def _headers_in(value: Any) -> Iterator[str]:
    """The values of models' secret headers, with and without their scheme."""
    for key, item in _entries(value):
        if key == "headers" and isinstance(item, Mapping):
            for name, header in item.items():
                if isinstance(header, str) and _SECRET_HEADER.search(name):
                    yield header
                    yield header.rpartition(" ")[2]


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield key, item
            yield from _entries(item)
    elif isinstance(value, list):
        for item in value:
            yield from _entries(item)


def _of_database(url: str) -> Iterator[str]:
    """The passwords of a database URL, as written and decoded. A value that is also a user or database name
    is left out."""
    query = parse_qs(url.partition("?")[2])
    passwords = [*query.get("password", ()), *query.get("sslpassword", ())]
    names: set[str] = set()
    for address in (url, url.partition("?")[0]):
        user, password, place = _parts(address)
        passwords.append(password)
        names |= {user, place.partition("/")[2].partition("?")[0]}
    for value in passwords:
        if value not in names:
            yield value
            yield unquote(value)


def _of_nats(url: str) -> Iterator[str]:
    """The password of a NATS URL; a user without a password is a token."""
    user, password, _ = _parts(url)
    secret = password or user
    yield secret
    yield unquote(secret)


def _parts(url: str) -> tuple[str, str, str]:
    """The user, the password and the rest after `@`, also of a URL that can't be parsed."""
    credentials, _, place = url.partition("://")[2].rpartition("@")
    user, _, password = credentials.partition(":")
    return user, password, place
