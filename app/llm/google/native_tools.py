"""Tools that Google itself runs. A model has none unless its options name them."""

from typing import Any

from app.domain.errors import ConfigurationError

OPTION = "native_tools"
_TOOLS = {
    "web_search": "googleSearch",
    "web_fetch": "urlContext",
    "code_execution": "codeExecution",
}
"""The tools as the API names them."""


def native_tools_of(names: Any) -> list[dict[str, Any]]:
    """The tools with these names, in their order."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigurationError(f"options.{OPTION} must be a list of names")
    for name in names:
        if name not in _TOOLS:
            known = ", ".join(sorted(_TOOLS))
            raise ConfigurationError(f"options.{OPTION} names {name!r}; there are: {known}")
    return [{_TOOLS[name]: {}} for name in dict.fromkeys(names)]
