"""The kinds of plugins that come with Holdfast, by the names that agents files use."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from app.plugins.kinds import PluginKind

_ALL: tuple[PluginKind[Any], ...] = ()

SHIPPED: Mapping[str, PluginKind[Any]] = MappingProxyType({kind.name: kind for kind in _ALL})
