"""Which agents exist, and what each is made of: its spec, its model, its tools.

Agents are data, read from a file that is checked as a whole before anything runs: every problem names
the file, the key and the remedy. A spec that was stored is resolved against what is there now; one that
can't be honoured is an answer and not an error. May import `tools`, `llm`, `runtime` and `domain`.
"""
