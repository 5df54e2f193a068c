"""Where a model is, and with which settings it is asked."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEndpoint:
    """The address and the settings of a model.

    `timeout` limits the time until the answer begins, `idle_timeout` the time between its pieces.
    """

    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 60.0
    idle_timeout: float = 60.0
    options: Mapping[str, Any] = field(default_factory=dict)
