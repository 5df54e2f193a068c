"""The sender of a request, by its headers. A server without keys accepts only local programs.

A browser sends requests for every page that it shows. So a server without keys refuses host names that
aren't local (DNS rebinding) and pages that it hasn't served (CSRF), unless a setting names them. It also
refuses ambiguous requests: a header that comes twice, and a request target with a host of its own.
"""

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import ip_address

from msgspec import Struct

from app.domain.errors import Forbidden
from app.http.origins.web_access import WebAccess, host_name

_SAME_SITE = frozenset({"same-origin", "none"})
"""`Sec-Fetch-Site` of requests from this server's pages, and of addresses that the user typed."""


class Sender(Struct, frozen=True):
    """The headers that identify the sender of a request, with all their values."""

    authorizations: Sequence[str] = ()
    hosts: Sequence[str] = ()
    origins: Sequence[str] = ()
    fetch_sites: Sequence[str] = ()
    names_host_in_target: bool = False
    """The request line has an absolute URL, as for a proxy."""
    cookies: Sequence[str] = ()
    is_read: bool = False
    """The method is GET or HEAD."""


def require_local(sender: Sender, access: WebAccess) -> None:
    """Refuses senders other than local programs, pages that this server has served, and those that the
    settings name."""
    require_host(sender, access)
    if not (_is_of_allowed_origin(sender, access) or _is_of_own_page(sender, access)):
        raise Forbidden(
            "origin_not_allowed",
            "Without API keys this server takes no requests from pages of other origins. Name the page's origin "
            "in HOLDFAST_CORS_ORIGINS, or configure API keys.",
        )


def require_host(sender: Sender, access: WebAccess) -> None:
    """Refuses a `Host` that is neither local nor one that the settings name."""
    host = sender.hosts[0] if len(sender.hosts) == 1 else ""
    if sender.names_host_in_target or not (_is_local(host) or access.has_host(host)):
        raise Forbidden(
            "host_not_allowed",
            "This server takes only requests with a local host name, such as `Host: localhost`. If it is also "
            "reached by another name, name that in HOLDFAST_ALLOWED_HOSTS.",
        )


def _is_of_allowed_origin(sender: Sender, access: WebAccess) -> bool:
    return len(sender.origins) == 1 and sender.origins[0] in access.origins


def _is_of_own_page(sender: Sender, access: WebAccess) -> bool:
    """Whether a program sent it, or a page that this server has served."""
    if len(sender.origins) > 1 or not set(sender.fetch_sites) <= _SAME_SITE:
        return False
    if not sender.origins:
        return True
    [origin], [host] = sender.origins, sender.hosts
    if origin in (f"http://{host}".lower(), f"https://{host}".lower()):
        return True
    # A proxy that forwards a port changes `Host`, and the browser has compared the origins.
    return list(sender.fetch_sites) == ["same-origin"] and access.names_host_of(origin)


def is_of_own_page_only(sender: Sender, access: WebAccess) -> bool:
    """Whether a page that this server has served sent it. Programs don't count: a cookie is for browsers.

    Browsers say `same-site` for pages of other ports and subdomains, and `none` for a typed address.
    """
    allowed = _SAME_SITE if sender.is_read else {"same-origin"}
    if len(sender.fetch_sites) != 1 or sender.fetch_sites[0] not in allowed:
        return False
    if not sender.origins:
        return True
    public = access.public_url
    return (public is not None and list(sender.origins) == [public.origin]) or (
        len(sender.hosts) == 1 and _is_of_own_page(sender, access)
    )


def is_loopback(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=64)
def _is_local(host: str) -> bool:
    name = host_name(host)
    return name is not None and is_loopback(name)
