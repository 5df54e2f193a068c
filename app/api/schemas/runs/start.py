"""The request that starts a run."""

from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    model_validator,
)
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from app.agents.file_schema import MAX_SECONDS
from app.api.schemas.common import Metadata, RequestModel, Str, Uuid
from app.api.schemas.limits import (
    LimitedRequest,
)
from app.api.schemas.messages import DifferentIds, NewMessage
from app.api.schemas.overrides import AnswerRequest, OverridesIn
from app.api.schemas.thread_names import ThreadNamed
from app.commands.runs.new_run import IfThreadMissing, OnActive
from app.domain.ids import MessageId, RunId
from app.domain.json_values import compact, digest, utf8_size
from app.domain.runs.requested_answers import ANY_ANSWER
from app.domain.runs.runs import MAX_CONTEXT_BYTES
from app.domain.threads.replacements import FromMessage, FromRun, Replacement
from app.domain.tickets.terms import OnExpiry
from app.tools.frontend import MAX_FRONTEND_TOOLS, problem_of_parameters
from app.tools.schemas.subset import problem_of_size

_EXAMPLE: JsonDict = {
    "agent_id": "demo",
    "messages": [{"role": "user", "content": "Please delete /tmp/old-report.txt"}],
}


class TicketPolicyIn(RequestModel):
    """Overrides the agent's expiry of tickets for this run."""

    expires_in: float | None = Field(
        None, gt=0, le=MAX_SECONDS, description="Seconds until the ticket expires."
    )
    on_expiry: OnExpiry | None = Field(
        None,
        description="`reject` tells the model that no decision came, `cancel_run` cancels the run, `keep` "
        "leaves the ticket open.",
    )


def _usable(parameters: dict[str, Any]) -> dict[str, Any]:
    problem = problem_of_parameters(parameters)
    if problem is not None:
        raise PydanticCustomError("schema_unsupported", "{problem}", {"problem": problem})
    return parameters


def _check_total_size(tools: Any) -> Any:
    """Checks the size of all schemas together, before any of them is compiled."""
    problem = problem_of_size(tools)
    if problem is not None:
        raise PydanticCustomError("schema_unsupported", "{problem}", {"problem": problem})
    return tools


class FrontendToolIn(RequestModel):
    """A tool that the client executes. A call of it opens a ticket that waits for the result."""

    name: Str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    description: Str = Field("", max_length=4000)
    parameters: Annotated[Metadata, AfterValidator(_usable)] = Field(
        default_factory=lambda: {"type": "object", "properties": {}},
        description="JSON Schema of the arguments. References stay within it.",
    )


def _all_different(tools: list[FrontendToolIn]) -> list[FrontendToolIn]:
    if len({tool.name for tool in tools}) < len(tools):
        raise ValueError("two frontend tools have the same name")
    return tools


def _bounded_context(context: dict[str, Any]) -> dict[str, Any]:
    size = utf8_size(compact(context))
    if size > MAX_CONTEXT_BYTES:
        raise ValueError(
            f"`context` has {size} bytes of JSON, and at most {MAX_CONTEXT_BYTES} are possible; send an id, and let "
            "the tools look the rest up"
        )
    return context


class ReplacesIn(RequestModel):
    """From where on the thread's conversation is replaced: a run or a message."""

    run_id: Uuid | None = Field(
        None,
        description="Replaces this run and all later ones, with the messages that they have read.",
    )
    message_id: Uuid | None = Field(
        None,
        description="Replaces this message, which a run was started with, and all later ones. Or the answer of the "
        "run that has written this message, and all later messages.",
    )

    @model_validator(mode="after")
    def _names_one_place(self) -> Self:
        if (self.run_id is None) == (self.message_id is None):
            raise ValueError("takes either `run_id` or `message_id`")
        return self


