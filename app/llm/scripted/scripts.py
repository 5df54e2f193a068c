"""The scripts that agents.toml can name: what they answer is in the transcript, never in who asks."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.domain.threads.messages import Message, Role
from app.llm.scripted.model import Call, Script, ScriptedTurn, turn
from app.llm.scripted.prompts import rounds_of
from app.runtime.ports import ModelRequest


@dataclass(frozen=True, slots=True)
class ScriptRule:
    """A prompt that matches is answered with a tool call; `{…}` are the pattern's groups.

    A call is only made when its tool is offered, as with any model.
    """

    pattern: re.Pattern[str]
    announcement: str
    tool: str
    arguments: Mapping[str, str]


_DEMO_RULES = (
    ScriptRule(
        re.compile(r"\b(?:delete|remove)\s+(?:the file\s+)?(?P<path>[/~.][\w./~-]*[\w/])", re.I),
        "I will delete {path}. That can't be undone, so somebody may have to approve it first.",
        "delete_file",
        {"path": "{path}"},
    ),
)
_DEMO_HINT = (
    'I am a script that plays a model, so this runs without a key. Try "delete /tmp/old-report.txt", '
    "or put a real model in agents.toml."
)


def demo(request: ModelRequest) -> ScriptedTurn:
    """Deletes files when asked to, tells what came of it, and otherwise says what it is."""
    return _answer(request, _DEMO_RULES, _DEMO_HINT)


def plain(request: ModelRequest) -> ScriptedTurn:
    """Makes the calls that a prompt spells out, and otherwise repeats the prompt."""
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
            arguments = {key: value.format(**words) for key, value in rule.arguments.items()}
            return turn(
                rule.announcement.format(**words), Call(tool=rule.tool, arguments=arguments)
            )
    return turn(f"You said: {prompt}\n\n{hint}" if prompt else hint)


def _newest_prompt(messages: Sequence[Message]) -> tuple[str, Sequence[Message]]:
    """What the user said last, and what has happened since."""
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
