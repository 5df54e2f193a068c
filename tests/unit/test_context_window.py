"""The context window: what is kept, what is shortened, and which settings are refused."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.agents.catalog import load_catalog
from app.builtin_plugins.context_window import KIND, ContextWindow, fit_messages
from app.domain.agents.specs import AgentSpec
from app.domain.errors import ConfigurationError
from app.domain.ids import AgentId
from app.domain.inference.options import NO_OPTIONS
from app.domain.threads.messages import Message, Role, Visibility
from app.domain.tools.tool_calls import INTERRUPTED, ToolDescriptor
from app.runtime.history import token_estimates
from app.runtime.history.call_pairs import with_one_result_per_call
from app.runtime.history.truncation import (
    MAX_CHARACTERS,
    MAX_LINES,
    TRUNCATE_OVER_TOKENS,
    truncated,
)
from app.runtime.plugins import ViewRequest
from tests.support.logs import call, message

TINY = ContextWindow(max_context_tokens=200, max_output_tokens=100, min_recent_messages=1)
TEN_TOKENS = "x" * 24
"""Includes the fixed price of a message."""


def system(id: str, text: str = TEN_TOKENS) -> Message:
    return message(id, Role.SYSTEM, text)


def user(id: str, text: str = TEN_TOKENS) -> Message:
    return message(id, Role.USER, text)


def answer(id: str, text: str = TEN_TOKENS) -> Message:
    return message(id, Role.ASSISTANT, text)


def asks(id: str, *calls: str) -> Message:
    return message(id, Role.ASSISTANT, "", *map(call, calls))


def result(id: str, answers: str, text: str = TEN_TOKENS) -> Message:
    return message(id, Role.TOOL, text, answers=answers)


def ids(messages: list[Message]) -> list[str]:
    return [m.id for m in messages]


# --- truncation -----------------------------------------------------------------------------------


def test_a_log_that_fits_is_shown_unchanged() -> None:
    messages = [system("s"), user("u"), asks("a", "c"), result("r", "c"), answer("b")]
    assert fit_messages(TINY, messages, 0) == messages


def test_the_longest_end_that_fits_is_kept_after_all_leading_system_messages() -> None:
    messages = [system("s"), *(user(f"u{n}") for n in range(20))]
    assert ids(fit_messages(TINY, messages, 0)) == ["s", *(f"u{n}" for n in range(11, 20))]


def test_the_system_prompt_and_the_tools_count_towards_the_window() -> None:
    tool = ToolDescriptor(name="t" * 20, description="d" * 20, parameters={"k": "v" * 32})
    transform = KIND.build(AgentSpec(id=AgentId("a"), model="m"), TINY).transform
    assert transform is not None
    request = ViewRequest(system_prompt="p" * 80, tools=[tool], options=NO_OPTIONS)
    messages = [user(f"u{n}") for n in range(20)]
    assert ids(list(transform(messages, request))) == [f"u{n}" for n in range(14, 20)]


def test_a_system_message_inside_the_conversation_is_not_leading() -> None:
    messages = [system("s"), *(user(f"u{n}") for n in range(9)), system("t"), user("last")]
    assert ids(fit_messages(TINY, messages, 0)) == [
        "s",
        *(f"u{n}" for n in range(2, 9)),
        "t",
        "last",
    ]


def test_recent_messages_are_shown_even_if_they_dont_fit() -> None:
    long = [user(f"u{n}", "x" * 1000) for n in range(5)]
    config = TINY.model_copy(update={"min_recent_messages": 3})
    assert ids(fit_messages(config, long, 0)) == ["u2", "u3", "u4"]


def test_a_call_is_never_shown_without_its_results() -> None:
    messages = [user("u"), asks("a", "c", "d"), result("r", "c"), result("q", "d")]
    messages += [answer(f"b{n}") for n in range(7)]
    assert ids(fit_messages(TINY, messages, 0)) == ["u", *(f"b{n}" for n in range(7))]


def test_a_dangling_call_has_been_interrupted() -> None:
    *_, last = fit_messages(TINY, [user("u"), asks("a", "c")], 0)
    assert (last.tool_call_id, last.text) == ("c", INTERRUPTED)


def test_the_newest_user_prompt_is_always_shown() -> None:
    messages = [user("old"), user("prompt")]
    for n in range(20):
        messages += [asks(f"a{n}", f"c{n}"), result(f"r{n}", f"c{n}")]
    shown = ids(fit_messages(TINY, messages, 0))
    assert shown[0] == "prompt"
    assert shown[-2:] == ["a19", "r19"]
    assert "old" not in shown


def test_a_note_to_the_model_is_no_prompt() -> None:
    note = message("n", Role.USER, TEN_TOKENS, visibility=Visibility.INTERNAL)
    shown = ids(
        fit_messages(TINY, [user("prompt"), *(answer(f"a{n}") for n in range(20)), note], 0)
    )
    assert shown[0] == "prompt"


# --- long results ---------------------------------------------------------------------------------

WIDE = ContextWindow()


def test_a_long_result_that_was_read_is_shortened() -> None:
    messages = [user("u"), asks("a", "c"), result("r", "c", "word " * 4000), answer("b")]
    shown = fit_messages(WIDE, messages, 0)[2].text
    assert shown.startswith("word " * 320)
    assert shown.endswith("[18400 of 20000 characters are left out here]")
    assert len(messages[2].text) == 20_000


def test_an_unread_result_is_shown_completely() -> None:
    messages = [user("u"), asks("a", "c"), result("r", "c", "word " * 4000)]
    assert fit_messages(WIDE, messages, 0) == messages


def test_an_unread_result_that_can_never_fit_is_shortened() -> None:
    messages = [user("u"), asks("a", "c"), result("r", "c", "x" * 1_000_000)]
    assert len(fit_messages(WIDE, messages, 0)[2].text) < 2 * MAX_CHARACTERS


def test_results_stay_complete_with_trim_results_off() -> None:
    messages = [user("u"), asks("a", "c"), result("r", "c", "word " * 4000), answer("b")]
    assert fit_messages(WIDE.model_copy(update={"trim_results": False}), messages, 0) == messages


def test_a_result_is_shortened_by_lines_too() -> None:
    text = "\n".join(str(n) for n in range(5000))
    shown = truncated(result("r", "c", text)).text.splitlines()
    assert shown[: MAX_LINES + 1] == [*map(str, range(MAX_LINES)), ""]
    assert len(shown) == MAX_LINES + 2


def test_other_messages_and_short_results_are_never_shortened() -> None:
    for each in (user("u", "x" * 20_000), answer("a", "x" * 20_000), result("r", "c", "x" * 8000)):
        assert truncated(each) is each


# --- any log --------------------------------------------------------------------------------------

CALL_IDS = ["c0", "c1", "c2", "c3"]
TEXTS = st.sampled_from(["", "x", "x" * 40, "x" * 400, "x" * 9000])


@st.composite
def any_message(draw: st.DrawFn) -> Message:
    role = draw(st.sampled_from(list(Role)))
    text = draw(TEXTS)
    if role is Role.TOOL:
        return message("t", role, text, answers=draw(st.sampled_from(CALL_IDS)))
    if role is Role.ASSISTANT:
        calls = draw(st.lists(st.sampled_from(CALL_IDS), unique=True, max_size=3))
        return message("a", role, text, *map(call, calls))
    return message("m", role, text)


LOGS = st.lists(any_message(), max_size=30)
CONFIGS = st.builds(
    lambda tokens, recent, trim: ContextWindow(
        max_context_tokens=tokens + 10,
        max_output_tokens=10,
        min_recent_messages=recent,
        trim_results=trim,
    ),
    st.integers(1, 3000),
    st.integers(1, 6),
    st.booleans(),
)


def assert_every_call_has_one_result(messages: list[Message]) -> None:
    waiting: list[str] = []
    for each in messages:
        if each.role is Role.TOOL:
            assert each.tool_call_id == waiting.pop(0)
        else:
            assert not waiting
            waiting = [call.id for call in each.tool_calls]
    assert not waiting


def leading(messages: list[Message]) -> int:
    return next((n for n, m in enumerate(messages) if m.role is not Role.SYSTEM), len(messages))


@settings(deadline=None)
@given(LOGS, CONFIGS, st.integers(0, 500))
def test_calls_and_their_results_stay_together_in_any_window(
    log: list[Message], config: ContextWindow, taken: int
) -> None:
    assert_every_call_has_one_result(fit_messages(config, with_one_result_per_call(log), taken))
    assert_every_call_has_one_result(fit_messages(config, log, taken))


@settings(deadline=None)
@given(LOGS, CONFIGS, st.integers(0, 500))
def test_more_than_the_recent_messages_are_shown_only_if_they_fit(
    log: list[Message], config: ContextWindow, taken: int
) -> None:
    shown = fit_messages(config, with_one_result_per_call(log), taken)
    tail = shown[leading(shown) :]
    size = taken + sum(map(token_estimates.of_message, shown))
    turns_of_recent = config.min_recent_messages + 4 + 1  # a turn isn't cut; the prompt stays
    assert size <= config.tokens_for_messages or len(tail) <= turns_of_recent


@settings(deadline=None)
@given(LOGS, CONFIGS)
def test_the_view_is_the_head_and_a_tail_of_the_log(
    log: list[Message], config: ContextWindow
) -> None:
    whole = with_one_result_per_call(log)
    shown = fit_messages(config.model_copy(update={"trim_results": False}), whole, 0)
    head = leading(whole)
    assert shown[:head] == whole[:head]
    tail = shown[head:]
    end = tail[1:] if tail and tail[0].role is Role.USER else tail
    assert not end or whole[-len(end) :] == end
    assert len(shown) == len(whole) or len(tail) >= min(
        config.min_recent_messages, len(whole) - head
    )


@settings(deadline=None)
@given(LOGS)
def test_a_window_that_is_large_enough_changes_nothing(log: list[Message]) -> None:
    whole = with_one_result_per_call(log)
    wide = ContextWindow(max_context_tokens=10_000_000, trim_results=False)
    assert fit_messages(wide, whole, 0) == whole


@settings(deadline=None)
@given(LOGS, CONFIGS)
def test_applying_a_window_twice_changes_nothing_more(
    log: list[Message], config: ContextWindow
) -> None:
    once = fit_messages(config, with_one_result_per_call(log), 0)
    assert ids(fit_messages(config, once, 0)) == ids(once)


# --- configuration --------------------------------------------------------------------------------


def problem(tmp_path: Path, table: str) -> str:
    file = tmp_path / "agents.toml"
    file.write_text(
        f"""
        [models.fast]
        provider = "scripted"

        [agents.a]
        model = "fast"

        [agents.a.plugins.context_window]
        {table}
        """
    )
    with pytest.raises(ConfigurationError) as caught:
        load_catalog(file)
    return str(caught.value).removeprefix(f"{file}: agents.a.plugins.context_window")


@pytest.mark.parametrize(
    "table, sentence",
    [
        ("max_tokens = 5", ".max_tokens: unknown key; did you mean 'max_output_tokens'?"),
        ("max_context_tokens = 0", "greater than or equal to 1"),
        (
            "max_context_tokens = 1000",
            "max_output_tokens must be less than max_context_tokens, which both share",
        ),
        ("autocompact_threshold = 190_000", "at most 183616"),
        ("autocompact_threshold = 500", "more than 2048"),
        ('summary_model = "fast"', "summary_model needs autocompact_threshold"),
        (
            'autocompact_threshold = 90_000\nsummary_model = "fats"',
            ".summary_model: there is no model 'fats', did you mean 'fast'?",
        ),
        ("min_recent_messages = 0", "greater than or equal to 1"),
    ],
)
def test_an_invalid_setting_is_refused_with_a_reason(
    tmp_path: Path, table: str, sentence: str
) -> None:
    assert sentence in problem(tmp_path, table)


def test_long_results_are_cut_at_the_configured_limit() -> None:
    assert (
        token_estimates.of_message(result("r", "c", "x" * 4 * (TRUNCATE_OVER_TOKENS - 4)))
        == TRUNCATE_OVER_TOKENS
    )
