"""A run in a terminal: shows its output, and asks the user to decide its tickets."""

from app.cli.client.api_client import ApiClient, Body, ServerRefused
from app.cli.client.output import Output
from app.cli.client.ticket_prompt import Ask
from app.cli.exit_codes import ExitCode

_ALREADY_DECIDED = frozenset({409, 410})
_DECIDED_BY_PROGRAMS = frozenset({"child", "event"})
_CODES = {
    "succeeded": ExitCode.SUCCEEDED,
    "failed": ExitCode.FAILED,
    "budget_exceeded": ExitCode.BUDGET_EXCEEDED,
    "blocked": ExitCode.BLOCKED,
    "cancelled": ExitCode.CANCELLED,
}


def run_interactively(server: ApiClient, screen: Output, request: Body, ask: Ask) -> ExitCode:
    """Start a run and show it until it is done, paused, or waits for a ticket that the user leaves open.

    A wait that ends without a person, such as for a delegate at work, is shown and continues.

    Ctrl-C requests a cancel, and the run's end is shown as usual. A second Ctrl-C only exits.
    """
    run = server.start(request)
    run_id = run["id"]
    screen.write_status(f"run {run_id} of thread {run['thread_id']}")
    interactive = _InteractiveRun(server, screen, run_id, ask)
    while True:
        try:
            return interactive.run_to_end()
        except KeyboardInterrupt:
            if interactive.is_cancelling:
                screen.write_status(f"The run continues. Follow it with: holdfast tail {run_id}")
                return ExitCode.INTERRUPTED
            screen.write_status("Cancelling the run … (Ctrl-C again exits without waiting)")
            interactive.is_cancelling = True
            server.cancel(run_id, "Ctrl-C")


class _InteractiveRun:
    """The position in a run's events. Ctrl-C may interrupt it anywhere; it continues from there."""

    def __init__(self, server: ApiClient, screen: Output, run_id: str, ask: Ask) -> None:
        self._server = server
        self._screen = screen
        self._run_id = run_id
        self._ask = ask
        self._after = 0
        self.is_cancelling = False

    def run_to_end(self) -> ExitCode:
        while True:
            self._show_events()
            run = self._server.run(self._run_id)
            if run["status"] == "done":
                return self._ended(run)
            if _needs_person(run) and not self._answer(run):
                return ExitCode.WAITING

    def _show_events(self) -> None:
        for event in self._server.events(
            self._run_id, self._after, on_cut=lambda why: self._screen.write_status(f"[{why}]")
        ):
            # Updated first, so that Ctrl-C before `show` doesn't show an event twice.
            self._after = event["seq"]
            self._screen.show(event)

    def _answer(self, run: Body) -> bool:
        """Ask the user to decide all tickets. False if one stays open, or if the run is paused."""
        if (pause := run["pause"]) is not None:
            reason = f": {pause['reason']}" if pause["reason"] else ""
            self._screen.write_status(
                f"{pause['requested_by']} has paused the run{reason}.\n"
                f"Resume it with: holdfast resume {self._run_id}"
            )
            return False
        questions = _questions(run)
        for ticket in questions:
            if ticket["run_id"] != self._run_id:
                self._screen.write_status(f"\nAgent {ticket['agent_id']} asks:")
            if not self._decide(ticket):
                break
        else:
            return True
        self._screen.write_status(_how_to_decide([ticket["id"] for ticket in questions]))
        return False

    def _decide(self, ticket: Body) -> bool:
        while (decision := self._ask(ticket)) is not None:
            quoted = {"ticket_id": ticket["id"], "args_digest": ticket["args_digest"]}
            try:
                self._server.decide(self._run_id, quoted | decision)
            except ServerRefused as refusal:
                if refusal.status != 422 and refusal.status not in _ALREADY_DECIDED:
                    raise
                self._screen.write_status(str(refusal))
                if refusal.status == 422:
                    continue
            return True
        return False

    def _ended(self, run: Body) -> ExitCode:
        code = _CODES.get(run["outcome"], ExitCode.FAILED)
        if code is not ExitCode.SUCCEEDED:
            termination = run["termination"]
            why = termination.get("detail") or termination.get("code") or termination["type"]
            self._screen.write_status(f"The run is done: {run['outcome']} ({why}).")
        return code


def _needs_person(run: Body) -> bool:
    return run["status"] == "waiting" and bool(run["waiting"]["needs_decision"])


def _questions(run: Body) -> list[Body]:
    """The tickets that people decide: those of the run, then those of its children."""
    asked = run["waiting"]["tickets"]
    return [ticket for ticket in asked if ticket["kind"] not in _DECIDED_BY_PROGRAMS]


def _how_to_decide(tickets: list[str]) -> str:
    if len(tickets) == 1:
        return f"The run waits for a decision. Decide with\n  holdfast decide approve {tickets[0]}"
    return (
        "The run waits for decisions. Decide each with\n"
        "  holdfast decide approve TICKET\n"
        f"where TICKET is one of: {' '.join(tickets)}"
    )
