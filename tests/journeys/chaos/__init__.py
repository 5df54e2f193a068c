"""Fault injection, and the check that nothing is lost: `python -m tests.journeys.chaos --seconds 60`.

Replicas, a Postgres, a model provider and clients run as real processes while a nemesis breaks them by a
plan that follows from a seed. All requests and received frames form a history; afterwards a pure checker
compares it with the database. Read in this order:

- `plan` which faults happen when; `nemesis` injects them into `fleet` (the replicas), `postgres`,
  `proxies` (the network between clients and replicas) and the model provider.
- `clients` what users do, `prompts` what they ask agents for, delegation included; `requests` and `readers`
  send requests and read streams; `history` records them.
- `aftermath` faults stop, and every run must end; `truth` reads the database then.
- `checks_of_*` the guarantees, one file per kind; `checker` all of them.
- `trial` runs one trial, `table` prints its results, `mutated_serve` serves with a planted bug.
"""
