"""The plugins that come with Holdfast: kinds that agents files may name, and those of every agent."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from app.builtin_plugins import context_window, memory, permission, stop_conditions
from app.builtin_plugins.handoff import handoff_plugin
from app.builtin_plugins.kinds import PluginKind
from app.builtin_plugins.permission import approval_plugin
from app.domain.agents.specs import AgentSpec
from app.runtime.plugins import PERMISSION, Plugin

_ALL: tuple[PluginKind[Any], ...] = (
    stop_conditions.KIND,
    context_window.KIND,
    permission.KIND,
    memory.KIND,
)

BUILTIN_KINDS: Mapping[str, PluginKind[Any]] = MappingProxyType({kind.name: kind for kind in _ALL})


def builtin_plugins(spec: AgentSpec) -> list[Plugin]:
    """The plugins that follow from an agent's spec. They come before the plugins that the spec lists."""
    plugins = [handoff_plugin(spec)] if spec.handoffs else []
    if spec.approval and PERMISSION not in spec.plugins:
        plugins.append(approval_plugin(spec))
    return plugins
