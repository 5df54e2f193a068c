"""What has to happen before the rest of `app` is imported.

Holdfast's code is the top-level package `app`. A project that has one of the same name earlier in the search
path would otherwise fail with an import error deep inside. And the command line imports structlog in its own
way, before a module of `app` imports it.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

OWN_APP = Path(__file__).resolve().parents[1] / "app"


def _found_app() -> Path | None:
    """The folder or file that `import app` gets here."""
    try:
        spec = find_spec("app")
    except ValueError:  # a module without a spec
        return None
    if spec is None:
        return None
    places = [*(spec.submodule_search_locations or ()), *([spec.origin] if spec.origin else ())]
    return Path(places[0]).resolve() if places else None


def check_own_app() -> None:
    """Where `app` is another package, stop with a sentence that says what to do."""
    found = _found_app()
    if found == OWN_APP:
        return
    sentence = (
        f"Holdfast needs the package name 'app', and here it means {found or 'another module'}."
        " Rename that package, or take its folder off PYTHONPATH and sys.path in processes that import"
        " holdfast."
    )
    if _is_command_line():
        # A sentence and no traceback.
        raise SystemExit(f"holdfast: {sentence}")
    raise ImportError(sentence, name="app")


def _is_command_line() -> bool:
    return Path(sys.argv[0]).name == "holdfast" or ["-m", "holdfast"] == sys.orig_argv[1:3]


check_own_app()
if _is_command_line():
    from app.structlog_import import import_structlog

    import_structlog()
