"""The address by which browsers reach this server, from `HOLDFAST_PUBLIC_URL`."""

import re

from msgspec import Struct

from app.domain.errors import ConfigurationError

_URL = re.compile(
    r"(?P<origin>https?://(?:[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?)(?P<path>(?:/[\w.~-]+)*)/?",
    re.IGNORECASE | re.ASCII,
)


class PublicUrl(Struct, frozen=True):
    origin: str
    """As browsers write it: in lower case, and without the scheme's default port."""
    prefix: str
    """The path below which a proxy shows this server; empty, or it begins with a slash."""

    def __str__(self) -> str:
        return self.origin + self.prefix


def load_public_url(text: str | None) -> PublicUrl | None:
    if text is None:
        return None
    found = _URL.fullmatch(text)
    if found is None:
        raise ConfigurationError(
            f"HOLDFAST_PUBLIC_URL: {text} isn't the address of a server. Write scheme, host and perhaps a path, "
            "such as https://holdfast.example.com or https://example.com/agents."
        )
    origin = found["origin"].lower()
    for default in (("http://", ":80"), ("https://", ":443")):
        if origin.startswith(default[0]):
            origin = origin.removesuffix(default[1])
    return PublicUrl(origin, found["path"])
