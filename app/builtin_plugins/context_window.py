"""The plugin `context_window` keeps requests within the model's context, by estimated token counts.

It changes what a model is shown, never the log. Long results are shortened once the model has read them. The
oldest messages are left out if not all fit. With `autocompact_threshold`, summaries replace old messages
before that happens.
"""

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import Field, model_validator

from app.builtin_plugins.kinds import PluginConfig, PluginKind
from app.domain.agents.specs import AgentSpec
from app.domain.threads.messages import Message, Role, Visibility
from app.runtime.history import token_estimates
from app.runtime.history.call_pairs import with_one_result_per_call
from app.runtime.history.compaction_plan import MIN_NEW_TOKENS, CompactionPolicy
from app.runtime.history.truncation import truncated
from app.runtime.plugins import Plugin, ViewRequest

Tokens = Annotated[int, Field(ge=1, le=100_000_000)]


class ContextWindow(PluginConfig):
    max_context_tokens: Tokens = 200_000
    max_output_tokens: Tokens = 16_384
    min_recent_messages: int = Field(default=10, ge=1)
    """Number of recent messages that are shown even if they don't fit."""
    trim_results: bool = True
    autocompact_threshold: Tokens | None = None
    """Old messages are summarised from this number of tokens on; None means never."""
    keep_recent_messages: int = Field(default=10, ge=1)
    """Number of recent messages that are never summarised."""
    summary_model: str | None = Field(default=None, min_length=1)
    """The model that summarises; by default the agent's own model."""

    @property
    def tokens_for_messages(self) -> int:
        """The tokens that a request may use."""
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
            max_input_tokens=self.tokens_for_messages,
            trim_results=self.trim_results,
            model=self.summary_model,
        )

    @model_validator(mode="after")
    def _check_budgets(self) -> Self:
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
        elif not MIN_NEW_TOKENS < threshold <= self.tokens_for_messages:
            raise ValueError(
                f"autocompact_threshold must be more than {MIN_NEW_TOKENS}, or a summary saves nothing,"
                f" and at most {self.tokens_for_messages} (max_context_tokens - max_output_tokens), or messages are"
                " left out before they are summarised"
            )
        return self


def fit_messages(
    config: ContextWindow, messages: Sequence[Message], used_tokens: int
) -> list[Message]:
    """Keep the leading system messages, and as many of the newest messages as fit beside `used_tokens`.

    A call is never shown without its result, nor a result without its call. The newest prompt of a person
    stays unless it takes more than half of the available tokens. Only a few more messages are read than
    kept, so the length of the thread doesn't matter.
    """
    head = _leading_system_messages(messages)
    available = config.tokens_for_messages - used_tokens - _tokens(messages[:head])
    prompt = _newest_prompt(messages, head, available)
    if prompt is not None:
        available -= token_estimates.of_message(messages[prompt])
    kept: list[list[Message]] = []
    count, stop, was_read = 0, len(messages), False
    while stop > head:
        start = _start_of_turn(messages, stop, head)
        turn = with_one_result_per_call(messages[start:stop])
        if config.trim_results and (was_read or _tokens(turn) > available):
            turn = [truncated(message) for message in turn]
        was_read = was_read or messages[start].role is Role.ASSISTANT
        if start != prompt:
            available -= _tokens(turn)
        if available < 0 and count >= config.min_recent_messages:
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
    for index, message in enumerate(messages):
        if message.role is not Role.SYSTEM:
            return index
    return len(messages)


def _newest_prompt(messages: Sequence[Message], head: int, available: int) -> int | None:
    """The index of the newest prompt; None if it takes more than half of `available`."""
    for index in range(len(messages) - 1, head - 1, -1):
        message = messages[index]
        if message.role is Role.USER and message.visibility is Visibility.ALL:
            return index if token_estimates.of_message(message) <= available // 2 else None
    return None


def _start_of_turn(messages: Sequence[Message], stop: int, head: int) -> int:
    """The start of the turn that ends at `stop`: one message, or one with calls and the results after it."""
    start = stop - 1
    while start > head and messages[start].role is Role.TOOL:
        start -= 1
    return start


def _build(_: AgentSpec, config: ContextWindow) -> Plugin:
    def transform(messages: Sequence[Message], request: ViewRequest) -> Sequence[Message]:
        used = token_estimates.of_text(request.system_prompt)
        return fit_messages(config, messages, used + token_estimates.of_tools(request.tools))

    return Plugin(name=KIND.name, transform=transform, compaction=config.compaction)


KIND = PluginKind(name="context_window", config=ContextWindow, build=_build)
