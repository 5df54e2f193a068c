"""The sender of a request, by its headers. A server without keys accepts only local programs.

A browser sends requests for every page that it shows. So a server without keys refuses host names that
aren't local (DNS rebinding) and pages that it hasn't served (CSRF). It also refuses ambiguous requests: a
header that comes twice, and a request target with a host of its own.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from app.domain.errors import Forbidden

_HOST = re.compile(r"(?P<name>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_SAME_SITE = frozenset({"same-origin", "none"})
"""`Sec-Fetch-Site` of requests from this server's pages, and of addresses that the user typed."""


@dataclass(frozen=True, slots=True)
class Sender:
    """The headers that identify the sender of a request, with all their values."""

    authorizations: Sequence[str] = ()
    hosts: Sequence[str] = ()
    origins: Sequence[str] = ()
    fetch_sites: Sequence[str] = ()
    names_host_in_target: bool = False
    """The request line has an absolute URL, as for a proxy."""


def require_local(sender: Sender) -> None:
    """Refuses senders other than local programs and pages that this server has served."""
    host = sender.hosts[0] if len(sender.hosts) == 1 else ""
    if sender.names_host_in_target or not _is_local(host):
        raise Forbidden(
            "host_not_allowed",
            "Without API keys this server takes only requests with a local host name, such as `Host: localhost`.",
        )
    own = (f"http://{host}".lower(), f"https://{host}".lower())
    has_other_origin = len(sender.origins) > 1 or not set(sender.origins) <= set(own)
    if has_other_origin or not set(sender.fetch_sites) <= _SAME_SITE:
        raise Forbidden(
            "origin_not_allowed",
            "Without API keys this server takes no requests from web pages. Configure API keys.",
        )


def is_loopback(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _is_local(host: str) -> bool:
    found = _HOST.fullmatch(host)
    return found is not None and is_loopback(found["name"].lower())
