"""The plugin `context_window`: no request is longer than its model's context, as far as estimates go.

It changes what a model is shown, never the log: long results are shortened once the model has read them,
and the oldest messages are left out when all together don't fit. With `autocompact_threshold`, summaries
take the place of old messages before it comes to that.
"""

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import Field, model_validator

from app.builtin_plugins.kinds import PluginConfig, PluginKind
from app.domain.agents.specs import AgentSpec
from app.domain.threads.messages import Message, Role, Visibility
from app.runtime.history import token_estimates
from app.runtime.history.call_pairs import answered
from app.runtime.history.compaction_plan import WORTH_READING, CompactionPolicy
from app.runtime.history.truncation import truncated
from app.runtime.plugins import Plugin, ViewRequest

Tokens = Annotated[int, Field(ge=1, le=100_000_000)]


class ContextWindow(PluginConfig):
    max_context_tokens: Tokens = 200_000
    max_output_tokens: Tokens = 16_384
    min_recent_messages: int = Field(default=10, ge=1)
    """Shown whether they fit or not."""
    trim_results: bool = True
    autocompact_threshold: Tokens | None = None
    """Tokens from which on old messages are summarised; without it they never are."""
    keep_recent_messages: int = Field(default=10, ge=1)
    """Never summarised."""
    summary_model: str | None = Field(default=None, min_length=1)
    """Who summarises; the agent's own model without it."""

    @property
    def tokens_for_messages(self) -> int:
        """Tokens that a request may take."""
        return self.max_context_tokens - self.max_output_tokens

    @property
    def models(self) -> dict[str, str]:
        return {} if self.summary_model is None else {"summary_model": self.summary_model}

    @property
    def compaction(self) -> CompactionPolicy | None:
        if self.autocompact_threshold is None:
            return None
        return CompactionPolicy(
            threshold=self.autocompact_threshold,
            keep_recent_messages=self.keep_recent_messages,
            most_input_tokens=self.tokens_for_messages,
            trim_results=self.trim_results,
            model=self.summary_model,
        )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.tokens_for_messages < 1:
            raise ValueError(
                "max_output_tokens must be less than max_context_tokens, which both share"
            )
        threshold = self.autocompact_threshold
        if threshold is None:
            if self.summary_model is not None:
                raise ValueError(
                    "summary_model needs autocompact_threshold; add it or remove the model"
                )
        elif not WORTH_READING < threshold <= self.tokens_for_messages:
            raise ValueError(
                f"autocompact_threshold must be more than {WORTH_READING}, or a summary saves nothing,"
                f" and at most {self.tokens_for_messages} (max_context_tokens - max_output_tokens), or messages are"
                " left out before they are summarised"
            )
        return self


def fit_messages(config: ContextWindow, messages: Sequence[Message], taken: int) -> list[Message]:
    """All leading system messages, and the longest end of the rest that fits beside what is taken.

    A call is never shown without its result, nor a result without its call. What the newest prompt of a
    person asks for is shown however many steps ago it was. Looks at little more than it keeps, so a
    thread's length costs nothing.
    """
    head = _leading_system_messages(messages)
    room = config.tokens_for_messages - taken - _tokens(messages[:head])
    prompt = _newest_prompt(messages, head, room)
    if prompt is not None:
        room -= token_estimates.of_message(messages[prompt])
    kept: list[list[Message]] = []
    count, stop, was_read = 0, len(messages), False
    while stop > head:
        start = _start_of_turn(messages, stop, head)
        turn = answered(messages[start:stop])
        if config.trim_results and (was_read or _tokens(turn) > room):
            turn = [truncated(message) for message in turn]
        was_read = was_read or messages[start].role is Role.ASSISTANT
        if start != prompt:
            room -= _tokens(turn)
        if room < 0 and count >= config.min_recent_messages:
            break
        kept.append(turn)
        count += len(turn)
        stop = start
    if prompt is not None and prompt < stop:
        kept.append([messages[prompt]])
    return [*messages[:head], *(message for turn in reversed(kept) for message in turn)]


def _tokens(messages: Sequence[Message]) -> int:
    return sum(map(token_estimates.of_message, messages))


def _leading_system_messages(messages: Sequence[Message]) -> int:
    for place, message in enumerate(messages):
        if message.role is not Role.SYSTEM:
            return place
    return len(messages)


def _newest_prompt(messages: Sequence[Message], head: int, room: int) -> int | None:
    """Where it stands, unless it takes more than half of the room."""
    for place in range(len(messages) - 1, head - 1, -1):
        message = messages[place]
        if message.role is Role.USER and message.visibility is Visibility.ALL:
            return place if token_estimates.of_message(message) <= room // 2 else None
    return None


def _start_of_turn(messages: Sequence[Message], stop: int, head: int) -> int:
    """A turn is one message, or one with calls and the results after it."""
    start = stop - 1
    while start > head and messages[start].role is Role.TOOL:
        start -= 1
    return start


def _build(_: AgentSpec, config: ContextWindow) -> Plugin:
    def transform(messages: Sequence[Message], request: ViewRequest) -> Sequence[Message]:
        taken = token_estimates.of_text(request.system_prompt)
        return fit_messages(config, messages, taken + token_estimates.of_tools(request.tools))

    return Plugin(name=KIND.name, transform=transform, compaction=config.compaction)


KIND = PluginKind(name="context_window", config=ContextWindow, build=_build)
