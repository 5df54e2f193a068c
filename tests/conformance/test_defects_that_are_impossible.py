"""What goes wrong in other runtimes of this kind, and the tests that would break if it could happen here."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

DEFECTS: dict[str, tuple[str, ...]] = {
    # --- durability
    "a checkpoint writes the whole log again": ("a_checkpoint_writes_all_that_is_new",),
    "an append overwrites somebody else's": ("nobody_appends_where_somebody_else_has",),
    "compaction deletes history and moves what ranges point to": (
        "a_window_shortens_requests_and_never_the_log",
        "a_summary_takes_the_place_of_what_it_stands_for",
    ),
    "a crash after the first checkpoint leaves a run running for ever": (
        "what_a_finished_tool_did_is_not_done_again",
        "a_suspended_run_is_finished_by_another_replica",
    ),
    "an error ends a run without an end that anybody sees": (
        "inference_error_produces_error_termination",
        "a_hook_that_raises_ends_the_run_visibly",
    ),
    "what ran between two suspensions isn't saved": ("one_of_two_answers_keeps_the_run_waiting",),
    "a suspended run that was cancelled goes on waiting": ("cancel_while_suspended_is_done",),
    "a waiting run can't be cancelled after a restart": ("a_thread_whose_owner_is_lost_settles_too",),
    "counters and limits begin again with each activation": (
        "counters_survive_a_suspension_and_another_process",
        "run_state_is_restored_on_continuation",
    ),
    "a takeover forgets what was asked for": ("overrides_hold_after_a_takeover_and_a_resume",),
    "the delivery of a waiting run is told as something else": (
        "waiting_state_persists_suspended_tool_tickets",
    ),
    "the text of an error and the detail of a stop are lost": (
        "an_ending_is_told_and_read_back_whole",
    ),
    # --- people in the loop
    "ways to resume that make no difference": (
        "replay_tool_call_executes_original_tool",
        "pass_decision_records_decision_payload_without_rewriting_arguments",
        "use_decision_records_decision_payload_without_rewriting_arguments",
    ),
    "some answers after a restart drop the other questions": ("what_is_not_answered_keeps_waiting",),
    "two answers overwrite each other": (
        "of_two_decisions_at_once_one_wins_and_the_other_is_told",
        "of_fifty_deciders_one_wins_and_the_call_runs_once",
    ),
    "an answer to an unknown call kills the run": ("resume_rejects_unknown_call_id",),
    "a repeated answer counts twice": (
        "a_decided_ticket_shows_the_winner_and_knows_its_repetition",
        "cancelled_resume_is_emitted_once_even_when_other_calls_replay",
    ),
    "a provider is sent two results of one call": ("the_last_result_of_a_call_counts",),
    "a rest is said twice": ("run_finish_event_emitted_last",),
    "a denial ends the whole run": ("the_model_is_told_why_it_was_denied",),
    # --- the loop
    "one inference too many is paid for and thrown away": (
        "max_rounds_exceeded",
        "a_stop_before_an_inference_costs_none",
    ),
    "errors in a row are never counted": (
        "errors_in_a_row_stop_a_run_and_a_success_starts_over",
    ),
    "choosing plugins turns the limit of rounds off": ("the_limit_of_rounds_holds_whatever_plugins_there_are",),
    "hooks see an agent that isn't the run's": ("hooks_see_the_run_as_it_stands",),
    "text that was streamed is missing from the message": (
        "an_answer_that_breaks_is_whole_in_the_log",
        "cancelled_text_is_kept_and_marked",
    ),
    "a cancel while waiting to try again is an error": (
        "cancelling_while_a_retry_is_waited_for_is_a_cancel",
    ),
    "a summary that is ready at the wrong moment blocks all further ones": (
        "a_summary_that_is_ready_when_a_run_comes_to_rest_is_kept",
    ),
    "a round that ends blocked isn't counted": ("multiple_tool_calls_partial_intercept",),
    "a broken gate leaves half a state": (
        "a_hook_that_breaks_ends_the_run_with_every_call_answered",
    ),
    "a refused change of state is silent": ("a_refused_update_is_told_and_the_others_are_made",),
    "a hand-off loses the client's tools": ("an_agent_that_goes_on_has_the_clients_tools",),
    "the run after a hand-off is back at the first agent": (
        "a_start_that_names_none_goes_on_with_who_was_at_work",
    ),
    "background tasks of all runs share one inbox": ("a_run_reaches_its_own_tasks_only",),
    "arguments aren't checked, tools take for ever, and nothing tells two calls apart": (
        "arguments_that_break_the_schema_are_told_to_the_model",
        "an_async_tool_that_takes_too_long_is_stopped",
        "a_call_that_may_be_done_again_is_done_under_the_same_key",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def sources() -> str:
    return "\n".join(file.read_text() for file in TESTS.rglob("test_*.py"))


@pytest.mark.parametrize("defect", DEFECTS)
def test_every_defect_has_a_test_that_would_break(defect: str, sources: str) -> None:
    for name in DEFECTS[defect]:
        assert re.search(rf"def test_{name}\b", sources), name
