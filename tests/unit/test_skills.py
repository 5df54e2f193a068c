"""Agents with skills: their system prompt, the tools for skills, and what a skill allows meanwhile."""

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from app.agents.catalog import load_catalog
from app.agents.resolve import resolve
from app.cli.setup import doctor
from app.cli.setup.findings import Findings
from app.domain.agents.skills import SKILL_TOOLS, with_skills
from app.domain.agents.specs import AgentSpec
from app.domain.ids import AgentId
from app.domain.redaction import unredacted
from app.llm.catalog import ModelCatalog
from app.runtime.agent import ResolvedAgent, UnknownAgentVersion
from app.settings import Settings
from app.testing.scripts import Turn
from app.tools.skills.tools import MAX_FILE_BYTES
from holdfast.testing import AgentRun, call, run_agent, say
from tests.support.skills import REPORT, skill_text, write_skill

pytestmark = pytest.mark.anyio

MODULE = """
from holdfast import tool

@tool(effect="read")
def look() -> str:
    "Look."
    return "seen"

@tool(approval=True)
def pay() -> str:
    "Pay."
    return "paid"
"""
AGENTS = """
[models.m]
provider = "scripted"

[tools]
modules = ["shop"]

[agents.helper]
model = "m"
system_prompt = "Be kind."
tools = ["look", "pay"]
skills = SKILLS
MORE
"""
LOAD = call("load_skill", name="report")
PRINT = {"scripts/show.py": "import sys; print('shown', *sys.argv[1:])"}


def agents_file(folder: Path, *skills: str, more: str = "") -> Path:
    (folder / "shop.py").write_text(dedent(MODULE))
    file = folder / "agents.toml"
    file.write_text(AGENTS.replace("SKILLS", str(list(skills or ["report"]))).replace("MORE", more))
    return file


def outcomes(run: AgentRun) -> list[tuple[str, str]]:
    done = [event["result"] for event in run.events if event["event_type"] == "tool_call_done"]
    return [(result["outcome"], result["text"]) for result in done if "outcome" in result]


def script(arguments: list[str] | None = None, path: str = "scripts/show.py") -> Turn:
    given = {} if arguments is None else {"arguments": arguments}
    return call("run_skill_script", skill="report", script=path, **given)


# --- what the model sees --------------------------------------------------------------------------


async def test_the_system_prompt_names_the_skills_with_the_same_bytes_at_each_step(
    tmp_path: Path,
) -> None:
    write_skill(tmp_path)
    write_skill(tmp_path, skill_text("trip"), name="trip")
    file = agents_file(tmp_path, "trip", "report")
    async with run_agent(file, script=[LOAD, call("look"), say("Done.")]) as run:
        [prompt] = {request.system_prompt for request in run.requests}
        assert prompt.startswith("Be kind.\n\nYou have skills:")
        assert prompt.endswith("\n- trip: About trip.\n- report: Write the weekly report.")
        [tools] = {tuple(tool.name for tool in request.tools) for request in run.requests}
        assert tools == ("load_skill", "look", "pay", "read_skill_file")


def test_an_agent_without_skills_has_its_prompt_as_it_was() -> None:
    assert with_skills("Be kind.", ()) == "Be kind."


async def test_loading_returns_the_instructions_and_the_files(tmp_path: Path) -> None:
    write_skill(tmp_path, files={"style.md": "Short.", **PRINT})
    async with run_agent(agents_file(tmp_path), script=[LOAD, say("Done.")]) as run:
        [(outcome, text)] = outcomes(run)
        assert outcome == "succeeded"
        assert "Read style.md first." in text
        assert "scripts/show.py, style.md" in text
        assert "you may call only" not in text


async def test_an_unknown_skill_is_an_error_that_names_those_that_there_are(tmp_path: Path) -> None:
    write_skill(tmp_path)
    turns = [call("load_skill", name="repot"), say("Oh.")]
    async with run_agent(agents_file(tmp_path), script=turns) as run:
        text = "[no_skill] there is no skill 'repot'. There are: report"
        assert outcomes(run) == [("failed", text)]


async def test_files_are_read_in_part_and_only_those_of_the_skill(tmp_path: Path) -> None:
    long = "x" * (MAX_FILE_BYTES + 1)
    place = write_skill(tmp_path, files={"style.md": "Short.", "long.txt": long})
    (place / "link").symlink_to(tmp_path / "shop.py")
    paths = ["style.md", "long.txt", "link", "../../shop.py", "/etc/hostname", "SKILL.md"]
    turns = [*(call("read_skill_file", skill="report", path=path) for path in paths), say("Done.")]
    async with run_agent(agents_file(tmp_path), script=turns) as run:
        short, cut, *refused = outcomes(run)
        assert short == ("succeeded", "Short.")
        assert cut == ("succeeded", f"{long[:-1]}\n[Only the first 100,000 bytes are here]")
        assert {outcome for outcome, _ in refused} == {"failed"}
        assert all("There are: long.txt, style.md" in text for _, text in refused)


