"""The context window: what is kept, what is shortened, and that no file configures nonsense."""

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
from app.runtime.history.call_pairs import answered
from app.runtime.history.truncation import (
    MAX_CHARACTERS,
    MAX_LINES,
    TRUNCATE_OVER_CHARACTERS,
    truncated,
)
from app.runtime.plugins import ViewRequest
from tests.support.logs import call, message

TINY = ContextWindow(max_context_tokens=200, max_output_tokens=100, min_recent_messages=1)
TEN_TOKENS = "x" * 24
"""With what a message costs by itself."""


def system(id: str, text: str = TEN_TOKENS) -> Message:
    return message(id, Role.SYSTEM, text)


def user(id: str, text: str = TEN_TOKENS) -> Message:
    return message(id, Role.USER, text)


def said(id: str, text: str = TEN_TOKENS) -> Message:
    return message(id, Role.ASSISTANT, text)


def asks(id: str, *calls: str) -> Message:
    return message(id, Role.ASSISTANT, "", *map(call, calls))


def result(id: str, answers: str, text: str = TEN_TOKENS) -> Message:
    return message(id, Role.TOOL, text, answers=answers)


def ids(messages: list[Message]) -> list[str]:
    return [m.id for m in messages]


# --- truncation -----------------------------------------------------------------------------------


def test_what_fits_is_shown_as_it_is() -> None:
    messages = [system("s"), user("u"), asks("a", "c"), result("r", "c"), said("b")]
    assert fit_messages(TINY, messages, 0) == messages


def test_the_longest_end_that_fits_is_kept_after_all_leading_system_messages() -> None:
    messages = [system("s"), *(user(f"u{n}") for n in range(20))]
    assert ids(fit_messages(TINY, messages, 0)) == ["s", *(f"u{n}" for n in range(11, 20))]


def test_the_system_prompt_and_the_tools_take_their_room() -> None:
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


def test_recent_messages_are_shown_whether_they_fit_or_not() -> None:
    long = [user(f"u{n}", "x" * 1000) for n in range(5)]
    config = TINY.model_copy(update={"min_recent_messages": 3})
    assert ids(fit_messages(config, long, 0)) == ["u2", "u3", "u4"]


def test_a_call_is_never_shown_without_its_results() -> None:
    messages = [user("u"), asks("a", "c", "d"), result("r", "c"), result("q", "d")]
    messages += [said(f"b{n}") for n in range(7)]
    assert ids(fit_messages(TINY, messages, 0)) == ["u", *(f"b{n}" for n in range(7))]


def test_a_dangling_call_has_been_interrupted() -> None:
    *_, last = fit_messages(TINY, [user("u"), asks("a", "c")], 0)
    assert (last.tool_call_id, last.text) == ("c", INTERRUPTED)


def test_the_newest_prompt_of_a_person_is_shown_however_long_ago_it_was() -> None:
    messages = [user("old"), user("prompt")]
    for n in range(20):
        messages += [asks(f"a{n}", f"c{n}"), result(f"r{n}", f"c{n}")]
    kept = ids(fit_messages(TINY, messages, 0))
    assert kept[0] == "prompt"
    assert kept[-2:] == ["a19", "r19"]
    assert "old" not in kept


def test_a_note_to_the_model_is_no_prompt() -> None:
    note = message("n", Role.USER, TEN_TOKENS, visibility=Visibility.INTERNAL)
    kept = ids(fit_messages(TINY, [user("prompt"), *(said(f"a{n}") for n in range(20)), note], 0))
    assert kept[0] == "prompt"


# --- long results ---------------------------------------------------------------------------------

WIDE = ContextWindow()


def test_a_long_result_that_was_read_is_shortened() -> None:
    messages = [user("u"), asks("a", "c"), result("r", "c", "word " * 4000), said("b")]
    shown = fit_messages(WIDE, messages, 0)[2].text
    assert shown.startswith("word " * 320)
    assert shown.endswith("[18400 of 20000 characters are left out here]")
    assert len(messages[2].text) == 20_000


