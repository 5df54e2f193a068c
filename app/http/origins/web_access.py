"""Origins and host names that the settings allow, besides those of the machine itself.

An origin is allowed to read responses (CORS). A server without keys takes requests of pages from these origins
only, and requests to these host names only.
"""

import re

from msgspec import Struct

from app.domain.errors import ConfigurationError
from app.http.origins.public_url import PublicUrl, load_public_url

ANY = "*"

_HOST = re.compile(r"(?P<name>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_ORIGIN = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>[a-z0-9._-]+|\[[0-9a-f:.]+\])(?P<port>:[0-9]{1,5})?"
)
_HOST_PATTERN = re.compile(r"(\*\.)?[a-z0-9-]+(\.[a-z0-9-]+)*|\[[0-9a-f:.]+\]")
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


class WebAccess(Struct, frozen=True):
    """What `HOLDFAST_CORS_ORIGINS`, `HOLDFAST_ALLOWED_HOSTS` and `HOLDFAST_PUBLIC_URL` allow."""

    origins: frozenset[str] = frozenset()
    """As browsers write them: in lower case, and without the scheme's default port."""
    allows_any_origin: bool = False
    hosts: frozenset[str] = frozenset()
    """Names in lower case, without a port. One that begins with `*.` matches all names below it."""
    public_url: PublicUrl | None = None

    @property
    def has_origins(self) -> bool:
        return self.allows_any_origin or bool(self.origins)

    def allows(self, origin: str) -> bool:
        """Whether pages of this origin may read responses."""
        return self.allows_any_origin or origin in self.origins

    def names_host_of(self, origin: str) -> bool:
        """Whether the origin's host is an allowed name of this server."""
        found = _ORIGIN.fullmatch(origin)
        return found is not None and self.has_host(found["host"])

    def has_host(self, host: str) -> bool:
        """Whether this `Host` header has an allowed name, with any port."""
        name = host_name(host)
        if not self.hosts or name is None:
            return False
        _, _, parent = name.partition(".")
        while parent:
            if f"*.{parent}" in self.hosts:
                return True
            _, _, parent = parent.partition(".")
        return name in self.hosts


def load_web_access(
    cors_origins: str | None, allowed_hosts: str | None, public_url: str | None = None
) -> WebAccess:
    """Read the settings; raises `ConfigurationError` for the first entry that is wrong."""
    origins = _entries(cors_origins)
    if ANY in origins and len(origins) > 1:
        raise ConfigurationError(
            "HOLDFAST_CORS_ORIGINS: * allows every origin. Remove it, or remove the others."
        )
    return WebAccess(
        origins=frozenset(_origin(one) for one in origins if one != ANY),
        allows_any_origin=ANY in origins,
        hosts=frozenset(_host(one) for one in _entries(allowed_hosts)),
        public_url=load_public_url(public_url),
    )


def host_name(host: str) -> str | None:
    """The name of a `Host` header in lower case, without the port; None if it is malformed."""
    found = _HOST.fullmatch(host)
    return None if found is None else found["name"].lower()


def _entries(text: str | None) -> list[str]:
    return [one.strip() for one in (text or "").split(",") if one.strip()]


def _origin(entry: str) -> str:
    found = _ORIGIN.fullmatch(entry.lower().removesuffix("/"))
    if found is None:
        raise ConfigurationError(
            f"HOLDFAST_CORS_ORIGINS: {entry} isn't an origin. Write scheme, host and port, such as "
            "https://app.example.com or http://localhost:3000, separated by commas."
        )
    port = found["port"] or ""
    if port == _DEFAULT_PORTS.get(found["scheme"]):
        port = ""
    return f"{found['scheme']}://{found['host']}{port}"


def _host(entry: str) -> str:
    if _HOST_PATTERN.fullmatch(entry.lower()) is None:
        raise ConfigurationError(
            f"HOLDFAST_ALLOWED_HOSTS: {entry} isn't a host name. Write names without scheme and port, such as "
            "holdfast.example.com or *.app.github.dev, separated by commas."
        )
    return entry.lower()
