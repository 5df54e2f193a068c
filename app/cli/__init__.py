"""The command line: serve, work, migrate, and talk to a server.

Each command is a thin shell around a module of this package. A command that can't do what it was asked
says why in one sentence on stderr and leaves with an exit code; nobody sees a traceback.
"""

from app.cli.exit_codes import ExitCode


def main() -> None:
    try:
        # Here, so that Ctrl-C is as quiet while everything is still being imported.
        from app.cli.commands import app  # noqa: PLC0415  see above

        app()
    except KeyboardInterrupt:
        raise SystemExit(ExitCode.INTERRUPTED) from None