class StartIn(LimitedRequest, AnswerRequest, ThreadNamed):
    """What to run, on which thread, with which messages."""

    model_config = {"json_schema_extra": {"examples": [_EXAMPLE]}}

    agent_id: Str | None = Field(
        None,
        min_length=1,
        max_length=200,
        description="The agent that runs. Without it, the agent that last ran on the thread.",
    )
    thread_id: Uuid | None = Field(
        None,
        description="The thread to continue. A new thread if neither it nor `thread_key` is sent, or if "
        "it is unknown.",
    )
    run_id: Uuid | None = Field(
        None,
        description="Your id for the run. The same request again returns the same run.",
    )
    messages: Annotated[
        list[NewMessage], Field(min_length=1, max_length=1000, fail_fast=True), DifferentIds
    ] = Field(
        default_factory=list,
        description="What the run reads first. Required, except with `replaces`.",
    )
    replaces: ReplacesIn | None = Field(
        None,
        description="Replaces the end of the thread's conversation, which must have no unfinished run: later runs "
        "ignore it, as after a rollback. Without `messages`, the run reads again what the replaced run was "
        "started with. Without `agent_id`, the agent of the replaced run.",
    )
    on_active: OnActive = Field(
        OnActive.ENQUEUE,
        description="What to do if another run occupies the thread. `enqueue`: queue behind it. `reject`: "
        "409 `thread_busy`. `interrupt`: cancel it, and queue. `rollback`: the same, and later runs "
        "ignore its messages, which stay in the log, marked; effects of its tools aren't undone. "
        "`steer`: give it the messages, and return that run.",
    )
    if_thread_missing: IfThreadMissing = IfThreadMissing.CREATE
    metadata: Metadata = Field(default_factory=dict)
    context: Annotated[Metadata, AfterValidator(_bounded_context)] | None = Field(
        None,
        description="Data for the run's tools and plugins, which they may trust: `ctx.run.context`. It needs the "
        f"scope `runs:context`, has at most {MAX_CONTEXT_BYTES} bytes of JSON, and is neither shown to models nor "
        "in any response. Retries and delegates of the run have it too.",
    )
    ticket_policy: TicketPolicyIn | None = None
    overrides: OverridesIn | None = Field(
        None, description="Overrides the agent's model options for this run."
    )
    frontend_tools: Annotated[
        list[FrontendToolIn],
        Field(max_length=MAX_FRONTEND_TOOLS, fail_fast=True),
        BeforeValidator(_check_total_size),
        AfterValidator(_all_different),
    ] = Field(
        default_factory=list,
        description="Tools that the client executes. A call of one opens a ticket for its result.",
    )

    @model_validator(mode="after")
    def _has_messages(self) -> Self:
        if not self.messages and self.replaces is None:
            raise ValueError("`messages` are required; only a start with `replaces` may have none")
        return self

    @model_validator(mode="after")
    def _a_replacement_interrupts_nothing(self) -> Self:
        if self.replaces is not None and self.on_active not in (
            OnActive.ENQUEUE,
            OnActive.REJECT,
        ):
            raise ValueError(
                f"`replaces` can't be combined with `on_active` {self.on_active.value}: it is for threads that have "
                "no unfinished run; leave `on_active` out"
            )
        return self

    @model_validator(mode="after")
    def _an_id_is_of_a_new_run(self) -> Self:
        if self.run_id is not None and self.on_active is OnActive.STEER:
            raise ValueError(
                "`run_id` can't be combined with `steer`, which may start no run; send an Idempotency-Key instead"
            )
        return self

    @model_validator(mode="after")
    def _an_answer_is_of_a_new_run(self) -> Self:
        if self.on_active is OnActive.STEER and self.wanted_answer() is not ANY_ANSWER:
            raise ValueError(
                "`output`, `instructions`, `tool_choice` and `tools` can't be combined with `steer`, which may give "
                "the messages to a run that was started without them"
            )
        return self

    @model_validator(mode="after")
    def _a_context_is_of_a_new_run(self) -> Self:
        if self.context is not None and self.on_active is OnActive.STEER:
            raise ValueError(
                "`context` can't be combined with `steer`, which may give the messages to a run with another context"
            )
        return self

    def wanted_replacement(self) -> Replacement | None:
        replaced = self.replaces
        if replaced is None:
            return None
        if replaced.run_id is not None:
            return FromRun(RunId(replaced.run_id))
        return FromMessage(MessageId(str(replaced.message_id)))

    def fingerprint(self) -> str:
        """Equal for equal requests, also if their fields are in another order."""
        answer_fields = set(AnswerRequest.model_fields)
        body = {
            **self.model_dump(mode="json", exclude={"run_id", *answer_fields}),
            "limits": self.requested_limits,
            **self.used_answer_fields(),
        }
        for message in body["messages"]:
            if message["id"] is None:
                del message["id"]
        for name in (
            "overrides",
            "frontend_tools",
            "ticket_policy",
            "limits",
            "on_limit",
            "context",
            "thread_key",
            "replaces",
        ):
            # Newer fields count only if they are used, so that older requests keep their fingerprint.
            if not body[name]:
                del body[name]
        return digest(body)
