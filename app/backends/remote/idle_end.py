"""The end of a remote agent's run that no worker executes: in the shape of its end at work."""

from app.backends.remote.endings import finish_remote
from app.backends.remote.run import RemoteRun, made_before, target_in
from app.domain.agents.specs import AgentSpec
from app.domain.runs.terminations import Termination
from app.runtime.active_run import ActivationStart
from app.runtime.cancellation import Interruption
from app.runtime.ended.idle_end import UNUSED, IdleRun
from app.runtime.ports import CheckpointStore


async def end_idle_remote_run(
    idle: IdleRun, store: CheckpointStore, termination: Termination
) -> None:
    """Commit the end, and have the remote agent told if it has accepted a turn."""
    record = idle.record
    run = RemoteRun(
        record=record,
        spec=AgentSpec(id=record.agent_id, model="none"),
        target=target_in(record),
        events=UNUSED,
        store=store,
        interruption=Interruption(),
        clock=idle.clock,
        log=idle.log,
        next_seq=idle.next_seq,
        start=ActivationStart(),
        answers=UNUSED,
        inbox=UNUSED,
        thread_state=idle.thread_state,
    )
    run.new_messages = made_before(record)
    await finish_remote(run, termination, applied=idle.answered)
