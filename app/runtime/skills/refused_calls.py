"""Calls that the skill in use doesn't allow are answered by the gate. They don't run, and no person is asked."""

from app.domain.tools.tool_calls import CallState, ToolResult
from app.runtime.active_run import ActiveRun
from app.runtime.skills.skill_in_use import skill_in_use


def answer_to_call_beside_skill(run: ActiveRun, state: CallState) -> ToolResult | None:
    """The error of a call that the skill in use doesn't allow; None for other calls."""
    skill, name = skill_in_use(run.agent.spec, run.state.snapshot), state.call.name
    search = run.agent.tool_search
    if skill is None or skill.allows(name) or name not in run.agent.tools:
        return None
    if search is not None and name == search.name:
        return None
    allowed = ", ".join(skill.allowed_tools or ())
    message = (
        f"The skill '{skill.name}' is in use, and allows only: {allowed}. So this call was not run."
        " To do something else, load another skill."
    )
    return ToolResult.error(name, message, may_be_retried=False)
