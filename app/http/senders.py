"""Where a request comes from, by its headers; a server without keys takes local programs' only.

A browser sends requests for any page that it shows. So without keys a name that isn't local is refused
(DNS rebinding), and a page that this server hasn't served (CSRF). What could be read in two ways is
refused, too: a header that came twice, and a target that names a host of its own.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from app.domain.errors import Forbidden

_HOST = re.compile(r"(?P<name>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_SAME_SITE = frozenset({"same-origin", "none"})
"""What a browser says of its own pages' requests, and of an address that its user has typed."""


@dataclass(frozen=True, slots=True)
class Sender:
    """Headers that say who sends a request and from where, each as often as it came."""

    authorizations: Sequence[str] = ()
    hosts: Sequence[str] = ()
    origins: Sequence[str] = ()
    fetch_sites: Sequence[str] = ()
    names_host_in_target: bool = False
    """The request line has a whole URL, as for a proxy."""


def require_local(sender: Sender) -> None:
    """Refuses all but programs of this machine, and pages that this server has served."""
    host = sender.hosts[0] if len(sender.hosts) == 1 else ""
    if sender.names_host_in_target or not _is_local(host):
        raise Forbidden(
            "host_not_allowed",
            "Without API keys this server answers to one local name only, as `Host: localhost`.",
        )
    own = (f"http://{host}".lower(), f"https://{host}".lower())
    has_other_origin = len(sender.origins) > 1 or not set(sender.origins) <= set(own)
    if has_other_origin or not set(sender.fetch_sites) <= _SAME_SITE:
        raise Forbidden("origin_not_allowed", "Without API keys browsers' pages aren't let in.")


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
