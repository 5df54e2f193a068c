"""A run in a terminal: what it says as it comes, and questions where it needs a person."""

from app.cli.client.api_client import ApiClient, Body, ServerRefused
from app.cli.client.output import Output
from app.cli.client.ticket_prompt import Ask
from app.cli.exit_codes import ExitCode

_SOMEBODY_WAS_FIRST = frozenset({409, 410})
_CODES = {
    "succeeded": ExitCode.SUCCEEDED,
    "failed": ExitCode.FAILED,
    "budget_exceeded": ExitCode.BUDGET_EXCEEDED,
    "blocked": ExitCode.BLOCKED,
    "cancelled": ExitCode.CANCELLED,
}


def run_interactively(server: ApiClient, screen: Output, request: Body, ask: Ask) -> ExitCode:
    """Start a run and stay until it is done, or until nobody here answers its questions.

    Ctrl-C asks the server to cancel; the end comes through the stream like any other. A second one
    only leaves.
    """
    run = server.start(request)
    run_id = run["run_id"]
    screen.write_note(f"run {run_id} of thread {run['thread_id']}")
    stay = _InteractiveRun(server, screen, run_id, ask)
    while True:
        try:
            return stay.until_the_end()
        except KeyboardInterrupt:
            if stay.is_cancelling:
                screen.write_note(f"Left it. See how it ends: holdfast tail {run_id}")
                return ExitCode.INTERRUPTED
            screen.write_note("Asking the server to cancel the run … (Ctrl-C again only leaves)")
            stay.is_cancelling = True
            server.cancel(run_id, "Ctrl-C")


class _InteractiveRun:
    """Where we are in a run's events; it can be interrupted anywhere and goes on from there."""

    def __init__(self, server: ApiClient, screen: Output, run_id: str, ask: Ask) -> None:
        self._server = server
        self._screen = screen
        self._run_id = run_id
        self._ask = ask
        self._after = 0
        self.is_cancelling = False

    def until_the_end(self) -> ExitCode:
        while True:
            self._show_what_comes()
            run = self._server.run(self._run_id)
            if run["status"] == "done":
                return self._ended(run)
            if run["status"] == "waiting" and not self._answer(run["waiting"]):
                self._screen.write_note(self._how_to_go_on(run["waiting"]))
                return ExitCode.WAITING

    def _show_what_comes(self) -> None:
        for event in self._server.events(
            self._run_id, self._after, on_cut=lambda why: self._screen.write_note(f"[{why}]")
        ):
            # First, so that an interruption between the two shows nothing twice.
            self._after = event.get("seq", self._after)
            self._screen.show(event)

    def _answer(self, waiting: Body) -> bool:
        """Have every question answered; False when one is left open, or only events are waited for."""
        if not waiting["tickets"]:
            self._screen.write_note(f"[waiting: {waiting['message'] or waiting['reason']}]")
        questions = [ticket for ticket in waiting["tickets"] if ticket["kind"] != "event"]
        if waiting["tickets"] and not questions:
            return False
        return all(self._settle(ticket) for ticket in questions)

    def _how_to_go_on(self, waiting: Body) -> str:
        questions = [each["ticket_id"] for each in waiting["tickets"] if each["kind"] != "event"]
        if questions:
            return (
                "The run waits, and holds nothing meanwhile. Answer it with\n"
                f"  holdfast decide {self._run_id} TICKET approve\n"
                f"where TICKET is one of: {' '.join(questions)}"
            )
        events = [each["event"] for each in waiting["tickets"]]
        commands = [f"  holdfast signal {each['name']} {each['key']} JSON" for each in events]
        return "\n".join(
            ["The run waits for events, and holds nothing meanwhile. Send one with", *commands]
        )

    def _settle(self, ticket: Body) -> bool:
        while (decision := self._ask(ticket)) is not None:
            quoted = {"ticket_id": ticket["id"], "args_digest": ticket["args_digest"]}
            try:
                self._server.decide(self._run_id, quoted | decision)
            except ServerRefused as refusal:
                if refusal.status != 422 and refusal.status not in _SOMEBODY_WAS_FIRST:
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
