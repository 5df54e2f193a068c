"""Finds the tools that fit the words of a query, the best first.

A tool's score is that of BM25, where a word of its name counts more than one of its parameters, and that more
than one of its description. A query that is the name of a tool finds it first.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache

from app.domain.tools.tool_calls import ToolDescriptor

MAX_INDEXED_CHARACTERS = 2000
"""Of a description; its first sentences say what the tool does."""
_MAX_KNOWN_TOOLS = 1024
_MIN_PREFIX = 3
_MAX_WORDS = 20
"""Of a query, and of words that begin with one of them."""
_SATURATION, _LENGTH_SHARE = 1.2, 0.5
_OF_NAME, _OF_PARAMETER, _OF_DESCRIPTION = 4, 2, 1

_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def ranked(query: str, tools: Sequence[ToolDescriptor]) -> list[ToolDescriptor]:
    """The tools that have a word of the query, the best first. Equally good ones are sorted by name."""
    words_of_tools = [_words_of_tool(tool) for tool in tools]
    vocabulary = frozenset[str]().union(*words_of_tools)
    wanted = list(dict.fromkeys(_words(query)))[:_MAX_WORDS]
    lengths = [sum(words.values()) for words in words_of_tools]
    average = sum(lengths) / max(1, len(lengths)) or 1.0
    scores = [0.0] * len(tools)
    for word in wanted:
        fitting = _fitting(word, vocabulary)
        counts = [sum(words.get(each, 0) for each in fitting) for words in words_of_tools]
        having = sum(1 for count in counts if count)
        rarity = math.log(1 + (len(tools) - having + 0.5) / (having + 0.5))
        for position, count in enumerate(counts):
            if count:
                norm = 1 - _LENGTH_SHARE + _LENGTH_SHARE * lengths[position] / average
                scores[position] += rarity * count / (count + _SATURATION * norm)
    names = {name.strip("`'\",.") for name in query.split()}
    found = [
        (tool.name not in names, -score, tool.name, tool)
        for tool, score in zip(tools, scores, strict=True)
        if score
    ]
    return [tool for *_, tool in sorted(found, key=lambda each: each[:3])]


def _fitting(word: str, vocabulary: Collection[str]) -> Sequence[str]:
    """The word; if no tool has it, the words that begin with it."""
    if word in vocabulary or len(word) < _MIN_PREFIX:
        return [word]
    return sorted(each for each in vocabulary if each.startswith(word))[:_MAX_WORDS]


def _words_of_tool(tool: ToolDescriptor) -> Mapping[str, int]:
    properties = tool.parameters.get("properties")
    parameters = tuple(properties) if isinstance(properties, dict) else ()
    return _weighted(tool.name, tool.description[:MAX_INDEXED_CHARACTERS], parameters)


@lru_cache(_MAX_KNOWN_TOOLS)
def _weighted(name: str, description: str, parameters: tuple[str, ...]) -> Mapping[str, int]:
    weighted: Counter[str] = Counter()
    for words, weight in (
        (_words(name), _OF_NAME),
        (_words(" ".join(parameters)), _OF_PARAMETER),
        (_words(description), _OF_DESCRIPTION),
    ):
        for word in words:
            weighted[word] += weight
    return weighted


def _words(text: str) -> Iterable[str]:
    """The words in lower case, without the `s` of a plural; `createIssue` has two."""
    return [_singular(word) for word in _WORD.findall(_HUMP.sub(" ", text).lower())]


def _singular(word: str) -> str:
    return word[:-1] if len(word) > _MIN_PREFIX and word[-1] == "s" and word[-2] != "s" else word
