"""What a model is asked in one step: the log as it should see it, with what plugins have asked for."""

from app.domain.errors import PluginFailed
from app.domain.inference.options import InferenceOptions
from app.runtime.active_run import ActiveRun
from app.runtime.history.model_view import model_view
from app.runtime.inference.context_messages import THROTTLE, with_context
from app.runtime.inference.offered_tools import offered_tools
from app.runtime.phases import HookRequests
from app.runtime.plugins import AddContext, Phase, ViewRequest
from app.runtime.ports import ModelRequest
from app.runtime.state import ChangeBatch


def request_for(run: ActiveRun, asked: HookRequests, options: InferenceOptions) -> ModelRequest:
    """The request of the step at hand; which context messages it shows is remembered."""
    spec = run.agent.spec
    tools = offered_tools((tool.descriptor for tool in run.agent.tools.values()), asked.requests)
    messages = model_view(run.log)
    if contexts := asked.all_of(AddContext):
        run.state.register([THROTTLE])
        shown = with_context(messages, contexts, run.state.snapshot.get(THROTTLE), run.steps)
        run.change_state(ChangeBatch(shown.changes))
        messages = shown.messages
    request = ViewRequest(system_prompt=spec.system_prompt, tools=tools, options=options)
    for plugin in run.agent.plugins.plugins:
        if plugin.transform is not None:
            try:
                messages = list(plugin.transform(messages, request))
            except Exception as error:  # a plugin's code
                raise PluginFailed(
                    plugin.name, Phase.BEFORE_INFERENCE, f"{type(error).__name__}: {error}"
                ) from error
    return ModelRequest(
        system_prompt=spec.system_prompt, messages=messages, tools=tools, options=options
    )
