"""The lists that `python -m bench.tables` asks for: each filter of the API and of the console, and their usual combinations."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from bench.fill import TURNS, copied_id

Lists = Mapping[str, str]
EXPORTS = "exports"

_ROOT = copied_id("run", TURNS + 1)
_RUN = copied_id("approved", 200)
_THREAD = copied_id("thread", 200)


def lists() -> Mapping[str, Lists]:
    """The paths by section and name. Sections whose name begins with "runs" have the stricter mark."""
    return {
        "runs": _runs("/v1/runs"),
        "runs: summaries, as the console lists them": _runs("/v1/run-summaries"),
        "tickets": _TICKETS,
        "numbers of tickets": {
            name: path.replace("/v1/tickets?", "/v1/tickets/count?")
            for name, path in _TICKETS.items()
            if "order=" not in path
        },
        "threads": _THREADS,
        "one run, one thread": _ONE,
        "work and usage": _system(),
        "other lists": _others(),
        EXPORTS: _exports(),
    }


def _runs(path: str) -> Lists:
    day = _ago(days=20), _ago(days=19)
    queries = {
        "newest": "",
        "oldest": "order=asc",
        "200, newest": "limit=200",
        "of one day": f"created_after={day[0]}&created_before={day[1]}",
        "waiting": "status=waiting",
        "waiting, oldest": "status=waiting&order=asc",
        "waiting for an approval": "waiting_reason=tool_permission",
        "waiting for an answer: none": "waiting_reason=user_input",
        "executed: none": "status=running",
        "done": "status=done",
        "succeeded": "outcome=succeeded",
        "cancelled: 2 %": "outcome=cancelled",
        "blocked: 1 of 20,000": "outcome=blocked",
        "reached a limit: none": "outcome=budget_exceeded",
        "blocked, of one day": f"outcome=blocked&created_after={day[0]}&created_before={day[1]}",
        "with an error code": "termination_code=model_overloaded",
        "with an unknown error code": "termination_code=unknown",
        "failed, with an error code": "outcome=failed&termination_code=model_overloaded",
        "of a usual agent": "agent_id=agent-3",
        "of a rare agent": "agent_id=rare",
        "of a rare agent, oldest": "agent_id=rare&order=asc",
        "of an unknown agent": "agent_id=unknown",
        "of a rare agent, of one day": f"agent_id=rare&created_after={day[0]}&created_before={day[1]}",
        "of a rare agent, waiting": "agent_id=rare&status=waiting",
        "of a rare agent, cancelled: none": "agent_id=rare&outcome=cancelled",
        "of a rare agent, failed: none": "agent_id=rare&outcome=failed",
        "of a rare agent, succeeded": "agent_id=rare&outcome=succeeded",
        "of a usual agent, blocked": "agent_id=agent-3&outcome=blocked",
        "of a usual agent, reached a limit: none": "agent_id=agent-3&outcome=budget_exceeded",
        "of a usual agent, waiting for an approval": "agent_id=agent-3&waiting_reason=tool_permission",
        "of a customer": "metadata.customer=c-7777",
        "of an unknown customer": "metadata.customer=unknown",
        "of a plan: 1 of 12": "metadata.plan=plan-1",
        "of a plan, oldest": "metadata.plan=plan-1&order=asc",
        "of a plan, blocked": "metadata.plan=plan-1&outcome=blocked",
        "of a plan, of a rare agent": "metadata.plan=plan-1&agent_id=rare",
        "of a plan, failed, of a usual agent": "metadata.plan=plan-1&outcome=failed&agent_id=agent-3",
        "of a customer and a plan": "metadata.customer=c-7777&metadata.plan=plan-1",
        "of a tree of 900": f"root_run_id={_ROOT}",
        "of a tree of 900, cancelled": f"root_run_id={_ROOT}&outcome=cancelled",
        "of a thread": f"thread_id={_THREAD}",
    }
    if path == "/v1/runs":
        queries |= {"paused: none": "paused=true", "not paused": "paused=false"}
    else:
        queries |= {"by their ids": "ids=" + ",".join(copied_id("run", n) for n in range(50, 100))}
    return {name: f"{path}?{query}" for name, query in queries.items()}


_TICKETS = {
    "open": "/v1/tickets?status=open",
    "any": "/v1/tickets?",
    "decided": "/v1/tickets?status=decided",
    "expired: none": "/v1/tickets?status=expired",
    "open, oldest": "/v1/tickets?status=open&order=asc",
    "open, that expire first": "/v1/tickets?status=open&sort=expires_at&order=asc",
    "open, of a rare agent": "/v1/tickets?status=open&agent_id=rare",
    "open, of an unknown agent": "/v1/tickets?status=open&agent_id=unknown",
    "open, of an unknown agent, that expire first": "/v1/tickets?status=open&agent_id=unknown&sort=expires_at&order=asc",
    "open, approvals": "/v1/tickets?status=open&kind=approval",
    "open, of a kind that none has": "/v1/tickets?status=open&kind=outcome_unknown",
    "open, of a tool": "/v1/tickets?status=open&tool_name=risky",
    "open, of an unknown tool": "/v1/tickets?status=open&tool_name=unknown",
    "open, that I may decide": "/v1/tickets?status=open&assignee=me",
    "open, that I may decide, that expire first": "/v1/tickets?status=open&assignee=me&sort=expires_at&order=asc",
    "open, that expire within a year": "/v1/tickets?status=open&expires_before=2200-01-01T00:00:00Z",
    "decided, of a rare agent": "/v1/tickets?status=decided&agent_id=rare",
    "decided, of an unknown agent": "/v1/tickets?status=decided&agent_id=unknown",
    "decided, of a kind that none has": "/v1/tickets?status=decided&kind=outcome_unknown",
    "decided, of an unknown tool": "/v1/tickets?status=decided&tool_name=unknown",
    "any, of a kind that none has": "/v1/tickets?kind=outcome_unknown",
    "of a run": f"/v1/tickets?run_id={_RUN}",
    "of a tree of 900 runs": f"/v1/tickets?root_run_id={_ROOT}",
    "of an unknown thread": "/v1/tickets?thread_key=none",
}

_THREADS = {
    "newest": "/v1/threads",
    "newest, with their last messages": "/v1/threads?include=last_message",
    "by their last run": "/v1/threads?sort=last_run_at&include=last_message",
    "by a word of the title: 1 of 1,000": "/v1/threads?title=zinc&include=last_message",
    "by a usual word of the title": "/v1/threads?title=order+pap&include=last_message",
    "by a word that none has": "/v1/threads?title=zebra&include=last_message",
    "by their last run, with a word of the title: 1 of 1,000": "/v1/threads?sort=last_run_at&title=zinc",
    "by their last run, with a usual word": "/v1/threads?sort=last_run_at&title=order+pap",
    "by their last run, with a word that none has": "/v1/threads?sort=last_run_at&title=zebra",
    "by their key": "/v1/threads?key=none",
    "by metadata": "/v1/threads?metadata.plan=2",
    "by metadata that none has": "/v1/threads?metadata.plan=none",
    "of a resource: none": "/v1/threads?resource_id=none",
    "of a parent: none": f"/v1/threads?parent_thread_id={_THREAD}",
}

_ONE = {
    "run": f"/v1/runs/{_RUN}?include=usage",
    "run, snapshot": f"/v1/runs/{_RUN}/snapshot",
    "run, events": f"/v1/runs/{_RUN}/events?limit=200",
    "run, explanation": f"/v1/runs/{_RUN}/explain",
    "run, children: 891": f"/v1/runs/{_ROOT}/children",
    "run, audit": f"/v1/runs/{_RUN}/audit",
    "run, artifacts": f"/v1/runs/{_RUN}/artifacts",
    "run, tasks": f"/v1/runs/{_RUN}/tasks",
    "ticket, with earlier decisions": f"/v1/tickets/{copied_id('waiting', 200, of='ticket')}",
    "thread, snapshot": f"/v1/threads/{_THREAD}/snapshot",
    "thread, runs": f"/v1/threads/{_THREAD}/runs",
    "thread, messages": f"/v1/threads/{_THREAD}/messages",
    "thread, pending inputs": f"/v1/threads/{_THREAD}/inputs?status=pending&order=asc",
    "thread, usage": f"/v1/threads/{_THREAD}/usage",
}


def _system() -> Lists:
    day, month = f"from={_ago(days=1)}", f"from={_ago(days=30)}"
    return {
        "statistics of a day": "/v1/stats/runs",
        "statistics of 24 days": "/v1/stats/runs?bucket=day",
        "statistics of 24 days, of a rare agent": "/v1/stats/runs?bucket=day&agent_id=rare",
        "statistics of 24 days, of a usual agent": "/v1/stats/runs?bucket=day&agent_id=agent-3",
        "queue": "/v1/queue",
        "queue of a rare agent": "/v1/queue?agent_id=rare",
        "workers": "/v1/workers",
        "agents": "/v1/agents",
        "hint of changes": "/v1/changes",
        "events of tickets, from now": "/v1/tickets/events?from=now&limit=1",
        "events of tickets, from the beginning": "/v1/tickets/events?limit=200",
        "usage of a day, by model": f"/v1/usage?group_by=model&{day}",
        "usage of a day, by agent": f"/v1/usage?group_by=agent&{day}",
        "usage of 30 days, by model": "/v1/usage?group_by=model",
        "usage of 30 days, by agent": "/v1/usage?group_by=agent&limit=20",
        "usage of 30 days, by agent and day": "/v1/usage?group_by=agent,day",
        "usage of 30 days, by day": "/v1/usage?group_by=day",
        "usage of 30 days, by provider and model": "/v1/usage?group_by=provider,model",
        "usage of 30 days, by kind": "/v1/usage?group_by=kind",
        "usage of 30 days, by subject": "/v1/usage?group_by=subject",
        "usage of 30 days, by subject, agent, model and day": "/v1/usage?group_by=subject,agent,model,day",
        "usage of 30 days, of an agent, by model": "/v1/usage?group_by=model&agent_id=agent-3",
        "usage of 30 days, of a subject, by day": "/v1/usage?group_by=day&subject=team-3",
        "usage of 30 days, of a thread": f"/v1/usage?thread_id={_THREAD}&{month}",
        "usage of 30 days, of a tree": f"/v1/usage?root_run_id={_ROOT}&{month}",
        "usage of 30 days, by thread": "/v1/usage?group_by=thread",
    }


def _others() -> Lists:
    return {
        "files": "/v1/files",
        "files of a thread": f"/v1/files?thread_id={_THREAD}",
        "memories, of all": "/v1/memories?scope=all",
        "memories, of all, with a rare word": "/v1/memories?scope=all&q=zinc",
        "memories, of all, with a usual word": "/v1/memories?scope=all&q=paper",
        "deletions of memories": "/v1/memory-deletions?scope=all",
        "rules": "/v1/rules",
    }


def _exports() -> Lists:
    """Streams of all rows of a period, which no page waits for."""
    return {
        "audit of the last hour": f"/v1/audit?from={_ago(hours=1)}",
        "audit of an earlier hour": f"/v1/audit?from={_ago(days=20)}&to={_ago(days=20, hours=-1)}",
    }


def _ago(**parts: int) -> str:
    return (datetime.now(UTC) - timedelta(**parts)).strftime("%Y-%m-%dT%H:%M:%SZ")
