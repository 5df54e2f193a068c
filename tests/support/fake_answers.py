"""The answers of the fake provider. They depend on the model's name and the transcript only.

Model `fake-N[-Dms]` answers N words, D milliseconds apart. In the newest user message, `CALL name {json}` and
`CALLS k name {json}` ask for tool calls when tools are offered, `THINK` for reasoning first, `STOP reason`
for a finish reason, and `CHAOS name [once]` for a failure; the model `chaos-name` always fails that way.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from app.llm.scripted.scripts import Round, rounds_of

_CHAOS = re.compile(r"\bCHAOS ([\w-]+)( once)?")
_STOP = re.compile(r"\bSTOP (\w+)")

WORD = "word "
REASONING = ("Let me ", "think. ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    words: int
    delay: float
    reasoning: tuple[str, ...]
    calls: Round | None
    stop: str
    chaos: str
    once: bool
    prompt_tokens: int
    id: str
    """An id that depends on the transcript only, not on the protocol."""

    @property
    def completion_tokens(self) -> int:
        return self.words + len(self.reasoning)


def answer_to(request: dict[str, Any]) -> Answer:
    model = str(request.get("model", ""))
    name = model.split("-")
    is_fake = name[0] == "fake" and len(name) > 1 and name[1].isdigit()
    messages = request.get("messages") or _of_contents(request.get("contents") or ())
    prompt, after = _newest_user_message(messages)
    rounds = rounds_of(prompt) if request.get("tools") else ()
    played = sum(1 for message in after if message["role"] == "assistant")
    prompt_tokens = 1 + sum(len(_text(message.get("content"))) for message in messages) // 4
    chaos = _CHAOS.search(prompt)
    stop = _STOP.search(prompt)
    return Answer(
        words=int(name[1]) if is_fake else 20,
        delay=int(name[2].removesuffix("ms")) / 1000 if is_fake and len(name) > 2 else 0.0,
        reasoning=REASONING if "THINK" in prompt else (),
        calls=rounds[played] if played < len(rounds) else None,
        stop=stop[1] if stop else "",
        chaos=model.removeprefix("chaos-") if name[0] == "chaos" else chaos[1] if chaos else "",
        once=bool(chaos and chaos[2]),
        prompt_tokens=prompt_tokens,
        id=f"{len(messages)}_{prompt_tokens}",
    )


def _of_contents(contents: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Google's transcript in the shape that the others have."""
    return [
        {
            "role": "assistant" if content["role"] == "model" else content["role"],
            "content": [
                {"type": "text", "text": part["text"]}
                for part in content["parts"]
                if "text" in part
            ],
        }
        for content in contents
    ]


def _newest_user_message(
    messages: Sequence[dict[str, Any]],
) -> tuple[str, Sequence[dict[str, Any]]]:
    """The newest user message and the messages after it. A user turn with tool results only does not count."""
    for at in range(len(messages) - 1, -1, -1):
        if messages[at]["role"] == "user" and (text := _text(messages[at].get("content"))):
            return text, messages[at + 1 :]
    return "", ()


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = [part for part in content or () if part.get("type") == "text"]
    return " ".join(part["text"] for part in parts)
