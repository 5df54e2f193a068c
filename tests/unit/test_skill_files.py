"""Reading a skill's folder: the front matter of SKILL.md, the list of files, and what can't leave the folder."""

from pathlib import Path

import pytest

from app.cli.server.folder_watch import FolderWatch
from app.tools.skills.files import (
    MAX_FILES,
    NoSuchSkillFile,
    digest_of,
    files_of,
    path_in,
    read_text,
)
from app.tools.skills.front_matter import BadSkill, read_skill_text
from app.tools.skills.loading import MAX_SKILL_BYTES, load_skill_folder
from tests.support.skills import skill_text, write_skill


def mistake(text: str) -> tuple[str, int | None]:
    with pytest.raises(BadSkill) as caught:
        read_skill_text(text)
    return str(caught.value), caught.value.line


# --- front matter ---------------------------------------------------------------------------------


def test_a_skill_is_read_with_all_keys_of_the_format(tmp_path: Path) -> None:
    more = (
        "license: Apache-2.0\ncompatibility: any\nmetadata:\n  author: ann\n  version: 1.0\n"
        "allowed-tools: look files__* pay"
    )
    place = write_skill(tmp_path, skill_text(more=more), files={"style.md": "Short."})
    skill = load_skill_folder(place)
    assert (skill.name, skill.spec.description) == ("report", "About report.")
    assert skill.instructions == "Do it well."
    assert skill.spec.allowed_tools == ("look", "files__*", "pay")
    assert skill.license == "Apache-2.0"
    assert skill.metadata == {"author": "ann", "version": "1.0"}
    assert list(skill.files) == ["style.md"]


def test_a_description_over_several_lines_becomes_one(tmp_path: Path) -> None:
    text = "---\r\nname: report\r\ndescription: >\r\n  Write\r\n  it.\r\n---\r\nA\r\nB\r\n"
    skill = load_skill_folder(write_skill(tmp_path, text))
    assert skill.spec.description == "Write it."
    assert skill.instructions == "A\nB"


@pytest.mark.parametrize("value", ["[look, pay]", "look, pay", "look pay", '["look", "pay"]'])
def test_allowed_tools_are_a_list_or_a_text(value: str) -> None:
    head, _ = read_skill_text(skill_text(more=f"allowed-tools: {value}"))
    assert head.allowed_tools == ("look", "pay")


@pytest.mark.parametrize(
    ("text", "line", "sentence"),
    [
        ("# Report", 1, "must begin with a line ---"),
        ("", 1, "must begin with a line ---"),
        ("---\nname: a\ndescription: b", 3, "has no end; add a line ---"),
        ("---\n---\nDo.", 2, "must have keys; write name"),
        ("---\n- a\n---\nDo.", 2, "must have keys; write name"),
        ("---\nname: a\n---\nDo.", 2, "description is missing; add description"),
        ("---\ndescription: a\n---\nDo.", 2, "name is missing; add name"),
        ("---\nname: a\ndescription: [b\n---\nDo.", 3, "isn't YAML"),
        ("---\nname: &a x\ndescription: *a\n---\nDo.", 3, "has an alias (*); write the value out"),
        ("---\nname: a\nname: b\ndescription: c\n---\n", 3, "'name' is there twice; remove one"),
        (skill_text(more="licence: MIT"), 4, "unknown key 'licence'; did you mean 'license'"),
        (skill_text("Report"), 2, "a-z 0-9, with single - between; rename it"),
        (skill_text("a--b"), 2, "a-z 0-9, with single - between; rename it"),
        (skill_text("x" * 65), 2, "name must be a text of 1 to 64 characters"),
        ("---\nname: 7\ndescription: b\n---\n", 2, "write it in quotes"),
        (f"---\nname: a\ndescription: {'x' * 1025}\n---\n", 3, "1 to 1024 characters"),
        (skill_text(more="metadata: [a]"), 4, "metadata must be a table"),
        (skill_text(more="allowed-tools: []"), 4, "must name 1 to 100 tools"),
        (skill_text(more="allowed-tools: [1]"), 4, "must be names of tools"),
        (skill_text(more="allowed-tools: '[l'"), 4, "isn't closed"),
        (skill_text(more="license: 2026-99-99"), 2, "isn't YAML"),
        (skill_text(more="metadata: " + "[" * 4000), 4, "too many lists in lists; remove some"),
        (skill_text(more="#" * 20_000), 2, "more than 10,000 characters; shorten it"),
    ],
)
def test_a_mistake_has_its_line_and_a_remedy(text: str, line: int, sentence: str) -> None:
    found, place = mistake(text)
    assert sentence in found
    assert place == line


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (skill_text("other"), "its name is 'other' and its folder is 'report'"),
        (skill_text(body=" "), "has no instructions; write them below"),
        ("x" * (MAX_SKILL_BYTES + 1), "more than 100,000 bytes; move parts to other files"),
    ],
)
def test_a_skill_that_cannot_be_used_says_why(tmp_path: Path, text: str, sentence: str) -> None:
    place = write_skill(tmp_path, text)
    with pytest.raises(BadSkill, match=".*") as caught:
        load_skill_folder(place)
    assert sentence in str(caught.value)


