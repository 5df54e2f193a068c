"""Authentication: API keys, and the local principal of a server without keys."""

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
from app.http.origins.senders import Sender, is_loopback, require_host, require_local
from app.http.origins.web_access import WebAccess

_APPROVER_SCOPE = re.compile(r"approve:[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")
LOCAL_PRINCIPAL = Principal(DEFAULT_TENANT, "local", frozenset(Scope))


def _scope(text: str) -> str:
    """Accepts the built-in scopes and `approve:…`, and refuses misspelt ones."""
    if text in set(Scope) or _APPROVER_SCOPE.fullmatch(text):
        return text
    builtin = ", ".join(Scope)
    raise ValueError(f"must be one of {builtin}, or approve:… for approvers of some tools")


class ApiKey(BaseModel):
    """An entry of the keys file. It holds the SHA-256 of the key, never the key."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    subject: str = Field(min_length=1, max_length=200)
    tenant: str = Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    scopes: frozenset[Annotated[str, AfterValidator(_scope)]]
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


_Keys = TypeAdapter(list[ApiKey])


class Authenticator:
    """Maps requests to principals. Without any keys, all requests have one local principal. Then it accepts
    only programs on this machine, and the pages and host names that the settings allow."""

    def __init__(self, keys: Mapping[str, Principal], web_access: WebAccess) -> None:
        self._keys = keys
        self._by_id = {_key_id(sha256): principal for sha256, principal in keys.items()}
        self.web_access = web_access

    @property
    def is_keyless(self) -> bool:
        return not self._keys

    def principal(self, sender: Sender, session_key_id: str | None = None) -> Principal:
        """The principal of a request; raises `Unauthenticated`.

        `session_key_id` is from the console's session cookie. It counts only without an API key.
        """
        if self.is_keyless:
            require_local(sender, self.web_access)
            return LOCAL_PRINCIPAL
        if self.web_access.hosts:
            require_host(sender, self.web_access)
        if session_key_id is not None and not sender.authorizations:
            return self._of_session(session_key_id)
        # With several Authorization headers, a proxy may have checked another one.
        authorization = sender.authorizations[0] if len(sender.authorizations) == 1 else ""
        scheme, _, key = authorization.partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise Unauthenticated(
                "unauthenticated", "Send your API key as `Authorization: Bearer <key>`."
            )
        return self._keys[self._sha256(key)]

    def key_id(self, key: str) -> str:
        """The id of an API key, for sessions; raises `Unauthenticated` if the key is unknown."""
        return _key_id(self._sha256(key))

    def _sha256(self, key: str) -> str:
        sha256 = hashlib.sha256(key.strip().encode()).hexdigest()
        if sha256 not in self._keys:
            raise Unauthenticated(
                "unauthenticated",
                "This API key is unknown. Check it for typos, or ask for a new one.",
            )
        return sha256

    def _of_session(self, key_id: str) -> Principal:
        """The key is looked up on every request, so that removing it ends its sessions."""
        found = self._by_id.get(key_id)
        if found is None:
            raise Unauthenticated(
                "unauthenticated", "The API key of this session was removed. Sign in with another."
            )
        return found


def _key_id(sha256: str) -> str:
    """An id that shows nothing of the key, for session cookies."""
    return hashlib.sha256(f"key of a session: {sha256}".encode()).hexdigest()[:32]


def load_authenticator(
    keys_file: Path | None, keys_json: str | None, web_access: WebAccess = WebAccess()
) -> Authenticator:
    """Read the keys of both settings; raises `ConfigurationError` for the first one that is wrong."""
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
    if web_access.allows_any_origin and not principals:
        raise ConfigurationError(
            "HOLDFAST_CORS_ORIGINS is *, which needs API keys. Without them, every page that your browser shows "
            "could start and approve runs. Name the origins, or set HOLDFAST_API_KEYS_FILE."
        )
    return Authenticator(principals, web_access)


def require_safe_address(host: str, authenticator: Authenticator) -> None:
    """Refuses to listen on other addresses than loopback without API keys."""
    if authenticator.is_keyless and not is_loopback(host):
        raise ConfigurationError(
            f"Without API keys, every client that reaches {host} could start and approve runs. Set "
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