async def test_a_file_that_became_a_link_is_not_read(tmp_path: Path) -> None:
    place = write_skill(tmp_path, files={"style.md": "Short."})
    file = agents_file(tmp_path)
    turns = [
        LOAD,
        call("pay"),
        call("read_skill_file", skill="report", path="style.md"),
        say("No."),
    ]
    async with run_agent(file, script=turns) as run:
        (place / "style.md").unlink()
        (place / "style.md").symlink_to(tmp_path / "shop.py")
        await run.approve()
        text = "[no_skill_file] 'style.md' isn't in the folder of the skill"
        assert outcomes(run)[-1] == ("failed", text)


# --- scripts --------------------------------------------------------------------------------------


async def test_a_script_runs_after_a_person_has_approved_it(tmp_path: Path) -> None:
    write_skill(tmp_path, files=PRINT)
    turns = [script(["a b"]), say("Done.")]
    async with run_agent(agents_file(tmp_path), script=turns) as run:
        [ticket] = run.tickets
        assert ticket.message == "Run scripts/show.py 'a b' of the skill 'report'?"
        assert outcomes(run) == []
        await run.approve()
        [made] = run.calls
        assert made.result == '{"exit_code":0,"output":"shown a b\\n","errors":""}'


async def test_a_rejected_script_does_not_run(tmp_path: Path) -> None:
    place = write_skill(tmp_path, files={"scripts/show.sh": "touch $SKILL_DIR/ran"})
    turns = [script(path="scripts/show.sh"), say("Fine.")]
    async with run_agent(agents_file(tmp_path), script=turns) as run:
        await run.reject()
        assert run.status == "done"
    assert not (place / "ran").exists()


async def test_no_person_is_asked_about_a_script_that_there_is_not(tmp_path: Path) -> None:
    write_skill(tmp_path, files={**PRINT, "other.py": ""})
    turns = [script(path="scripts/none.py"), script(path="other.py"), say("Oh.")]
    async with run_agent(agents_file(tmp_path), script=turns) as run:
        assert [outcome for outcome, _ in outcomes(run)] == ["failed", "failed"]
        assert all("There are: scripts/show.py" in text for _, text in outcomes(run))


@pytest.mark.parametrize(
    ("files", "more", "code"),
    [
        ({"scripts/show.py": "while True: pass"}, "script_timeout = 0.1", "skill_script_timeout"),
        ({"scripts/show.py": "print(1)"}, "", "invalid_script_arguments"),
    ],
)
async def test_a_script_that_cannot_end_well_has_a_code(
    tmp_path: Path, files: Mapping[str, str], more: str, code: str
) -> None:
    write_skill(tmp_path, files=files)
    arguments = ["x" * 10_001] if code == "invalid_script_arguments" else []
    file = agents_file(tmp_path, more=more)
    async with run_agent(file, script=[script(arguments), say("Oh.")]) as run:
        await run.approve()
        [made] = run.calls
        assert (made.result or "").startswith(f"[{code}] ")


async def test_a_script_whose_skill_has_changed_does_not_run(tmp_path: Path) -> None:
    place = write_skill(tmp_path, files=PRINT)
    async with run_agent(agents_file(tmp_path), script=[script(), say("Oh.")]) as run:
        (place / "scripts/show.py").write_text("print('other')")
        await run.approve()
        [made] = run.calls
        assert "[skill_changed] the files of the skill 'report' have changed" in str(made.result)


# --- what a skill allows --------------------------------------------------------------------------


async def test_a_skill_narrows_what_may_be_called(tmp_path: Path) -> None:
    write_skill(tmp_path, skill_text(more="allowed-tools: lo*"))
    write_skill(tmp_path, skill_text("free"), name="free")
    turns = [
        [LOAD, call("pay")],
        call("look"),
        call("load_skill", name="free"),
        call("pay"),
        say("Done."),
    ]
    async with run_agent(agents_file(tmp_path, "report", "free"), script=turns) as run:
        assert run.waiting_for("pay"), "the other skill allows it"
        loaded, refused, seen, _ = outcomes(run)
        assert "you may call only: lo*." in loaded[1]
        assert refused[0] == "failed", "no person was asked"
        assert "The skill 'report' is in use, and allows only: lo*." in refused[1]
        assert seen == ("succeeded", "seen")
        await run.approve()
        assert run.response == "Done."


