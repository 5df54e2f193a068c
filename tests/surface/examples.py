"""The number and the seed of generated requests per operation.

`HOLDFAST_SURFACE_EXAMPLES` sets the number; without `HOLDFAST_SURFACE_SEED` they are the same in each run.
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


def generated(test: T) -> T:
    """Run a test with that many examples."""
    return CHOSEN(test if _SEED is None else seed(int(_SEED))(test))
