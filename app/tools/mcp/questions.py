"""Questions of servers as tickets, and people's decisions as replies.

The state of a server's question is carried by the ticket, so nothing is held open while a person thinks. When the
ticket is decided, the call runs again, and the reply continues it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from app.domain.json_values import Json, JsonObject, as_object, compact, digest
from app.domain.tickets.tickets import ASK_SERVER_ACTION, VISIT_ACTION
from app.domain.tools.tool_calls import ResumeMode, SuspensionRequest
from app.runtime.ports.call_waits import CarriedReply
from app.tools.mcp.client import InputRequired, Question, QuestionReply
from app.tools.mcp.names import visible
from app.tools.result_limits import shortened
from app.tools.schemas.subset import problem_of_schema

MAX_ROUNDS = 10
MAX_CARRY_BYTES = 64_000
MAX_QUESTIONS = 16
MAX_MESSAGE_CHARACTERS = 4_000
DECLINED = QuestionReply(action="decline")
CANCELLED = QuestionReply(action="cancel")


class ExchangeRefused(Exception):
    """What a server asks or offers can't be used; the message says why."""


class Asked(Struct, frozen=True, kw_only=True):
    """What a ticket carries for the server: the state of the call, and the keys of its questions."""

    tool_digest: str
    state: str | None = None
    keys: Sequence[str] = ()
    is_form: Mapping[str, bool] = {}
    rounds: int = 1
    restarts: int = 0
    """How often the call began again, because the server had forgotten its question."""
    asked_in_call: str | None = None
    """The digest of a question that a server of the older protocol asked in mid-call."""
    task: str | None = None
    """The task that asks, if it isn't the call itself."""

    def to_json(self) -> JsonObject:
        body: dict[str, Json] = {
            "tool_digest": self.tool_digest,
            "state": self.state,
            "keys": list(self.keys),
            "is_form": dict(self.is_form),
            "rounds": self.rounds,
            "restarts": self.restarts,
            "asked_in_call": self.asked_in_call,
        }
        # Releases before it can't read that key.
        return body if self.task is None else {**body, "task": self.task}

    @classmethod
    def from_json(cls, raw: JsonObject) -> "Asked":
        return cls(**raw)


def question_digest(question: Question) -> str:
    return digest([question.message, question.schema, question.url])


def suspension_for(
    questions: Mapping[str, Question], asked: Asked, server: str
) -> SuspensionRequest:
    """The request for one ticket about all questions. Raises ExchangeRefused."""
    if not 0 < len(questions) <= MAX_QUESTIONS:
        raise ExchangeRefused(f"it asked {len(questions)} questions at once")
    carry = asked.to_json()
    if len(compact(carry)) > MAX_CARRY_BYTES:
        raise ExchangeRefused(f"the state of its question has more than {MAX_CARRY_BYTES} bytes")
    texts = [_text_of(each) for each in questions.values()]
    is_visit = all(each.url is not None for each in questions.values())
    return SuspensionRequest(
        shortened(f"{server} asks: " + "\n".join(texts), MAX_MESSAGE_CHARACTERS),
        action=VISIT_ACTION if is_visit else ASK_SERVER_ACTION,
        resume_mode=ResumeMode.PASS_DECISION_TO_TOOL,
        response_schema=None if is_visit else _schema_of(questions),
        carry=carry,
    )


def _text_of(question: Question) -> str:
    text = visible(question.message)
    if question.url is None:
        return text
    parts = urlsplit(question.url)
    if parts.scheme not in ("http", "https") or not parts.netloc or not question.url.isprintable():
        raise ExchangeRefused("it asked to visit an address that isn't http or https")
    return f"{text} (visit {question.url}, then respond)"


def _schema_of(questions: Mapping[str, Question]) -> JsonObject:
    """The schema of the only form; of several, an object with one property for each."""
    forms = {key: each.schema or {} for key, each in questions.items() if each.url is None}
    schema: JsonObject = next(iter(forms.values()))
    if len(forms) > 1:
        schema = {"type": "object", "properties": forms, "required": list(forms)}
    problem = problem_of_schema(schema)
    if problem is not None:
        raise ExchangeRefused(f"it asked with a schema that can't be used: {problem}")
    return schema


def asked_for(required: InputRequired, tool_digest: str, before: Asked | None) -> Asked:
    """What the ticket carries for questions that a server returned. Raises ExchangeRefused."""
    rounds = 1 if before is None else before.rounds + 1
    if rounds > MAX_ROUNDS:
        raise ExchangeRefused(f"it asked more than {MAX_ROUNDS} times")
    return Asked(
        tool_digest=tool_digest,
        state=required.state,
        keys=list(required.questions),
        is_form={key: each.url is None for key, each in required.questions.items()},
        rounds=rounds,
        task=None if required.task is None else required.task.id,
        restarts=0 if before is None else before.restarts,
    )


def replies_of(asked: Asked, reply: CarriedReply) -> dict[str, QuestionReply]:
    """The replies to the questions of a ticket, by their keys."""
    if reply.action != "accept":
        return {key: QuestionReply(action=reply.action) for key in asked.keys}
    forms = [key for key in asked.keys if asked.is_form.get(key, True)]
    body = as_object(reply.result) or {}
    contents: dict[str, Any] = {key: as_object(body.get(key)) or {} for key in forms}
    if len(forms) == 1:
        contents = {forms[0]: body}
    return {key: QuestionReply(action="accept", content=contents.get(key)) for key in asked.keys}


@dataclass(slots=True)
class CallDialogue:
    """The questions of one call that a server of the older protocol asks in mid-call.

    A new question gets `cancel`, and becomes a ticket once the server has returned. The call then runs again, and
    the server asks the same question again.
    """

    tool_digest: str
    replies: Sequence[CarriedReply]
    new_question: Question | None = None

    def known_reply(self, question: Question) -> QuestionReply | None:
        wanted = question_digest(question)
        for reply in reversed(self.replies):
            if reply.carry.get("asked_in_call") == wanted:
                if reply.action != "accept":
                    return QuestionReply(action=reply.action)
                content = None if question.url is not None else as_object(reply.result) or {}
                return QuestionReply(action="accept", content=content)
        return None

    def ask(self, question: Question) -> QuestionReply:
        if self.new_question is None:
            self.new_question = question
        return CANCELLED

    def suspension(self, server: str) -> SuspensionRequest | None:
        """The request for a ticket about the new question. Raises ExchangeRefused."""
        if self.new_question is None:
            return None
        if len(self.replies) >= MAX_ROUNDS:
            raise ExchangeRefused(f"it asked more than {MAX_ROUNDS} times")
        asked = Asked(
            tool_digest=self.tool_digest, asked_in_call=question_digest(self.new_question)
        )
        return suspension_for({"question": self.new_question}, asked, server)