def test_a_result_that_the_model_has_not_read_is_shown_whole() -> None:
    messages = [user("u"), asks("a", "c"), result("r", "c", "word " * 4000)]
    assert fit_messages(WIDE, messages, 0) == messages


def test_an_unread_result_that_can_never_fit_is_shortened() -> None:
    messages = [user("u"), asks("a", "c"), result("r", "c", "x" * 1_000_000)]
    assert len(fit_messages(WIDE, messages, 0)[2].text) < 2 * MAX_CHARACTERS


def test_results_stay_whole_where_that_is_wanted() -> None:
    messages = [user("u"), asks("a", "c"), result("r", "c", "word " * 4000), said("b")]
    assert fit_messages(WIDE.model_copy(update={"trim_results": False}), messages, 0) == messages


def test_a_result_is_shortened_by_lines_too() -> None:
    text = "\n".join(str(n) for n in range(5000))
    kept = truncated(result("r", "c", text)).text.splitlines()
    assert kept[: MAX_LINES + 1] == [*map(str, range(MAX_LINES)), ""]
    assert len(kept) == MAX_LINES + 2


def test_other_messages_and_short_results_are_never_shortened() -> None:
    for each in (user("u", "x" * 20_000), said("a", "x" * 20_000), result("r", "c", "x" * 8000)):
        assert truncated(each) is each


# --- whatever the log looks like ------------------------------------------------------------------

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
    lambda room, recent, trim: ContextWindow(
        max_context_tokens=room + 10,
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
def test_calls_and_results_stay_together_whatever_is_left_out(
    log: list[Message], config: ContextWindow, taken: int
) -> None:
    assert_every_call_has_one_result(fit_messages(config, answered(log), taken))
    assert_every_call_has_one_result(fit_messages(config, log, taken))


@settings(deadline=None)
@given(LOGS, CONFIGS, st.integers(0, 500))
def test_more_than_the_recent_messages_are_shown_only_if_they_fit(
    log: list[Message], config: ContextWindow, taken: int
) -> None:
    shown = fit_messages(config, answered(log), taken)
    rest = shown[leading(shown) :]
    size = taken + sum(map(token_estimates.of_message, shown))
    turns_of_recent = config.min_recent_messages + 4 + 1  # a turn isn't cut; the prompt stays
    assert size <= config.tokens_for_messages or len(rest) <= turns_of_recent


@settings(deadline=None)
@given(LOGS, CONFIGS)
def test_what_is_shown_is_the_head_and_an_end_of_the_log(
    log: list[Message], config: ContextWindow
) -> None:
    whole = answered(log)
    shown = fit_messages(config.model_copy(update={"trim_results": False}), whole, 0)
    head = leading(whole)
    assert shown[:head] == whole[:head]
    rest = shown[head:]
    end = rest[1:] if rest and rest[0].role is Role.USER else rest
    assert not end or whole[-len(end) :] == end
    assert len(shown) == len(whole) or len(rest) >= min(
        config.min_recent_messages, len(whole) - head
    )


@settings(deadline=None)
@given(LOGS)
def test_a_window_that_is_wide_enough_changes_nothing(log: list[Message]) -> None:
    whole = answered(log)
    wide = ContextWindow(max_context_tokens=10_000_000, trim_results=False)
    assert fit_messages(wide, whole, 0) == whole


@settings(deadline=None)
@given(LOGS, CONFIGS)
def test_a_window_applied_twice_is_applied_once(log: list[Message], config: ContextWindow) -> None:
    once = fit_messages(config, answered(log), 0)
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
def test_nonsense_is_refused_with_a_sentence(tmp_path: Path, table: str, sentence: str) -> None:
    assert sentence in problem(tmp_path, table)


def test_the_limit_of_long_results_is_what_it_says() -> None:
    assert (
        token_estimates.of_message(result("r", "c", "x" * 4 * (TRUNCATE_OVER_CHARACTERS - 4)))
        == TRUNCATE_OVER_CHARACTERS
    )
