"""Checks that a decision is allowed: for this ticket, by this person, with these arguments or result."""

from collections.abc import Sequence

from app.commands.tickets.decision_types import DecisionRequest
from app.context import ServiceContext
from app.domain.errors import Conflict, DigestMismatch, Forbidden, Invalid
from app.domain.json_values import Json, JsonObject
from app.domain.principals import Principal, Scope
from app.domain.runs.runs import RunRecord
from app.domain.tickets.decisions import Action, Decision, DecisionAnswer, decision_to_json
from app.domain.tickets.tickets import Ticket, TicketKind
from app.runtime.agent import UnknownAgentVersion
from app.runtime.handoff import active_agent
from app.storage.postgres.database import Connection
from app.storage.threads import threads
from app.tools.frontend import with_frontend_tools
from app.tools.schemas.validate import build_validator


async def check_decision(
    ctx: ServiceContext,
    connection: Connection,
    principal: Principal,
    record: RunRecord,
    ticket: Ticket,
    given: Sequence[Decision],
    request: DecisionRequest,
) -> None:
    """Refuse a decision that this person may not make on this ticket.

    A response to a ticket of kind `event` replaces a signal, and needs the scope for signals.
    """
    answer = request.answer
    _check_approver(principal, record, ticket, given, answer)
    if request.args_digest is not None and request.args_digest != ticket.args_digest:
        raise DigestMismatch(
            "args_digest_mismatch",
            "The ticket has other arguments than the decision quotes. Read the ticket again.",
            args_digest=ticket.args_digest,
        )
    if answer.action not in ticket.allowed_actions:
        allowed = ", ".join(sorted(ticket.allowed_actions))
        raise Invalid(
            "action_not_allowed",
            f"Ticket {ticket.name!r} can't be answered with {answer.action.value!r}; "
            f"allowed are: {allowed}.",
            allowed_actions=sorted(ticket.allowed_actions),
        )
    if ticket.kind is TicketKind.EVENT and answer.action is Action.RESPOND:
        principal.require(Scope.SIGNALS_WRITE)
    if answer.action is Action.EDIT:
        if ticket.kind is TicketKind.LIMIT:
            _check_raise(ticket, answer)
        else:
            await _check_arguments(ctx, connection, record, ticket, answer)
    if answer.action is Action.RESPOND and ticket.response_schema is not None:
        wrong = build_validator(ticket.response_schema).problem(answer.result)
        if wrong is not None:
            raise Invalid(
                "response_schema_violation",
                f"The result doesn't match the ticket's schema: {wrong}",
                errors=_places(ticket.response_schema, answer.result),
            )


def _check_approver(
    principal: Principal,
    record: RunRecord,
    ticket: Ticket,
    given: Sequence[Decision],
    answer: DecisionAnswer,
) -> None:
    rule = ticket.terms.approvers
    if rule is None:
        return
    broken = rule.broken_by(
        principal.scopes,
        is_admin=principal.is_admin,
        is_starter=record.started_by == principal.subject,
    )
    if broken is not None:
        name, sentence = broken
        raise Forbidden(
            "approver_not_allowed",
            f"You may not answer ticket {ticket.name!r}: {sentence}.",
            ticket_id=ticket.id,
            rule=name,
        )
    own = next((vote for vote in given if vote.subject == principal.subject), None)
    if own is not None and answer.allows_call:
        raise Conflict(
            "already_voted",
            f"You have voted on ticket {ticket.name!r} before: {own.answer.action.value}. You can "
            "still reject it.",
            ticket_id=ticket.id,
            vote=decision_to_json(own),
        )


def _check_raise(ticket: Ticket, answer: DecisionAnswer) -> None:
    """Check the raised limit: no tool has these arguments, so the ticket's response schema decides."""
    schema, arguments = ticket.response_schema or {}, dict(answer.arguments or {})
    wrong = build_validator(schema).problem(arguments)
    if wrong is not None:
        raise Invalid(
            "arguments_invalid",
            f"The arguments don't raise the limit: {wrong}",
            errors=_places(schema, arguments),
        )


def _places(schema: JsonObject, value: Json) -> list[dict[str, str]]:
    """The wrong parts of a value by JSON Pointer, for forms. A value that is wrong as a whole has none."""
    places = build_validator(schema).places(value)
    return [{"at": pointer, "problem": problem} for pointer, problem in places]


async def _check_arguments(
    ctx: ServiceContext,
    connection: Connection,
    record: RunRecord,
    ticket: Ticket,
    answer: DecisionAnswer,
) -> None:
    """Check edited arguments by the schema of the active agent's tool: after a hand-off that isn't the
    run's first agent."""
    thread_state = await threads.state(connection, record.tenant, record.thread_id)
    active = active_agent(thread_state) or (record.agent_id, record.agent_version)
    agents = with_frontend_tools(ctx.agents.for_tenant(record.tenant), record.request)
    agent = await agents.at_version(*active)
    if isinstance(agent, UnknownAgentVersion):
        raise Conflict(
            "agent_version_unavailable", f"{agent.reason}; only that version can continue the run."
        )
    tool = agent.tools.get(ticket.tool_name)
    arguments = dict(answer.arguments or {})
    wrong = (
        f"there is no tool {ticket.tool_name!r} any more"
        if tool is None
        else tool.invalid_arguments(arguments)
    )
    if wrong is not None:
        places = [] if tool is None else _places(tool.descriptor.parameters, arguments)
        raise Invalid(
            "arguments_invalid", f"The edited arguments can't be used: {wrong}", errors=places
        )
