"""The number of examples, their seed, and how to replay a failing one.

`HOLDFAST_MACHINE_EXAMPLES` sets the number; without `HOLDFAST_MACHINE_SEED` they are the same each time.
`HOLDFAST_MACHINE_SHRINK=1` looks for a smaller example that fails too, which takes a while.
"""

import os

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

EXAMPLES = int(os.environ.get("HOLDFAST_MACHINE_EXAMPLES", "300"))
EXAMPLES_IN_POSTGRES = max(30, EXAMPLES // 20)
_SEED = os.environ.get("HOLDFAST_MACHINE_SEED")
_SHRINKS = os.environ.get("HOLDFAST_MACHINE_SHRINK") == "1"


def play(machine: type[RuleBasedStateMachine], examples: int = EXAMPLES) -> None:
    """Run a state machine with Hypothesis; a failure prints how to replay it."""
    if _SEED is not None:
        machine = seed(int(_SEED))(machine)
    chosen = settings(
        max_examples=examples,
        stateful_step_count=12,
        deadline=None,
        derandomize=_SEED is None,
        database=None,
        phases=(Phase.generate, Phase.shrink) if _SHRINKS else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    try:
        run_state_machine_as_test(machine, settings=chosen)
    except Exception as error:
        again = f"HOLDFAST_MACHINE_EXAMPLES={EXAMPLES}"
        again += "" if _SEED is None else f" HOLDFAST_MACHINE_SEED={_SEED}"
        error.add_note(f"To play it again: {again} HOLDFAST_MACHINE_SHRINK=1 pytest tests/machine")
        raise
