"""Pass on: what an agent sends to a task of its that is a run of another agent's becomes that run's input."""

from app.clock import new_id
from app.commands.runs.steer import reason_not_steerable, steer
from app.context import ServiceContext
from app.domain.agents.capabilities import Continuation
from app.domain.children.followups import ChildFollowup
from app.domain.errors import TooMany
from app.domain.ids import MessageId
from app.domain.threads.messages import Message, Role, Text
from app.storage.children import child_tasks
from app.storage.runs import runs
from app.storage.threads import threads


async def forward_messages(ctx: ServiceContext, followup: ChildFollowup) -> bool:
    """Put before a child what its parent has sent to the task that it is, each message once.

    A child that isn't there yet has it passed on by whoever creates it; one that reads nothing more
    leaves it unread.
    """
    tenant = followup.tenant
    try:
        async with ctx.events.transaction() as transaction:
            connection = transaction.connection
            known = await runs.get(connection, tenant, followup.child_run_id)
            if known is None:
                return True
            await threads.lock(connection, tenant, known.thread_id)
            child = await runs.lock(connection, tenant, known.id)
            if child is None or reason_not_steerable(child) is not None:
                return True
            if ctx.agents.capabilities(child.agent_id).continuation is Continuation.NONE:
                return True
            sent = await child_tasks.take_messages(connection, tenant, child.id)
            if sent:
                await steer(transaction, child, [user_message(text) for text in sent])
    except TooMany:
        return False
    return True


def user_message(text: str) -> Message:
    return Message(id=MessageId(new_id()), role=Role.USER, content=(Text(text),))
