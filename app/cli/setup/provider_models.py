"""Whether a model's provider knows the model's name, by the provider's list of models."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import httpx2
from msgspec import Struct

from app.llm.catalog import api_key_of
from app.llm.specs import BASE_URLS, OPENAI_BASE_URL, OPENAI_COMPATIBLE, ModelSpec

_TIMEOUT_SECONDS = 5.0
_REFUSED = frozenset({401, 403})


class LookUp(Struct, frozen=True):
    """`problem` is a sentence if the provider refuses the key or lacks the model, and None otherwise."""

    remark: str
    problem: str | None = None


def look_up(spec: ModelSpec, environ: Mapping[str, str]) -> LookUp:
    """Ask the provider. One that can't be asked is no problem: it may be reached from the server only."""
    request = _request(spec, api_key_of(spec, environ))
    if request is None:
        return LookUp(spec.model or "plays a script")
    try:
        with httpx2.Client(timeout=_TIMEOUT_SECONDS) as client:
            response = client.send(request)
        names = _names(response.json()) if response.is_success else []
    except (httpx2.HTTPError, ValueError, UnicodeError) as error:
        return LookUp(
            f"{spec.model}; its provider wasn't asked: {str(error) or type(error).__name__}"
        )
    if response.status_code in _REFUSED:
        return LookUp("", f"its provider refuses the API key ({response.status_code})")
    if not names:
        return LookUp(f"{spec.model}; its provider has no list of models")
    if spec.model in names:
        return LookUp(f"{spec.model}, which its provider has")
    close = get_close_matches(spec.model, names, n=1)
    meant = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(sorted(names)[:10])}"
    return LookUp("", f"its provider has no model {spec.model!r}; {meant}")


def _request(spec: ModelSpec, key: str | None) -> httpx2.Request | None:
    """The request for the list; None for a provider that has none, or whose list isn't known."""
    base = (spec.base_url or BASE_URLS.get(spec.provider, OPENAI_BASE_URL)).rstrip("/")
    if spec.provider in OPENAI_COMPATIBLE:
        return _get(f"{base}/models", spec, {"Authorization": f"Bearer {key}"} if key else {})
    if spec.provider == "anthropic":
        headers = {"x-api-key": key or "", "anthropic-version": "2023-06-01"}
        return _get(f"{base}/v1/models?limit=1000", spec, headers)
    if spec.provider == "google":
        return _get(f"{base}/v1beta/models?pageSize=1000", spec, {"x-goog-api-key": key or ""})
    return None


def _get(url: str, spec: ModelSpec, headers: Mapping[str, str]) -> httpx2.Request:
    return httpx2.Request("GET", url, headers={**headers, **spec.headers})


def _names(body: Any) -> list[str]:
    """The names in a list of models, for which Google uses another key and a prefix."""
    items = (body.get("data") or body.get("models") or []) if isinstance(body, dict) else []
    found = [one.get("id") or one.get("name") for one in items if isinstance(one, dict)]
    return [name.removeprefix("models/") for name in found if isinstance(name, str)]
