"""Checks the agents that an agent hands off or delegates to."""

from collections.abc import Collection, Mapping

from app.agents.config_errors import ConfigErrors
from app.agents.endpoints import EndpointCatalog
from app.agents.file_schema import AgentEntry, EndpointEntry
from app.domain.agents.capabilities import unsupported_delegate_features, unsupported_message
from app.domain.agents.endpoints import Endpoint
from app.domain.children.child_runs import delegate_needs, delegate_tool_name
from app.domain.ids import AgentId
from app.domain.suggestions import did_you_mean


def check_agents(
    key: str, agent: str, named: list[str], known: Collection[str], problems: ConfigErrors
) -> None:
    """Other agents that this one hands off or delegates to."""
    check_duplicates(key, named, problems)
    for position, name in enumerate(named):
        if name == agent:
            problems.add(f"{key}[{position}]", "is the agent itself; remove it")
        elif name not in known:
            problems.add(
                f"{key}[{position}]",
                f"there is no agent {name!r}, {did_you_mean(name, known)}; add it or remove it here",
            )


def check_handoffs(
    key: str, entry: AgentEntry, agents: Mapping[str, AgentEntry | None], problems: ConfigErrors
) -> None:
    """A run that has begun here can't continue on a remote server."""
    for position, name in enumerate(entry.handoffs):
        target = agents.get(name)
        if target is not None and target.endpoint is not None:
            problems.add(
                f"{key}[{position}]",
                f"agent {name!r} is executed by a remote server and can't take over a run;"
                " name it in delegates instead",
            )


def check_delegates(
    key: str,
    entry: AgentEntry,
    agents: Mapping[str, AgentEntry | None],
    endpoints: EndpointCatalog,
    problems: ConfigErrors,
) -> None:
    """Check what the backends of remote delegates can do."""
    for position, name in enumerate(entry.delegates):
        delegate = agents.get(name)
        if delegate is None or delegate.endpoint is None:
            continue
        endpoint = endpoint_of(delegate.endpoint)
        if endpoints.option_errors(endpoint):
            continue
        in_background = delegate_tool_name(AgentId(name)) in entry.background
        needs = delegate_needs(in_background=in_background)
        lacking = unsupported_delegate_features(endpoints.capabilities(endpoint), needs)
        if lacking:
            remedy = "take it out of background" if in_background else "remove it here"
            problems.add(
                f"{key}.delegates[{position}]",
                f"{unsupported_message(AgentId(name), lacking)}; {remedy}",
            )


def check_circles(agents: Mapping[str, AgentEntry | None], problems: ConfigErrors) -> None:
    """Refuse delegates in a circle: no agent can be called by one that it waits for."""
    reported: set[frozenset[str]] = set()

    def follow(path: tuple[str, ...]) -> None:
        entry = agents.get(path[-1])
        for position, name in enumerate(() if entry is None else entry.delegates):
            if name in path and name != path[-1]:
                circle = path[path.index(name) :]
                if frozenset(circle) not in reported:
                    reported.add(frozenset(circle))
                    problems.add(
                        f"agents.{path[-1]}.delegates[{position}]",
                        f"{' → '.join((*circle, name))} is a circle, and an agent can't be called while it"
                        " waits; remove one of these delegates",
                    )
            elif name not in seen:
                seen.add(name)
                follow((*path, name))

    for agent in agents:
        seen = {agent}
        follow((agent,))


def check_duplicates(key: str, names: list[str], problems: ConfigErrors) -> None:
    for position, name in enumerate(names):
        if name in names[:position]:
            problems.add(f"{key}[{position}]", f"{name!r} is listed twice; remove one of them")


def endpoint_of(entry: EndpointEntry) -> Endpoint:
    return Endpoint(**entry.model_dump(exclude={"options"}), options=entry.options)
