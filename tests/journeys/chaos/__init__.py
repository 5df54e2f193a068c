"""Faults on purpose, and the proof that nothing is lost: `python -m tests.journeys.chaos --seconds 60`.

Replicas, a Postgres, a model provider and clients run as real processes while a nemesis breaks them by a
plan that follows from a seed. Everything that was asked and heard is a history; afterwards a checker, which
is pure, holds it against what the database has. To read in this order:

- `plan` which faults, when; `nemesis` does them to `fleet` (the replicas), `postgres`, `roads` (the network
  between clients and replicas) and the model provider.
- `clients` what people do, `prompts` what they ask agents for, which may be to have others do it; `asking`
  and `readers` how; `history` what is kept of it.
- `aftermath` faults stop, everything must come to its end; `truth` what is in the database then.
- `checks_of_*` the promises, one file per kind; `checker` all of them.
- `trial` puts it together, `table` tells what came of it, `mutated_serve` serves with a bug on purpose.
"""
