"""What people ask for: words, or calls that the fake model makes exactly as they are spelt out."""

import random

_TOOLS = ("look", "put", "send", "send", "pay", "pay", "pay", "ask")
_ROUNDS = (0, 0, 1, 1, 1, 2, 3)
_FLOODS = 0.02


def prompt(chance: random.Random, mark: str) -> str:
    """Up to three rounds of calls; `what` of each names the message and the round."""
    if chance.random() < _FLOODS:
        return f'CALL flood {{"what": "{mark}/0"}}'
    rounds = chance.choice(_ROUNDS)
    calls = [_round(chance, f"{mark}/{number}") for number in range(rounds)]
    return " ".join(calls) or "Tell me something."


def _round(chance: random.Random, what: str) -> str:
    times = chance.choice((1, 1, 1, 2))
    return f'CALLS {times} {chance.choice(_TOOLS)} {{"what": "{what}"}}'
