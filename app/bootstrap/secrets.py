"""The secrets that the configuration names, for the one redactor of a process."""

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
"""How keys of the agents file end that name the variable of a secret."""
_SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)


def redactor_of(settings: Settings, environ: Mapping[str, str]) -> Redactor:
    """Replaces what the settings, the agents file and well-known variables hold."""
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
    """The agents file as it is written. One that can't be read is reported elsewhere."""
    if agents is None:
        return {}
    try:
        return tomllib.loads(agents.read_text())
    except (OSError, ValueError):
        return {}


def _variables_in(value: Any) -> Iterator[str]:
    """All variables that the file names for secrets, at any depth."""
    for key, item in _entries(value):
        if key.endswith(_NAMES_VARIABLE) and isinstance(item, str):
            yield item


def _headers_in(value: Any) -> Iterator[str]:
    """Headers of models that carry a secret, with and without their scheme."""
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
    """Its passwords as they are written and as they are meant. One that equals a name is none."""
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
    """Its password; a user without a password is a token."""
    user, password, _ = _parts(url)
    secret = password or user
    yield secret
    yield unquote(secret)


def _parts(url: str) -> tuple[str, str, str]:
    """User, password and what stands behind `@`, also of a URL that can't be parsed."""
    credentials, _, place = url.partition("://")[2].rpartition("@")
    user, _, password = credentials.partition(":")
    return user, password, place