async def test_a_skill_does_not_stop_a_call_that_waited_before(tmp_path: Path) -> None:
    write_skill(tmp_path, skill_text(more="allowed-tools: look"))
    file = agents_file(tmp_path, more='tool_execution = "parallel"')
    async with run_agent(file, script=[[call("pay"), LOAD], say("Done.")]) as run:
        await run.approve()
        assert [made.result for made in run.calls][0] == "paid"


async def test_the_search_for_tools_and_a_final_answer_are_always_allowed(tmp_path: Path) -> None:
    write_skill(tmp_path, skill_text(more="allowed-tools: look"))
    more = """
        tool_search = { mode = "on" }
        [agents.helper.output]
        mode = "tool"
        [agents.helper.output.schema]
        type = "object"
        """
    turns = [LOAD, call("search_tools", query="look"), call("look"), call("final_answer")]
    async with run_agent(agents_file(tmp_path, more=more), script=turns) as run:
        assert [outcome for outcome, _ in outcomes(run)] == ["succeeded"] * 3
        assert run.structured_output == {}


async def test_a_hand_off_ends_the_use_of_a_skill(tmp_path: Path) -> None:
    write_skill(tmp_path, skill_text(more="allowed-tools: transfer_to_*"))
    more = """
        handoffs = ["other"]
        [agents.other]
        model = "m"
        tools = ["look"]
        skills = ["report"]
        handoffs = ["helper"]
        """
    turns = [LOAD, call("look"), call("transfer_to_other"), call("look"), say("Done.")]
    async with run_agent(agents_file(tmp_path, more=more), agent="helper", script=turns) as run:
        assert [outcome for outcome, _ in outcomes(run)] == [
            "succeeded",
            "failed",
            "succeeded",
            "succeeded",
        ]


# --- the agents file ------------------------------------------------------------------------------


def only_agent(file: Path) -> AgentSpec:
    [spec] = load_catalog(file).agents.values()
    return spec


def test_every_file_of_a_skill_belongs_to_the_version_of_its_agents(tmp_path: Path) -> None:
    place = write_skill(tmp_path, files={"style.md": "Short."})
    file = agents_file(tmp_path)
    first = only_agent(file).version
    assert only_agent(file).version == first
    (place / "style.md").write_text("Long.")
    second = only_agent(file).version
    (place / "SKILL.md").write_text(REPORT.replace("weekly", "daily"))
    assert len({first, second, only_agent(file).version}) == 3


def test_an_old_version_keeps_its_descriptions_and_needs_its_skills(tmp_path: Path) -> None:
    write_skill(tmp_path)
    file = agents_file(tmp_path)
    old = only_agent(file)
    write_skill(tmp_path, REPORT.replace("weekly", "daily"))
    catalog = load_catalog(file)
    models = ModelCatalog(list(catalog.models.values()), {})
    agent = resolve(old, catalog, models)
    assert isinstance(agent, ResolvedAgent)
    assert "weekly" in with_skills("", agent.spec.skills)
    write_skill(tmp_path, skill_text("other"), name="other")
    missing = resolve(old, load_catalog(agents_file(tmp_path, "other")), models)
    assert isinstance(missing, UnknownAgentVersion)
    assert "there is no skill 'report' any more" in missing.reason


def test_tools_for_skills_may_need_approval_and_have_approvers(tmp_path: Path) -> None:
    write_skill(tmp_path, files=PRINT)
    more = 'approval = ["load_skill"]\n[agents.helper.approvers.run_skill_script]\nquorum = 2'
    spec = only_agent(agents_file(tmp_path, more=more))
    assert spec.approval == ("load_skill",)
    assert spec.approvers["run_skill_script"].quorum == 2


def test_agents_without_skills_have_none_of_their_tools(tmp_path: Path) -> None:
    file = agents_file(tmp_path)
    file.write_text(file.read_text().replace("skills = ['report']", ""))
    catalog = load_catalog(file)
    agent = resolve(
        catalog.agents[AgentId("helper")], catalog, ModelCatalog(list(catalog.models.values()), {})
    )
    assert isinstance(agent, ResolvedAgent)
    assert SKILL_TOOLS.isdisjoint(agent.tools)


async def test_the_doctor_shows_skills(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_skill(tmp_path, skill_text(more="allowed-tools: look"), files={"style.md": "", **PRINT})
    await doctor.check_agents(Findings(unredacted), Settings(agents=agents_file(tmp_path)))
    text = "ok       skill report: 2 files besides SKILL.md, 1 of them scripts, allows only look"
    assert text in capsys.readouterr().out.splitlines()
