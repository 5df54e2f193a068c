"""The command line: serve, work, migrate, and talk to a server.

Each command calls a module of this package. A command that fails prints one sentence to stderr and exits
with a code, without a traceback.
"""

from app.cli.exit_codes import ExitCode
from app.structlog_import import import_structlog


def main() -> None:
    try:
        import_structlog()
        # Imported here, so that Ctrl-C during the imports prints no traceback.
        from app.cli.commands import app  # noqa: PLC0415  see above

        app()
    except KeyboardInterrupt:
        raise SystemExit(ExitCode.INTERRUPTED) from None
