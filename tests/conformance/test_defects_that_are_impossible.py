"""Known defects of similar runtimes, each with the tests that fail if Holdfast had it."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

DEFECTS: dict[str, tuple[str, ...]] = {
    # --- durability
    "a checkpoint writes the whole log again": ("a_checkpoint_writes_all_that_is_new",),
    "an append overwrites another message": ("a_checkpoint_does_not_append_at_an_occupied_position",),
    "compaction deletes history and moves what ranges point to": (
        "a_window_shortens_requests_and_never_the_log",
        "a_summary_replaces_the_messages_of_its_range",
    ),
    "a crash after the first checkpoint leaves a run running for ever": (
        "a_finished_call_is_not_repeated",
        "a_suspended_run_is_finished_by_another_replica",
    ),
    "an error ends a run without a visible end": (
        "inference_error_produces_error_termination",
        "a_hook_that_raises_ends_the_run_with_its_error",
    ),
    "what ran between two suspensions isn't saved": ("one_of_two_decisions_keeps_the_run_waiting",),
    "a suspended run that was cancelled keeps waiting": ("cancel_while_suspended_is_done",),
    "a waiting run can't be cancelled after a restart": ("a_thread_whose_worker_is_lost_is_cancelled_too",),
    "counters and limits begin again with each activation": (
        "counters_survive_a_suspension_and_another_process",
        "run_state_is_restored_on_continuation",
    ),
    "a takeover forgets what was asked for": ("overrides_persist_after_a_takeover_and_a_resume",),
    "the delivery of a waiting run is reported as something else": (
        "waiting_state_persists_suspended_tool_tickets",
    ),
    "the text of an error and the detail of a stop are lost": (
        "a_termination_survives_a_round_trip",
    ),
    # --- people in the loop
    "ways to resume that make no difference": (
        "replay_tool_call_executes_original_tool",
        "pass_decision_records_decision_payload_without_rewriting_arguments",
        "use_decision_records_decision_payload_without_rewriting_arguments",
    ),
    "some answers after a restart drop the other questions": ("undecided_calls_keep_waiting",),
    "two answers overwrite each other": (
        "one_of_two_simultaneous_decisions_wins",
        "one_of_fifty_decisions_wins_and_the_call_runs_once",
    ),
    "an answer to an unknown call kills the run": ("resume_rejects_unknown_call_id",),
    "a repeated answer counts twice": (
        "a_decided_ticket_names_its_decision_and_recognises_a_repetition",
        "cancelled_resume_is_emitted_once_even_when_other_calls_replay",
    ),
    "a provider is sent two results of one call": ("the_last_result_of_a_call_counts",),
    "a suspension is emitted twice": ("run_finish_event_emitted_last",),
    "a denial ends the whole run": ("the_model_reads_why_a_call_was_denied",),
    # --- the loop
    "one inference too many is paid for and thrown away": (
        "max_rounds_exceeded",
        "a_stop_before_an_inference_prevents_it",
    ),
    "errors in a row are never counted": (
        "consecutive_errors_stop_a_run_and_a_success_resets_the_count",
    ),
    "choosing plugins turns the limit of rounds off": ("the_limit_of_rounds_applies_with_and_without_plugins",),
    "hooks see an agent that isn't the run's": ("hooks_see_the_current_state_of_the_run",),
    "text that was streamed is missing from the message": (
        "an_interrupted_answer_is_complete_in_the_log",
        "the_text_of_a_cancelled_answer_is_stored_and_marked",
    ),
    "a cancel while waiting to try again is an error": (
        "cancel_during_the_pause_before_a_retry",
    ),
    "a summary that is ready at the wrong moment blocks all further ones": (
        "a_summary_that_is_ready_when_the_run_suspends_is_stored",
    ),
    "a round that ends blocked isn't counted": ("multiple_tool_calls_partial_intercept",),
    "a broken gate leaves half a state": (
        "a_hook_that_raises_ends_the_run_with_a_result_for_every_call",
    ),
    "a refused change of state is silent": ("a_rejected_update_is_reported_and_the_others_are_applied",),
    "a hand-off loses the client's tools": ("an_agent_that_was_handed_the_run_has_the_clients_tools",),
    "the run after a hand-off is back at the first agent": (
        "a_start_without_an_agent_uses_the_threads_last_agent",
    ),
    "background tasks of all runs share one inbox": ("a_run_reaches_its_own_tasks_only",),
    "arguments aren't checked, tools take for ever, and two calls share a key": (
        "arguments_that_violate_the_schema_are_reported_to_the_model",
        "an_async_tool_that_takes_too_long_is_stopped",
        "a_repeatable_call_is_repeated_under_the_same_key",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def sources() -> str:
    return "\n".join(file.read_text() for file in TESTS.rglob("test_*.py"))


@pytest.mark.parametrize("defect", DEFECTS)
def test_every_listed_defect_has_a_test(defect: str, sources: str) -> None:
    for name in DEFECTS[defect]:
        assert re.search(rf"def test_{name}\b", sources), name
