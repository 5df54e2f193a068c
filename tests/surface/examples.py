"""How many requests are made up for each operation, which, and how to send a failing one again.

`HOLDFAST_SURFACE_EXAMPLES` says how many; without `HOLDFAST_SURFACE_SEED` they are the same each time.
"""

import os
from collections.abc import Callable
from typing import TypeVar

from hypothesis import HealthCheck, Phase, seed, settings

EXAMPLES = int(os.environ.get("HOLDFAST_SURFACE_EXAMPLES", "12"))
_SEED = os.environ.get("HOLDFAST_SURFACE_SEED")

T = TypeVar("T", bound=Callable[..., None])

CHOSEN = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=_SEED is None,
    database=None,
    phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)


def made_up(test: T) -> T:
    """So many examples of a test."""
    return CHOSEN(test if _SEED is None else seed(int(_SEED))(test))
