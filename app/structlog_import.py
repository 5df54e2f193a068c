"""Imports structlog without what it would import only because it is installed.

structlog imports rich, and with it pygments and attrs, for tracebacks in colour, and greenlet for contexts that no
thread of Holdfast has. Each process of a server would pay 4 MB and a tenth of a second of CPU for them.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import cast

_UNUSED = ("rich", "greenlet")


def import_structlog() -> None:
    """Import structlog as if these packages weren't installed. Call it before anything else imports structlog."""
    hidden = [name for name in _UNUSED if name not in sys.modules]
    for name in hidden:
        # None means that it isn't installed.
        sys.modules[name] = cast(ModuleType, None)
    try:
        import_module("structlog")
    finally:
        for name in hidden:
            del sys.modules[name]
