"""The kinds of plugins that come with Holdfast, by the names that agents files use."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from app.plugins.context_window import CONTEXT_WINDOW
from app.plugins.kinds import PluginKind

_ALL: tuple[PluginKind[Any], ...] = (CONTEXT_WINDOW,)

SHIPPED: Mapping[str, PluginKind[Any]] = MappingProxyType({kind.name: kind for kind in _ALL})
