"""What the tables of an agents file share."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from app.domain.rules.globs import BadGlob, Glob

Name = Annotated[str, Field(min_length=1)]


def _glob(text: str) -> str:
    try:
        Glob(text)
    except BadGlob as error:
        raise ValueError(str(error)) from error
    return text


GlobText = Annotated[Name, AfterValidator(_glob)]


class ConfigEntry(BaseModel):
    """Unknown keys are refused, so that no setting is silently ignored."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


def bare_address(url: str) -> str:
    """Only an address: events and the state of runs show it."""
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not have a password in it; auth_env names the variable of a token")
    if parts.query or parts.fragment or not url.isprintable() or " " in url:
        raise ValueError("must be an address without spaces, query or fragment")
    if parts.port == 0:
        raise ValueError("must have a port from 1 to 65535")
    return url
