"""One step's tool calls: the gate, execution, tickets and results.

`batch` is the state of the calls; `runtime/run_tool_calls` takes them as far as they get.
"""
