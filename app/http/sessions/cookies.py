"""Names and attributes of session cookies, and the requests in which they count."""

from collections.abc import Iterator, Sequence

from app.http.origins.senders import Sender, is_loopback, is_of_own_page_only
from app.http.origins.web_access import WebAccess, host_name

SESSION_SECONDS = 12 * 3600
_SECURE = "__Host-holdfast"
"""Browsers accept this name only with `Secure`, for this host and the whole site."""


def session_values(sender: Sender, access: WebAccess) -> Iterator[str]:
    """The session cookies of a request, if this server's own page sent it.

    Other pages can make a browser send requests, and `SameSite` counts all ports of a host as one site.
    """
    if is_of_own_page_only(sender, access):
        for name in _names(sender.hosts):
            found = [value for key, value in _cookies(sender.cookies) if key == name]
            if len(found) == 1:
                yield found[0]


def cookie_name(sender: Sender, access: WebAccess) -> str | None:
    """The name of the cookie for this sender; None where a cookie would travel without TLS."""
    origin = access.public_url.origin if access.public_url else "".join(sender.origins)
    if origin.startswith("https://"):
        return _SECURE
    host = "".join(sender.hosts)
    return _of_port(host) if is_loopback(host_name(host) or "") else None


def set_cookie(name: str, value: str, seconds: int = SESSION_SECONDS) -> str:
    """The header `Set-Cookie`. With 0 seconds the browser forgets the cookie."""
    secure = "; Secure" if name == _SECURE else ""
    return f"{name}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"


def _names(hosts: Sequence[str]) -> Sequence[str]:
    return (_SECURE, _of_port(hosts[0])) if len(hosts) == 1 else ()


def _of_port(host: str) -> str:
    """Browsers send cookies to all ports of a host, so the name has the port."""
    _, colon, port = host.rpartition(":")
    return f"holdfast-{port if colon and port.isdigit() else 80}"


def _cookies(headers: Sequence[str]) -> Iterator[tuple[str, str]]:
    for header in headers:
        for pair in header.split(";"):
            name, _, value = pair.strip().partition("=")
            yield name, value
