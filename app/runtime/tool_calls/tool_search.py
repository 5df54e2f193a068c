"""Calls of the search tool, and of tools that the model has not seen: both are answered by the gate."""

from app.domain.json_values import as_object
from app.domain.tools.tool_calls import CallState, ToolResult
from app.runtime.active_run import ActiveRun
from app.runtime.inference.shown_tools import offered_tools
from app.runtime.state import Change
from app.runtime.tool_search.revealed_tools import REVEALED_TOOLS, newly_revealed


def search_answer(run: ActiveRun, state: CallState) -> tuple[ToolResult, Change] | None:
    """The result of a call of the search tool, with the tools that it reveals; None for other calls."""
    search = run.agent.tool_search
    if search is None or state.call.name != search.name:
        return None
    allowed = offered_tools(search.deferred.values(), run.tool_requests)
    found = search.found(as_object(state.effective_arguments) or {}, allowed)
    before = run.state.snapshot.get(REVEALED_TOOLS)
    new = newly_revealed(before, [tool.name for tool in found])
    return search.result(found, [*before, *new]), Change(REVEALED_TOOLS, new)


def answer_to_unshown_call(run: ActiveRun, state: CallState) -> tuple[ToolResult, Change] | None:
    """The error of a call whose tool the model hasn't seen, which reveals the tool; None if it has."""
    search, name = run.agent.tool_search, state.call.name
    if search is None or name not in search.deferred:
        return None
    before = run.state.snapshot.get(REVEALED_TOOLS)
    if name in before:
        return None
    is_allowed = offered_tools([search.deferred[name]], run.tool_requests)
    new = newly_revealed(before, [name]) if is_allowed else []
    remedy = (
        "Its description is shown from your next step on: call it again with arguments that fit."
        if new
        else f"It can't be shown. Use the tools that you see, or find another one with {search.name}."
    )
    message = f"The tool '{name}' was not shown to you, so this call was not run. {remedy}"
    return ToolResult.error(name, message, may_be_retried=False), Change(REVEALED_TOOLS, new)
