"""A long trial, `python -m tests.journeys.chaos --seconds 600 --seed 7`: prints a table, fails on violations."""

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

from tests.journeys.chaos.plan import MAX_PAUSE, MIN_PAUSE, plan
from tests.journeys.chaos.postgres import Postgres
from tests.journeys.chaos.table import table
from tests.journeys.chaos.trial import Outcome, Setting, run_trial
from tests.support.providers import fake_provider

_SHOWN = 20


async def _trial(setting: Setting, folder: Path, longest_pause: float) -> Outcome:
    pauses = (MIN_PAUSE, max(MIN_PAUSE, longest_pause))
    planned = plan(setting.seed, setting.seconds, setting.replicas, pauses=pauses)
    with fake_provider() as provider:
        async with Postgres(folder / "pg").running() as postgres:
            return await run_trial(setting, planned, postgres, provider, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--people", type=int, default=6)
    parser.add_argument(
        "--pause", type=float, default=MAX_PAUSE, help="longest pause between two faults"
    )
    options = parser.parse_args()
    setting = Setting(
        seed=options.seed,
        seconds=options.seconds,
        replicas=options.replicas,
        people=options.people,
    )
    folder = Path(tempfile.mkdtemp(prefix=f"holdfast-chaos-{options.seed}-"))
    folder.chmod(0o755)
    print(f"seed {options.seed}, in {folder}", file=sys.stderr)
    outcome = asyncio.run(_trial(setting, folder, options.pause))
    outcome.keep(folder)
    print(table(outcome, options.seed))
    for violation in outcome.violations[:_SHOWN]:
        print(f"\n{violation}"[:2000])
    if outcome.violations:
        sys.exit(f"\n{len(outcome.violations)} violations; the history is in {folder}.")


if __name__ == "__main__":
    main()
