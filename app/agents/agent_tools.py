"""The plugins of an agent, and all tools that it may call: its own, those of its delegates and of its plugins."""

from collections.abc import Mapping
from typing import Any

from app.builtin_plugins.builtin import builtin_plugins
from app.builtin_plugins.kinds import PluginKind
from app.domain.agents.mcp_references import MCP_SEPARATOR
from app.domain.agents.specs import AgentSpec
from app.domain.ids import AgentId
from app.runtime.plugins import PluginSet
from app.runtime.ports.tools import Tool
from app.tools.background import BACKGROUND_TOOLS
from app.tools.memory import MEMORY_TOOLS
from app.tools.skills.plugin import skills_plugin
from app.tools.skills.skill import Skill
from app.tools.subagent import SubagentTool


def plugins_of(
    spec: AgentSpec, kinds: Mapping[str, PluginKind[Any]], skills: Mapping[str, Skill]
) -> PluginSet:
    """Build the agent's plugins. Their tables were checked before."""
    named = [kinds[name].plugin_for(spec, table) for name, table in spec.plugins.items()]
    of_skills = [skills_plugin(spec, skills)] if spec.skills else []
    return PluginSet([*builtin_plugins(spec), *of_skills, *named])


def tools_of(
    spec: AgentSpec,
    plugins: PluginSet,
    *,
    tools: Mapping[str, Tool],
    agents: Mapping[AgentId, AgentSpec],
) -> dict[str, Tool]:
    """The tools in the order of the spec, then those of plugins. Of two with one name the later one counts."""
    # Tools of MCP servers are added when a run is executed.
    found = {name: tools[name] for name in spec.tools if MCP_SEPARATOR not in name}
    delegates = [SubagentTool(agents[name]) for name in spec.delegates]
    found |= {tool.descriptor.name: tool for tool in delegates}
    if plugins.memory is not None:
        found |= MEMORY_TOOLS
    for plugin in plugins.plugins:
        found |= {tool.descriptor.name: tool for tool in plugin.tools}
    return {**BACKGROUND_TOOLS, **found} if spec.background else found
