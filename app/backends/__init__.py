"""What executes an agent: the local loop, or a remote agent behind one contract.

`base` is the contract. `a2a` and `remote_holdfast` implement it, `registry` finds them by name, and `remote`
executes a run whose agent is remote. The local loop is in `runtime`. `workers` decides which worker executes
a run, and when.

To add a backend: write a class with `capabilities`, `execute_root`, `pending_questions` and `abort`
(`base.Backend`), and a factory that checks an endpoint and builds one (`base.Factory`). Register it in
`bootstrap/agents.py`. `tests/contracts/test_backends.py` tests the contract.
"""
