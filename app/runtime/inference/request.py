"""The model request of one step: the model's view of the log, with the changes that plugins ask for."""

from collections.abc import Sequence

from app.domain.agents.skills import with_skills
from app.domain.errors import PluginFailed
from app.domain.inference.options import InferenceOptions
from app.domain.runs.requested_answers import instructions_of, tool_choice_of
from app.domain.threads.messages import LoggedMessage, Message
from app.domain.tools.tool_calls import ToolDescriptor
from app.runtime.active_run import ActiveRun
from app.runtime.history.call_pairs import with_one_result_per_call
from app.runtime.history.summaries import with_newest_summary
from app.runtime.inference.context_messages import THROTTLE, with_context
from app.runtime.inference.media_refusals import without_refused_media
from app.runtime.inference.provider_data_refusals import accepted_log
from app.runtime.inference.shown_tools import shown_tools
from app.runtime.inference.structured_output import with_output_format
from app.runtime.phases import HookRequests
from app.runtime.plugins import AddContext, Phase, ViewRequest
from app.runtime.ports.models import ModelRequest
from app.runtime.state import ChangeBatch


def request_for(run: ActiveRun, requests: HookRequests, options: InferenceOptions) -> ModelRequest:
    """The request of the current step; the state records which context messages it shows."""
    spec = run.agent.spec
    system_prompt = with_skills(spec.system_prompt, spec.skills)
    tools = shown_tools(run, requests.requests)
    messages = model_view(without_refused_media(run, accepted_log(run)))
    if contexts := requests.all_of(AddContext):
        run.state.register([THROTTLE])
        shown = with_context(messages, contexts, run.state.snapshot.get(THROTTLE), run.steps)
        run.change_state(ChangeBatch(shown.changes))
        messages = shown.messages
    view_request = ViewRequest(system_prompt=system_prompt, tools=tools, options=options)
    for plugin in run.agent.plugins.plugins:
        if plugin.transform is not None:
            try:
                messages = list(plugin.transform(messages, view_request))
            except Exception as error:  # a plugin's code
                raise PluginFailed(
                    plugin.name, Phase.BEFORE_INFERENCE, f"{type(error).__name__}: {error}"
                ) from error
    instructions = instructions_of(run.record.request)
    request = ModelRequest(
        system_prompt=system_prompt
        if instructions is None
        else "\n\n".join(text for text in (system_prompt, instructions) if text),
        messages=messages,
        tools=tools,
        options=options,
        tool_choice=_tool_choice(run, tools),
    )
    return with_output_format(run, request)


def _tool_choice(run: ActiveRun, tools: Sequence[ToolDescriptor]) -> str | None:
    """The choice that the run's start asks for, if the tools that it needs are offered."""
    choice = tool_choice_of(run.record.request, run.steps)
    if choice is None or not tools:
        return None
    name = choice.removeprefix("tool:")
    is_possible = name == choice or any(tool.name == name for tool in tools)
    return choice if is_possible else None


def model_view(log: Sequence[LoggedMessage]) -> list[Message]:
    """The log as the model sees it: each call with one result, and a summary instead of the messages it covers.

    This is only a view: the log stays as it is.
    """
    return with_one_result_per_call(with_newest_summary(_without_truncated_end(log)))


def _without_truncated_end(log: Sequence[LoggedMessage]) -> Sequence[LoggedMessage]:
    """The log without truncated answers at its end: the next run writes the answer anew."""
    end = len(log)
    while end and log[end - 1].message.cut_short is not None:
        end -= 1
    return log[:end]
