"""Content from clients: text or parts, checked before it is stored."""

from typing import Any

import pytest
from pydantic import ValidationError

from app.api.schemas.messages import NewMessage
from app.domain.threads.messages import Base64Source, Block, Media, Text, UrlSource, block_to_json

PNG = {"type": "base64", "media_type": "image/png", "data": "aGk="}
URL = {"type": "url", "url": "https://example.com/a.pdf"}


def content(value: Any) -> tuple[Block, ...]:
    return NewMessage.model_validate({"role": "user", "content": value}).to_domain().content


def test_text_and_parts_become_blocks() -> None:
    assert content("hi") == (Text("hi"),)
    assert content(
        [
            {"type": "text", "text": "look"},
            {"type": "image", "source": PNG},
            {"type": "document", "source": URL, "title": "a"},
        ]
    ) == (
        Text("look"),
        Media("image", Base64Source("image/png", "aGk=")),
        Media("document", UrlSource("https://example.com/a.pdf"), "a"),
    )


@pytest.mark.parametrize("type_", ["image", "audio", "video", "document"])
@pytest.mark.parametrize("source", [PNG, URL])
def test_every_kind_of_media_is_kept_as_it_came(type_: str, source: dict[str, str]) -> None:
    part = {"type": type_, "source": source}
    assert [block_to_json(block) for block in content([part])] == [part]


@pytest.mark.parametrize(
    "part, sentence",
    [
        ({"type": "hologram"}, "does not match any of the expected tags"),
        ({"type": "summary", "text": "x", "from_seq": 1, "to_seq": 2}, "does not match any"),
        ({"type": "tool_use", "id": "c", "name": "n", "input": {}}, "does not match any"),
        ({"type": "text", "text": "x", "cache_control": {}}, "Extra inputs"),
        ({"type": "image", "source": {**PNG, "data": "not base64!"}}, "must be base64"),
        ({"type": "image", "source": {**PNG, "data": "aGk"}}, "must be base64"),
        ({"type": "image", "source": {**PNG, "data": "aG\nk="}}, "must be base64"),
        ({"type": "image", "source": {**PNG, "data": ""}}, "must not be empty"),
        ({"type": "image", "source": {**PNG, "data": "aGk\u00fc"}}, "must be base64"),
        ({"type": "image", "source": {**PNG, "media_type": "png"}}, "must be a media type"),
        ({"type": "image", "source": {**PNG, "media_type": "a/b\r\nx: y"}}, "must be a media type"),
        ({"type": "image", "source": {**URL, "url": "file:///etc/passwd"}}, "http or https"),
        ({"type": "image", "source": {**URL, "url": "data:image/png;base64,aGk="}}, "http"),
        ({"type": "image", "source": {**URL, "url": "https://"}}, "http or https"),
        ({"type": "image", "source": {**URL, "url": "https://x/\n"}}, "http or https"),
        ({"type": "image", "source": {"type": "blob", "id": "b"}}, "does not match any"),
        ({"type": "image", "source": PNG, "title": "x" * 501}, "at most 500"),
    ],
)
def test_content_that_no_model_accepts_is_refused(part: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValidationError) as caught:
        content([part])
    assert sentence in str(caught.value)


def test_a_message_has_one_to_a_hundred_parts() -> None:
    part = {"type": "text", "text": "x"}
    assert len(content([part] * 100)) == 100
    for count in (0, 101):
        with pytest.raises(ValidationError):
            content([part] * count)
