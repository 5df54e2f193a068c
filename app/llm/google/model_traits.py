"""What each of Google's models accepts. The API refuses a parameter that the model doesn't know."""

from functools import lru_cache

from msgspec import Struct

LEVELS = ("MINIMAL", "LOW", "MEDIUM", "HIGH")
"""How much a model thinks, from little to much."""
_ALL = frozenset(LEVELS)
_NOT_MINIMAL = _ALL - {"MINIMAL"}
_LEAST_OR_MOST = frozenset({"MINIMAL", "HIGH"})
_LEVELS_OF: tuple[tuple[str, frozenset[str]], ...] = (
    ("gemini-3.1-flash-lite-image", _LEAST_OR_MOST),
    ("gemini-3.1-flash-image", _LEAST_OR_MOST),
    ("gemini-3.1-pro-preview", _NOT_MINIMAL),
    ("gemini-3-pro-preview", frozenset({"LOW", "HIGH"})),
    ("gemini-3.7-flash", _NOT_MINIMAL),
    ("gemini-3.8-flash", _NOT_MINIMAL),
    ("gemini-4-argon", _NOT_MINIMAL),
)
_MEDIA_OF_RESULTS = frozenset(
    {"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"}
)


class GoogleTraits(Struct, frozen=True, kw_only=True):
    writes_images: bool
    takes_tools: bool
    validates_calls: bool
    """Whether the API can make calls fit the schemas of their tools."""
    combines_tools: bool
    """Whether a request may have tools of ours together with the provider's own, or with a schema for the answer."""
    media_of_results: frozenset[str]
    """The media types that may stand in the result of a call."""
    has_native_output: bool
    thinks: bool
    always_thinks: bool
    takes_levels: bool
    """Whether a word says how much it thinks; for other models a budget of tokens does."""
    levels: frozenset[str]


@lru_cache(maxsize=256)
def traits_of(model: str) -> GoogleTraits:
    """The traits of the model of this name. An unknown one is taken for a new one."""
    model = model.removeprefix("models/")
    is_2_5 = "gemini-2.5" in model
    is_older = "gemini-1" in model or ("gemini-2." in model and not is_2_5) or model == "gemini-pro"
    is_gemma = "gemma" in model
    is_new = not (is_2_5 or is_older or is_gemma)
    writes_images = "image" in model
    thinks = not (is_older or is_gemma or "gemini-2.5-flash-image" in model)
    return GoogleTraits(
        writes_images=writes_images,
        takes_tools=not writes_images,
        validates_calls=thinks and not writes_images,
        combines_tools=is_new,
        media_of_results=_MEDIA_OF_RESULTS if is_new else frozenset(),
        has_native_output=is_new or not writes_images,
        thinks=thinks,
        always_thinks=thinks and "pro" in model and "flash" not in model,
        takes_levels=is_new,
        levels=next((levels for name, levels in _LEVELS_OF if model.startswith(name)), _ALL),
    )
