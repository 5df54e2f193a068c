"""The skill in use over suspensions, takeovers and changed files: it is state of the run."""

from pathlib import Path
from typing import Any

import pytest

from app.agents.catalog import Catalog
from app.domain.agents.skills import LOAD_SKILL, RUN_SKILL_SCRIPT
from app.domain.ids import CallId
from app.domain.structs import replace
from app.domain.threads.messages import Role
from app.llm.scripted.model import Call, in_order, turn
from app.runtime.skills.skill_in_use import SKILL_IN_USE
from app.tools.skills.loading import load_skill_folder
from tests.support.probes import Probe
from tests.support.replicas import Run, an_agent, of_type, open_replica
from tests.support.skills import skill_text, write_skill

pytestmark = pytest.mark.anyio


def an_agent_with_skill(folder: Path, *probes: Probe, **more: Any) -> Catalog:
    """An agent with the skill `report` of this folder."""
    skill = load_skill_folder(folder / "skills/report")
    catalog = an_agent(*(probe.tool for probe in probes), skills=(skill.spec,), **more)
    return replace(catalog, skills={"report": skill})


def load(id: str) -> Call:
    return Call(tool=LOAD_SKILL, arguments={"name": "report"}, id=CallId(id))


def run_script(id: str) -> Call:
    arguments = {"skill": "report", "script": "scripts/it.py"}
    return Call(tool=RUN_SKILL_SCRIPT, arguments=arguments, id=CallId(id))


async def results(run: Run) -> list[str]:
    return [e.message.text for e in await run.log() if e.message.role is Role.TOOL]


async def test_what_a_skill_allows_survives_a_suspension_and_another_process(
    database_url: str, tmp_path: Path
) -> None:
    write_skill(tmp_path, skill_text(more="allowed-tools: pay"))
    pay, other = Probe(name="pay"), Probe(name="other")
    catalog = an_agent_with_skill(tmp_path, pay, other, approval=["pay"])
    before = in_order(turn(load("c1")), turn(pay.call("c2")))
    async with open_replica(database_url, catalog, before) as replica:
        run = await replica.start()
        emitted = await run.finished()
        snapshot = of_type(emitted, "state_snapshot")[-1]["snapshot"]
        assert snapshot["extensions"][SKILL_IN_USE.name] == "report", "events show it"
    after = in_order(turn(other.call("c3")), turn("done"))
    async with open_replica(database_url, catalog, after) as replica:
        run = replica.same(run)
        await run.decide("c2", "approve")
        await run.finished(2)
        assert "The skill 'report' is in use, and allows only: pay." in (await results(run))[-1]
    assert (len(pay.handed), len(other.handed)) == (1, 0)
    [prompt] = {request.system_prompt for request in (*before.requests, *after.requests)}
    assert prompt.endswith("- report: About report.")


async def test_what_a_skill_allows_survives_a_takeover(database_url: str, tmp_path: Path) -> None:
    write_skill(tmp_path, skill_text(more="allowed-tools: slow"))
    slow, other = Probe(name="slow", effect="read", held=True), Probe(name="other")
    catalog = an_agent_with_skill(tmp_path, slow, other)
    before = in_order(turn(load("c1")), turn(slow.call("c2")))
    async with open_replica(database_url, catalog, before) as replica:
        run = await replica.start()
        await slow.was_reached()
        await replica.kill()
    slow.open.set()
    after = in_order(turn(other.call("c3")), turn("done"))
    async with open_replica(database_url, catalog, after) as replica:
        run = replica.same(run)
        await run.finished()
        assert "allows only: slow" in (await results(run))[-1]
    assert not other.handed


async def test_a_script_runs_once_after_its_approval_in_another_process(
    database_url: str, tmp_path: Path
) -> None:
    effects = tmp_path / "effects"
    text = f"open({str(effects)!r}, 'a').write('ran'); print('done')"
    write_skill(tmp_path, files={"scripts/it.py": text})
    catalog = an_agent_with_skill(tmp_path)
    async with open_replica(database_url, catalog, in_order(turn(run_script("c1")))) as replica:
        run = await replica.start()
        await run.finished()
        [ticket] = await run.tickets()
        assert ticket.message == "Run scripts/it.py of the skill 'report'?"
        assert not effects.exists()
    async with open_replica(database_url, catalog, in_order(turn("done"))) as replica:
        run = replica.same(run)
        await run.decide("c1", "approve")
        await run.finished(2)
        assert '"output":"done\\n"' in (await results(run))[-1]
    assert effects.read_text() == "ran"


async def test_an_approval_is_not_for_files_that_changed_after_it_was_asked_for(
    database_url: str, tmp_path: Path
) -> None:
    place = write_skill(tmp_path, files={"scripts/it.py": "print('old')"})
    catalog = an_agent_with_skill(tmp_path)
    async with open_replica(database_url, catalog, in_order(turn(run_script("c1")))) as replica:
        run = await replica.start()
        await run.finished()
    (place / "scripts/it.py").write_text("print('new')")
    changed = an_agent_with_skill(tmp_path)
    async with open_replica(database_url, changed, in_order(turn("done"))) as replica:
        run = replica.same(run)
        await run.decide("c1", "approve")
        await run.finished(2)
        _, ticket = await run.tickets()
        assert all("old" not in text and "new" not in text for text in await results(run))
        await run.decide(ticket.id, "approve")
        await run.finished(3)
        assert '"output":"new\\n"' in (await results(run))[-1]
