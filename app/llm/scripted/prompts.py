"""The little language in which a prompt tells a model without a mind which tools to call.

`CALL name {json}` is one call, `CALLS 3 name {json}` three at once. A prompt may hold several of them:
each is a round of its own, played after the results of the one before. What stands within the arguments
of a call is for whoever gets them: so an agent can be told what to tell another.
"""

import json
import re
from dataclasses import dataclass
from itertools import islice

MAX_ROUNDS = 200
"""Directives that are looked at; each may have the rest of the prompt parsed."""
_DIRECTIVE = re.compile(r"\bCALL(?:S +(\d{1,3}))? +([\w.-]+) +(?=\{)")


@dataclass(frozen=True, slots=True)
class Round:
    """Calls that are made at once: the same tool with the same arguments, `times` over."""

    times: int
    tool: str
    arguments: str


def rounds_of(prompt: str) -> tuple[Round, ...]:
    """All rounds that a prompt asks for, in their order; what isn't JSON asks for nothing."""
    rounds: list[Round] = []
    end = 0
    for match in islice(_DIRECTIVE.finditer(prompt), MAX_ROUNDS):
        if match.start() < end:
            continue
        try:
            _, end = json.JSONDecoder().raw_decode(prompt, match.end())
        except (ValueError, RecursionError):
            continue
        rounds.append(Round(int(match[1] or 1), match[2], prompt[match.end() : end]))
    return tuple(rounds)
