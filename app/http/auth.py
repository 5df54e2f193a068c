"""Who is asking: API keys, and the one principal of a server without keys."""

import hashlib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from app.domain.errors import ConfigurationError, Unauthenticated
from app.domain.ids import Tenant
from app.domain.principals import DEFAULT_TENANT, Principal, Scope
from app.http.senders import Sender, is_loopback, require_local

_OWN_SCOPE = re.compile(r"approve:[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")
LOCAL_PRINCIPAL = Principal(DEFAULT_TENANT, "local", frozenset(Scope))


def _scope(text: str) -> str:
    """One of ours, or one of an installation's own for its approvers: a misspelt one must not pass."""
    if text in set(Scope) or _OWN_SCOPE.fullmatch(text):
        return text
    ours = ", ".join(Scope)
    raise ValueError(f"must be one of {ours}, or approve:… for approvers of some tools")


class ApiKey(BaseModel):
    """One key of the keys file. The key itself is nowhere: only its SHA-256."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    subject: str = Field(min_length=1, max_length=200)
    tenant: str = Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    scopes: frozenset[Annotated[str, AfterValidator(_scope)]]
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


_Keys = TypeAdapter(list[ApiKey])


class Authenticator:
    """Knows the keys. Without any, it lets in programs of this machine only, as one local principal."""

    def __init__(self, keys: Mapping[str, Principal]) -> None:
        self._keys = keys

    @property
    def is_keyless(self) -> bool:
        return not self._keys

    def principal(self, sender: Sender) -> Principal:
        """Whose request this is."""
        if self.is_keyless:
            require_local(sender)
            return LOCAL_PRINCIPAL
        # With several, a proxy may have checked another one than we would.
        authorization = sender.authorizations[0] if len(sender.authorizations) == 1 else ""
        scheme, _, key = authorization.partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise Unauthenticated(
                "unauthenticated", "Send your API key as `Authorization: Bearer <key>`."
            )
        found = self._keys.get(hashlib.sha256(key.strip().encode()).hexdigest())
        if found is None:
            raise Unauthenticated("unauthenticated", "This API key isn't known.")
        return found


def load_authenticator(keys_file: Path | None, keys_json: str | None) -> Authenticator:
    """Read the keys from wherever the settings say, all of them or one error."""
    keys: list[ApiKey] = []
    if keys_file is not None:
        keys += _from_file(keys_file)
    if keys_json is not None:
        try:
            keys += _Keys.validate_json(keys_json)
        except ValidationError as error:
            raise ConfigurationError(f"HOLDFAST_API_KEYS: {_first(error)}") from error
    principals = {
        key.sha256: Principal(Tenant(key.tenant), key.subject, key.scopes) for key in keys
    }
    if len(principals) < len(keys):
        raise ConfigurationError("Two API keys have the same sha256: each key needs its own.")
    return Authenticator(principals)


def require_safe_address(host: str, authenticator: Authenticator) -> None:
    """An open port without keys is refused."""
    if authenticator.is_keyless and not is_loopback(host):
        raise ConfigurationError(
            f"Without API keys anybody who reaches {host} could start and approve runs. Set "
            "HOLDFAST_API_KEYS_FILE, or listen on 127.0.0.1."
        )


def _from_file(path: Path) -> list[ApiKey]:
    try:
        raw = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path} isn't valid TOML: {error}") from error
    try:
        return _Keys.validate_python(raw.get("keys", []))
    except ValidationError as error:
        raise ConfigurationError(f"{path}: keys.{_first(error)}") from error


def _first(error: ValidationError) -> str:
    one = error.errors(include_input=False)[0]
    return f"{'.'.join(map(str, one['loc']))}: {one['msg']}"
