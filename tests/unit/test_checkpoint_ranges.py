"""The output range of a run: found in the log, carried over resumes, never taken from others."""

from collections.abc import Sequence

from app.domain.checkpoints import OutputRanges, materialize_output
from app.domain.ids import CallId, MessageId, RunId
from app.domain.runs.runs import MessageInput, MessageOutput
from app.domain.threads.messages import LoggedMessage, Message, MessageRange, Role, Text, Visibility

RUN = RunId("run-1")
OTHER = RunId("run-0")


def said(
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
    input_message_count: int = 0,
) -> OutputRanges:
    return materialize_output(
        log,
        run_id=RUN,
        input=None if input is None else MessageInput(MessageRange(*input)),
        previous=previous or MessageOutput(),
        step_count=step_count,
        input_message_count=input_message_count,
    )


def ids(output: MessageOutput) -> list[str]:
    return list(output.message_ids)


def test_materialize_message_log_preserves_output_across_same_run_resume() -> None:
    old = said("m-old", Role.ASSISTANT, run_id=RUN, step=0)
    log = logged(said("u-1", Role.USER), old, said("u-2", Role.USER), said("m-new", Role.ASSISTANT))
    previous = MessageOutput(MessageRange(2, 2), (MessageId("m-old"),))

    found = output_of(log, input=(1, 3), previous=previous, step_count=2)

    assert found.output == MessageOutput(
        MessageRange(2, 4), (MessageId("m-old"), MessageId("m-new"))
    )
    assert found.messages[1].message == old
    assert found.messages[3].message == said("m-new", Role.ASSISTANT, run_id=RUN, step=1)


def test_the_new_end_of_a_log_gives_the_same_output_as_the_whole_log() -> None:
    log = logged(
        said("u-1", Role.USER),
        said("m-1", Role.ASSISTANT, run_id=RUN, step=0),
        said("t-1", Role.TOOL, run_id=RUN, step=0),
        said("m-2", Role.ASSISTANT),
    )
    previous = MessageOutput(MessageRange(2, 3), (MessageId("m-1"), MessageId("t-1")))

    whole = output_of(log, input=(1, 1), previous=previous, step_count=2)
    end = output_of(log[3:], input=(1, 1), previous=previous, step_count=2)

    assert whole.output == end.output
    assert whole.messages[3:] == end.messages
    assert ids(end.output) == ["m-1", "t-1", "m-2"]


def test_without_anything_new_the_previous_output_stays() -> None:
    previous = MessageOutput(MessageRange(2, 2), (MessageId("m-1"),))
    assert output_of([], input=(1, 1), previous=previous).output == previous


def test_a_log_of_questions_only_has_no_output() -> None:
    found = output_of(logged(said("s", Role.SYSTEM), said("u", Role.USER)))
    assert found.output == MessageOutput()


def test_answers_within_the_input_range_belong_to_others() -> None:
    theirs = said("m-1", Role.ASSISTANT, run_id=OTHER, step=0)
    log = logged(theirs, said("u-2", Role.USER), said("m-2", Role.ASSISTANT))

    found = output_of(log, input=(1, 2))

    assert ids(found.output) == ["m-2"]
    assert found.output.range == MessageRange(3, 3)
    assert found.messages[0].message == theirs


def test_without_an_input_range_output_begins_where_the_run_first_stamped() -> None:
    log = logged(
        said("m-1", Role.ASSISTANT, run_id=OTHER, step=0),
        said("m-2", Role.ASSISTANT, run_id=RUN, step=0),
        said("t-2", Role.TOOL),
    )
    assert ids(output_of(log).output) == ["m-2", "t-2"]


def test_without_range_and_stamps_output_begins_after_the_counted_input() -> None:
    log = logged(said("m-1", Role.ASSISTANT), said("u", Role.USER), said("m-2", Role.ASSISTANT))
    assert ids(output_of(log, input_message_count=2).output) == ["m-2"]
    assert ids(output_of(log).output) == ["m-1", "m-2"]


def test_internal_messages_are_not_output() -> None:
    hint = said("hint", Role.ASSISTANT, visibility=Visibility.INTERNAL)
    log = logged(said("u", Role.USER), said("m", Role.ASSISTANT), hint)

    found = output_of(log, input=(1, 1))

    assert found.output.range == MessageRange(2, 2)
    assert found.messages[2].message == hint


def test_a_message_before_the_first_step_has_no_step_index() -> None:
    found = output_of(logged(said("m", Role.ASSISTANT)), step_count=0)
    assert found.messages[0].message.step_index is None
    assert found.messages[0].message.run_id == RUN


def test_a_run_names_each_message_once_however_often_it_looks() -> None:
    log = logged(said("u", Role.USER), said("m", Role.ASSISTANT))
    first = output_of(log, input=(1, 1))
    second = output_of(first.messages, input=(1, 1), previous=first.output)
    assert second == first
