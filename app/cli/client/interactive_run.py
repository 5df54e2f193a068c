"""A run in a terminal: shows its output, and asks the user to decide its tickets."""

from app.cli.client.api_client import ApiClient, Body, ServerRefused
from app.cli.client.output import Output
from app.cli.client.ticket_prompt import Ask
from app.cli.exit_codes import ExitCode

_ALREADY_DECIDED = frozenset({409, 410})
_CODES = {
    "succeeded": ExitCode.SUCCEEDED,
    "failed": ExitCode.FAILED,
    "budget_exceeded": ExitCode.BUDGET_EXCEEDED,
    "blocked": ExitCode.BLOCKED,
    "cancelled": ExitCode.CANCELLED,
}


def run_interactively(server: ApiClient, screen: Output, request: Body, ask: Ask) -> ExitCode:
    """Start a run and show it until it is done, or waits for a ticket that the user leaves open.

    Ctrl-C requests a cancel, and the run's end is shown as usual. A second Ctrl-C only exits.
    """
    run = server.start(request)
    run_id = run["run_id"]
    screen.write_note(f"run {run_id} of thread {run['thread_id']}")
    interactive = _InteractiveRun(server, screen, run_id, ask)
    while True:
        try:
            return interactive.run_to_end()
        except KeyboardInterrupt:
            if interactive.is_cancelling:
                screen.write_note(f"The run continues. Follow it with: holdfast tail {run_id}")
                return ExitCode.INTERRUPTED
            screen.write_note("Cancelling the run … (Ctrl-C again exits without waiting)")
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
            if run["status"] == "waiting" and not self._answer(run["waiting"]):
                self._screen.write_note(self._how_to_continue(run["waiting"]))
                return ExitCode.WAITING

    def _show_events(self) -> None:
        for event in self._server.events(
            self._run_id, self._after, on_cut=lambda why: self._screen.write_note(f"[{why}]")
        ):
            # Updated first, so that Ctrl-C before `show` doesn't show an event twice.
            self._after = event.get("seq", self._after)
            self._screen.show(event)

    def _answer(self, waiting: Body) -> bool:
        """Ask the user to decide all tickets. False if one stays open, or only events can answer them."""
        if not waiting["tickets"]:
            self._screen.write_note(f"[waiting: {waiting['message'] or waiting['reason']}]")
        questions = [ticket for ticket in waiting["tickets"] if ticket["kind"] != "event"]
        if waiting["tickets"] and not questions:
            return False
        return all(self._decide(ticket) for ticket in questions)

    def _how_to_continue(self, waiting: Body) -> str:
        questions = [each["ticket_id"] for each in waiting["tickets"] if each["kind"] != "event"]
        if questions:
            return (
                "The run waits for a decision. Decide with\n"
                f"  holdfast decide {self._run_id} TICKET approve\n"
                f"where TICKET is one of: {' '.join(questions)}"
            )
        events = [each["event"] for each in waiting["tickets"]]
        commands = [f"  holdfast signal {each['name']} {each['key']} JSON" for each in events]
        return "\n".join(["The run waits for an event. Send it with", *commands])

    def _decide(self, ticket: Body) -> bool:
        while (decision := self._ask(ticket)) is not None:
            quoted = {"ticket_id": ticket["id"], "args_digest": ticket["args_digest"]}
            try:
                self._server.decide(self._run_id, quoted | decision)
            except ServerRefused as refusal:
                if refusal.status != 422 and refusal.status not in _ALREADY_DECIDED:
                    raise
                self._screen.write_note(str(refusal))
                if refusal.status == 422:
                    continue
            return True
        return False

    def _ended(self, run: Body) -> ExitCode:
        code = _CODES.get(run["outcome"], ExitCode.FAILED)
        if code is not ExitCode.SUCCEEDED:
            termination = run["termination"]
            why = termination.get("detail") or termination.get("code") or termination["type"]
            self._screen.write_note(f"The run is done: {run['outcome']} ({why}).")
        return code
