"""What the checks of `holdfast doctor` have found, one line each."""

import typer

from app.domain.redaction import Redact


class Findings:
    def __init__(self, redact: Redact) -> None:
        self.problems = 0
        self._redact = redact

    def ok(self, what: str, remark: str = "") -> None:
        typer.echo(f"ok       {what}{f': {remark}' if remark else ''}")

    def problem(self, what: str, sentence: str) -> None:
        self.problems += 1
        for line in self._redact(sentence).splitlines():
            typer.echo(f"problem  {what}: {line}")
