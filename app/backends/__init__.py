"""Who executes a run: our own loop, or an agent that lives elsewhere, behind one contract.

What lives here: the contract (`base`), those that fulfil it for agents elsewhere (`a2a`, `holdfast`), the
names they are known by (`registry`), and the life of a run whose agent is remote (`remote_root`,
`remote_run`): the same events, checkpoints, tickets and endings as those of a local one. May not: know
SQL or our own HTTP surface; decide when a run is executed.

To add a backend: write a class with `capabilities`, `execute_root`, `asked_now` and `abort` (`base.Backend`)
and a factory that checks an endpoint and builds one (`base.Factory`), and name it in `wiring/agents.py`.
Nothing else knows it. The contract suite in `tests/contracts/test_backends.py` takes it as one more
parameter; it says what must hold.
"""