def test_a_skill_file_that_is_not_text_or_a_link_is_refused(tmp_path: Path) -> None:
    place = write_skill(tmp_path)
    (place / "SKILL.md").write_bytes(b"---\nname: \xff\n---\n")
    with pytest.raises(BadSkill, match="isn't UTF-8 text; save it as UTF-8"):
        load_skill_folder(place)
    (place / "SKILL.md").unlink()
    with pytest.raises(BadSkill, match="can't be read"):
        load_skill_folder(place)
    (tmp_path / "outside.md").write_text(skill_text())
    (place / "SKILL.md").symlink_to(tmp_path / "outside.md")
    with pytest.raises(BadSkill, match="is a link; put the file itself there"):
        load_skill_folder(place)


# --- files ----------------------------------------------------------------------------------------


def test_links_and_hidden_files_are_no_files_of_a_skill(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/key").write_text("s3cret")
    place = write_skill(tmp_path, files={"a/b.txt": "b", ".env": "x", ".git/config": "x"})
    (place / "link").symlink_to(tmp_path / "secret/key")
    (place / "folder").symlink_to(tmp_path / "secret")
    (place / "line\nbreak").write_text("x")
    assert files_of(place) == ["SKILL.md", "a/b.txt"]


@pytest.mark.parametrize("name", ["../secret", "link", "folder/key", "/etc/hostname", ".", "", "a"])
def test_no_path_leaves_the_folder(tmp_path: Path, name: str) -> None:
    place = write_skill(tmp_path, files={"a/b.txt": "b"})
    (tmp_path / "skills/secret").write_text("s3cret")
    (place / "link").symlink_to(tmp_path / "skills/secret")
    (place / "folder").symlink_to(tmp_path)
    with pytest.raises(NoSuchSkillFile):
        path_in(place, name)


def test_a_long_text_is_read_in_part_and_other_files_are_refused(tmp_path: Path) -> None:
    place = write_skill(tmp_path, files={"long.txt": "ä" * 10})
    (place / "image.png").write_bytes(b"\x89PNG\0")
    (place / "latin.txt").write_bytes(b"\xe4")
    assert read_text(place, "long.txt", 20) == ("ä" * 10, True)
    assert read_text(place, "long.txt", 5) == ("ää", False)
    for name in ("image.png", "latin.txt"):
        with pytest.raises(NoSuchSkillFile, match="isn't a text"):
            read_text(place, name, 100)


def test_a_digest_changes_with_each_path_and_content(tmp_path: Path) -> None:
    place = write_skill(tmp_path, files={"a": "1", "b": "2"})
    digests = [load_skill_folder(place).spec.digest]
    (place / "a").write_text("3")
    digests.append(load_skill_folder(place).spec.digest)
    (place / "a").rename(place / "c")
    digests.append(load_skill_folder(place).spec.digest)
    assert len(set(digests)) == 3
    assert load_skill_folder(place).spec.digest == digests[-1]


def test_a_folder_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = write_skill(tmp_path, files={f"f{n}": "x" for n in range(MAX_FILES)})
    with pytest.raises(BadSkill, match="more than 500 files; remove some"):
        files_of(place)
    monkeypatch.setattr("app.tools.skills.files.MAX_BYTES", 10)
    with pytest.raises(BadSkill, match="remove some"):
        digest_of(place, ["SKILL.md"])


def test_a_changed_file_of_a_skill_is_noticed(tmp_path: Path) -> None:
    place = write_skill(tmp_path, files={"style.md": "Short."})
    (tmp_path / "notes.md").write_text("x")
    watch = FolderWatch(tmp_path)
    (tmp_path / "notes.md").write_text("longer")
    (place / "style.md").write_text("Longer.")
    assert watch.changes(lambda _: None) == ["skills/report/style.md"]
