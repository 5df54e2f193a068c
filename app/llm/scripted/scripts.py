"""The scripts that agents.toml can name. Their answers depend on the transcript only.

A prompt may tell a script which tools to call: `CALL name {json}` is one call, `CALLS 3 name {json}` is three
calls at once. A prompt may have several such directives. Each is a round, played after the results of the
round before. Directives within the arguments of a call are not executed, so that an agent can pass them to
another agent.
"""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import islice

from msgspec import Struct

from app.domain.threads.messages import Message, Role
from app.llm.scripted.model import Call, Script, ScriptedTurn, turn
from app.runtime.ports.models import ModelRequest

MAX_ROUNDS = 200
"""Maximum number of directives. Each may parse the rest of the prompt."""
_DIRECTIVE = re.compile(r"\bCALL(?:S +(\d{1,3}))? +([\w.-]+) +(?=\{)")


class Round(Struct, frozen=True):
    """Calls that are made at once: `times` calls of one tool with the same arguments."""

    times: int
    tool: str
    arguments: str


def rounds_of(prompt: str) -> tuple[Round, ...]:
    """All rounds that a prompt asks for, in order. A directive without valid JSON is ignored."""
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


class ScriptRule(Struct, frozen=True):
    """Answers a matching prompt with a tool call; `{…}` are the pattern's groups.

    The call is only made if its tool is offered, as with any model.
    """

    pattern: re.Pattern[str]
    announcement: str
    tool: str
    arguments: Mapping[str, str]
    numbers: frozenset[str] = frozenset()
    """The arguments that are numbers."""

    def call(self, words: Mapping[str, str]) -> Call:
        values = {key: value.format(**words) for key, value in self.arguments.items()}
        return Call(
            tool=self.tool,
            arguments={
                key: float(value) if key in self.numbers else value for key, value in values.items()
            },
        )


_DEMO_RULES = (
    ScriptRule(
        re.compile(
            r"\brefund\s+(?P<amount>\d{1,6}(?:\.\d{1,2})?)\s*(?:euros?|€)?\s+"
            r"(?:(?:for|of)\s+)?(?:the\s+)?(?:order\s+)?(?P<number>[A-Z]-\d{1,6})",
            re.I,
        ),
        "I will refund {amount} for order {number}. Above 50, a person has to approve it.",
        "refund",
        {"number": "{number}", "amount": "{amount}"},
        frozenset({"amount"}),
    ),
    ScriptRule(
        re.compile(r"\b(?:delete|remove)\s+(?:the file\s+)?(?P<path>[/~.][\w./~-]*[\w/])", re.I),
        "I will delete {path}. That can't be undone, so a person may have to approve it first.",
        "delete_file",
        {"path": "{path}"},
    ),
)
_DEMO_HINT = (
    'I am a script that plays a model, so this runs without a key. Try "refund 80 for order A-7" or '
    '"delete /tmp/old-report.txt", or put a real model in agents.toml.'
)


def demo(request: ModelRequest) -> ScriptedTurn:
    """Refunds orders and deletes files on request, and reports the result. Otherwise describes itself."""
    return _answer(request, _DEMO_RULES, _DEMO_HINT)


def plain(request: ModelRequest) -> ScriptedTurn:
    """Makes the calls that a prompt has directives for. Otherwise repeats the prompt."""
    return _answer(request, (), "That is all I have to say.")


SCRIPTS: Mapping[str, Script] = {"demo": demo, "plain": plain}


def _answer(request: ModelRequest, rules: Sequence[ScriptRule], hint: str) -> ScriptedTurn:
    prompt, since = _newest_prompt(request.messages)
    offered = {tool.name for tool in request.tools}
    played = sum(1 for message in since if message.role is Role.ASSISTANT)
    rounds = [batch for batch in rounds_of(prompt) if batch.tool in offered]
    if played < len(rounds):
        batch = rounds[played]
        return turn(*[Call(tool=batch.tool, arguments=batch.arguments)] * batch.times)
    if results := [message for message in since if message.role is Role.TOOL]:
        return turn(_report(results, since))
    for rule in rules:
        match = rule.pattern.search(prompt)
        if match is not None and rule.tool in offered:
            words = match.groupdict()
            return turn(rule.announcement.format(**words), rule.call(words))
    return turn(f"You said: {prompt}\n\n{hint}" if prompt else hint)


def _newest_prompt(messages: Sequence[Message]) -> tuple[str, Sequence[Message]]:
    """The last message of the user, and the messages after it."""
    for at in range(len(messages) - 1, -1, -1):
        if messages[at].role is Role.USER:
            return messages[at].text, messages[at + 1 :]
    return "", messages


def _report(results: Sequence[Message], since: Sequence[Message]) -> str:
    tools = {call.id: call.name for message in since for call in message.tool_calls}
    lines = []
    for result in results:
        tool = tools.get(result.tool_call_id) if result.tool_call_id is not None else None
        lines.append(f"{tool or 'The tool'} answered: {result.text}")
    return "\n".join(lines) + "\n\nIs there anything else?"
