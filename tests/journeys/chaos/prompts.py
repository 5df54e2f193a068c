"""Prompts: plain words, or calls that the fake model makes as they are written."""

import json
import random
import re
from collections.abc import Mapping, Sequence

_TOOLS = ("look", "put", "send", "send", "pay", "pay", "pay", "ask")
_WAITING_TOOLS = (*_TOOLS, "receive", "receive")
"""Tools of agents that clients start directly, because clients know the event keys in their own prompts."""
_ROUNDS = (0, 0, 1, 1, 1, 2, 3)
_FLOODS = 0.02
_LIMITED = 0.15
"""The share of prompts for which the provider first asks for a long pause."""
_BELOW: Mapping[str, Sequence[str]] = {
    "boss": ("lead", "lead", "lead", "forgetful"),
    "patron": ("lead", "distant_lead", "distant_lead"),
    "lead": ("worker", "worker", "many_hands"),
    "distant_lead": ("worker", "many_hands"),
    "forgetful": ("clerk",),
}
"""The agents that an agent may delegate to; repetitions are weights."""
_OF_CLERKS = ("look", "put")


def prompt(chance: random.Random, mark: str) -> str:
    """Up to three rounds of calls; `what` of each names the message and the round."""
    if chance.random() < _FLOODS:
        return f'CALL flood {{"what": "{mark}/0"}}'
    rounds = chance.choice(_ROUNDS)
    calls = [_round(chance, f"{mark}/{number}", _WAITING_TOOLS) for number in range(rounds)]
    words = " ".join(calls) or "Tell me something."
    return f"{words} CHAOS 429-wait once" if chance.random() < _LIMITED else words


def event_keys(prompt: str) -> list[str]:
    """The keys of the events that the calls of a prompt wait for."""
    return re.findall(r'receive {"what": "([^"]+)"}', prompt)


def tree_prompt(chance: random.Random, agent_id: str, mark: str) -> str:
    """A prompt for a tree: each level delegates to two or more children, the last level calls tools."""
    if agent_id not in _BELOW:
        tools = _OF_CLERKS if agent_id == "clerk" else _TOOLS
        return _round(chance, f"{mark}/0", tools)
    rounds = []
    for number in range(chance.choice((1, 1, 2))):
        below = chance.choice(_BELOW[agent_id])
        prompt = tree_prompt(chance, below, f"{mark}/{number}")
        times = chance.choice((2, 2, 2, 3)) if number == 0 else 1
        rounds.append(f"CALLS {times} agent_run_{below} {json.dumps({'prompt': prompt})}")
    return " ".join(rounds)


def _round(chance: random.Random, what: str, tools: Sequence[str] = _TOOLS) -> str:
    times = chance.choice((1, 1, 1, 2))
    return f'CALLS {times} {chance.choice(tools)} {{"what": "{what}"}}'
