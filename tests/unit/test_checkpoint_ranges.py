"""The output range of a run: found in the log, kept over resumes, without messages of other runs."""

from collections.abc import Sequence

import pytest

from app.domain.checkpoints import OutputRanges, materialize_output
from app.domain.ids import CallId, MessageId, RunId
from app.domain.runs.runs import MessageInput, MessageOutput
from app.domain.threads.messages import LoggedMessage, Message, MessageRange, Role, Text, Visibility

RUN = RunId("run-1")
OTHER = RunId("run-0")


def stamped(
    id: str,
    role: Role,
    *,
    run_id: RunId | None = None,
    step: int | None = None,
    visibility: Visibility = Visibility.ALL,
) -> Message:
    return Message(
        id=MessageId(id),
        role=role,
        content=(Text(id),),
        tool_call_id=CallId(f"call of {id}") if role is Role.TOOL else None,
        run_id=run_id,
        step_index=step,
        visibility=visibility,
    )


def logged(*messages: Message, from_seq: int = 1) -> list[LoggedMessage]:
    return [LoggedMessage(seq, message) for seq, message in enumerate(messages, from_seq)]


def output_of(
    log: Sequence[LoggedMessage],
    *,
    input: tuple[int, int] | None = None,
    previous: MessageOutput | None = None,
    step_count: int = 1,
) -> OutputRanges:
    return materialize_output(
        log,
        run_id=RUN,
        input=None if input is None else MessageInput(MessageRange(*input)),
        previous=previous or MessageOutput(),
        step_count=step_count,
    )


def ids(output: MessageOutput) -> list[str]:
    return list(output.message_ids)


def test_materialize_message_log_preserves_output_across_same_run_resume() -> None:
    old = stamped("m-old", Role.ASSISTANT, run_id=RUN, step=0)
    log = logged(
        stamped("u-1", Role.USER), old, stamped("u-2", Role.USER), stamped("m-new", Role.ASSISTANT)
    )
    previous = MessageOutput(MessageRange(2, 2), (MessageId("m-old"),))

    found = output_of(log, input=(1, 3), previous=previous, step_count=2)

    assert found.output == MessageOutput(
        MessageRange(2, 4), (MessageId("m-old"), MessageId("m-new"))
    )
    assert found.messages[1].message == old
    assert found.messages[3].message == stamped("m-new", Role.ASSISTANT, run_id=RUN, step=1)


def test_the_new_part_of_a_log_gives_the_same_output_as_the_whole_log() -> None:
    log = logged(
        stamped("u-1", Role.USER),
        stamped("m-1", Role.ASSISTANT, run_id=RUN, step=0),
        stamped("t-1", Role.TOOL, run_id=RUN, step=0),
        stamped("m-2", Role.ASSISTANT),
    )
    previous = MessageOutput(MessageRange(2, 3), (MessageId("m-1"), MessageId("t-1")))

    whole = output_of(log, input=(1, 1), previous=previous, step_count=2)
    end = output_of(log[3:], input=(1, 1), previous=previous, step_count=2)

    assert whole.output == end.output
    assert whole.messages[3:] == end.messages
    assert ids(end.output) == ["m-1", "t-1", "m-2"]


def test_without_a_new_message_the_previous_output_stays() -> None:
    previous = MessageOutput(MessageRange(2, 2), (MessageId("m-1"),))
    assert output_of([], input=(1, 1), previous=previous).output == previous


def test_a_log_of_questions_only_has_no_output() -> None:
    found = output_of(logged(stamped("s", Role.SYSTEM), stamped("u", Role.USER)))
    assert found.output == MessageOutput()


def test_answers_within_the_input_range_belong_to_others() -> None:
    theirs = stamped("m-1", Role.ASSISTANT, run_id=OTHER, step=0)
    log = logged(theirs, stamped("u-2", Role.USER), stamped("m-2", Role.ASSISTANT))

    found = output_of(log, input=(1, 2))

    assert ids(found.output) == ["m-2"]
    assert found.output.range == MessageRange(3, 3)
    assert found.messages[0].message == theirs


def test_without_an_input_range_output_begins_where_the_run_first_stamped() -> None:
    log = logged(
        stamped("m-1", Role.ASSISTANT, run_id=OTHER, step=0),
        stamped("m-2", Role.ASSISTANT, run_id=RUN, step=0),
        stamped("t-2", Role.TOOL),
    )
    assert ids(output_of(log).output) == ["m-2", "t-2"]


def test_without_range_and_stamps_every_answer_of_the_log_is_output() -> None:
    log = logged(
        stamped("m-1", Role.ASSISTANT), stamped("u", Role.USER), stamped("m-2", Role.ASSISTANT)
    )
    assert ids(output_of(log).output) == ["m-1", "m-2"]


def test_internal_messages_are_not_output() -> None:
    hint = stamped("hint", Role.ASSISTANT, visibility=Visibility.INTERNAL)
    log = logged(stamped("u", Role.USER), stamped("m", Role.ASSISTANT), hint)

    found = output_of(log, input=(1, 1))

    assert found.output.range == MessageRange(2, 2)
    assert found.messages[2].message == hint


@pytest.mark.parametrize("step_count, step_index", [(0, None), (1, 0), (2, 1)])
def test_a_new_message_has_the_index_of_the_newest_step(
    step_count: int, step_index: int | None
) -> None:
    found = output_of(logged(stamped("m", Role.ASSISTANT)), step_count=step_count)
    assert found.messages[0].message.step_index == step_index
    assert found.messages[0].message.run_id == RUN


def test_the_output_names_each_message_once_over_several_checkpoints() -> None:
    log = logged(stamped("u", Role.USER), stamped("m", Role.ASSISTANT))
    first = output_of(log, input=(1, 1))
    second = output_of(first.messages, input=(1, 1), previous=first.output)
    assert second == first
