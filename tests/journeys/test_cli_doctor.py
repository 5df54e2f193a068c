"""`holdfast doctor` and `holdfast keys`: each problem has a line that names its remedy."""

import re
import tempfile
import tomllib
from pathlib import Path
from shutil import rmtree

import pytest

from app.storage.schema_revision import newest_revision
from tests.support.commands import Finished, holdfast
from tests.support.servers import serving

pytestmark = pytest.mark.anyio

AGENTS = str(Path(__file__).parent / "terminal" / "agents.toml")


def findings(done: Finished) -> dict[str, str]:
    """The result of each line, by its subject."""
    assert done.err == "", done.err
    lines = [
        re.fullmatch(r"(ok|problem) +(\w[^:]*)(?:: (.*))?", line) for line in done.out.splitlines()
    ]
    assert all(lines), done.out
    return {line[2]: f"{line[1]} {line[3] or ''}".strip() for line in lines if line is not None}


async def test_a_running_server_passes_every_check(database_url: str) -> None:
    async with serving(database_url, agents=AGENTS) as server:
        done = await holdfast(
            "doctor", url=server.base, DATABASE_URL=database_url, HOLDFAST_AGENTS=AGENTS
        )
    assert done.code == 0, done.out
    found = findings(done)
    assert found["settings"] == "ok DATABASE_URL, HOLDFAST_AGENTS, HOLDFAST_URL"
    assert found["agents"] == "ok demo, slow, limited, broken, boss"
    assert found["database"].startswith("ok Postgres 1")
    assert found["migrations"] == f"ok revision {newest_revision()}"
    assert found["queue"] == "ok"
    assert re.fullmatch(r"ok 1 running, each opens up to 25 of \d+", found["connections"])
    assert found["server"] == f"ok {server.base} offers demo, slow, limited, broken, boss"


async def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    agents = tmp_path / "agents.toml"
    agents.write_text(
        '[models.gpt]\nprovider = "openai"\nmodel = "gpt"\n'
        '[models.spare]\nprovider = "anthropic"\nmodel = "claude"\n[agents.mine]\nmodel = "gpt"\n'
    )
    done = await holdfast(
        "doctor",
        url="http://127.0.0.1:9",
        DATABASE_URL="postgresql://nobody:secret@127.0.0.1:9/none",
        HOLDFAST_AGENTS=str(agents),
        HOLDFAST_HOST="0.0.0.0",
        HOLDFAST_PROT="1",
    )
    assert done.code == 1
    assert "secret" not in done.out
    found = findings(done)
    assert found["settings"].startswith("problem HOLDFAST_PROT isn't a setting; did you mean")
    assert found["API keys"].startswith("problem Without API keys, every client")
    assert "set OPENAI_API_KEY" in found["agents"]
    assert found["model spare"].startswith("ok doesn't work, but no agent uses it")
    assert found["database"].startswith("problem Can't reach Postgres at 127.0.0.1:9/none")
    assert found["server"].startswith("problem No server answers at http://127.0.0.1:9")


@pytest.mark.parametrize(
    "settings, expected",
    [
        ({}, {"web pages": "ok none but its own", "host names": "ok local names only"}),
        (
            {"HOLDFAST_CORS_ORIGINS": "https://a.test", "HOLDFAST_ALLOWED_HOSTS": "b.test"},
            {"web pages": "ok https://a.test may call", "host names": "ok local names, b.test"},
        ),
        ({"HOLDFAST_CORS_ORIGINS": "a.test"}, {"web pages": "problem HOLDFAST_CORS_ORIGINS: a.te"}),
        ({"HOLDFAST_CORS_ORIGINS": "*"}, {"API keys": "problem HOLDFAST_CORS_ORIGINS is *, which"}),
        ({"HOLDFAST_ALLOWED_HOSTS": "a:1"}, {"web pages": "problem HOLDFAST_ALLOWED_HOSTS: a:1"}),
    ],
)
async def test_allowed_pages_and_hosts_are_shown_and_checked(
    settings: dict[str, str], expected: dict[str, str]
) -> None:
    nowhere = "postgresql://nobody@127.0.0.1:9/none"
    done = await holdfast("doctor", DATABASE_URL=nowhere, HOLDFAST_PORT="9", **settings)
    found = findings(done)
    for subject, beginning in expected.items():
        assert found[subject].startswith(beginning)


async def test_a_remote_agent_without_its_token_is_a_problem(tmp_path: Path) -> None:
    agents = tmp_path / "agents.toml"
    agents.write_text(
        '[agents.far]\nendpoint = { backend = "a2a", url = "http://127.0.0.1:9",'
        ' auth_env = "FAR_TOKEN" }\n'
    )
    settings = {
        "DATABASE_URL": "postgresql://nobody@127.0.0.1:9/none",
        "HOLDFAST_AGENTS": str(agents),
        "HOLDFAST_PORT": "9",
    }
    without = await holdfast("doctor", **settings)
    assert findings(without)["agent far"] == "problem the environment variable FAR_TOKEN isn't set"
    with_token = await holdfast("doctor", **settings, FAR_TOKEN="hunter2")
    assert findings(with_token)["agent far"] == "ok is on another server (a2a), which wasn't called"
    assert "hunter2" not in with_token.out


async def test_a_database_without_migrations_is_a_problem_unless_the_start_migrates(
    postgres_url: str,
) -> None:
    done = await holdfast("doctor", DATABASE_URL=postgres_url, HOLDFAST_PORT="9")
    assert done.code == 1
    assert "Run `holdfast migrate`" in findings(done)["migrations"]
    assert findings(done)["server"] == "ok no server runs at http://127.0.0.1:9"
    with_migrate = await holdfast(
        "doctor", DATABASE_URL=postgres_url, HOLDFAST_PORT="9", HOLDFAST_MIGRATE="1"
    )
    assert with_migrate.code == 0, with_migrate.out
    assert findings(with_migrate)["migrations"] == "ok the next start runs them"


async def test_too_many_connections_for_the_server_are_a_problem(database_url: str) -> None:
    async with serving(database_url, agents=AGENTS):
        done = await holdfast(
            "doctor",
            DATABASE_URL=database_url,
            HOLDFAST_PORT="9",
            HOLDFAST_POOL_SIZE="290",
            HOLDFAST_HOT_POOL_SIZE="10",
        )
    assert done.code == 1
    finding = findings(done)["connections"]
    assert finding.startswith("problem 1 running, each opens up to 305 of 29")
    assert "raise max_connections" in finding


async def test_missing_settings_for_a_pooler_are_a_problem(database_url: str) -> None:
    settings = {"DATABASE_URL": database_url, "HOLDFAST_PORT": "9", "HOLDFAST_PGBOUNCER": "1"}
    alone = await holdfast("doctor", **settings)
    assert alone.code == 1
    assert "needs HOLDFAST_LISTEN_URL" in findings(alone)["database"]
    unbounded = await holdfast("doctor", **settings, HOLDFAST_LISTEN_URL=database_url)
    assert unbounded.code == 1
    found = findings(unbounded)
    assert found["connections"].startswith("ok 0 running, each opens up to 5 of")
    assert "ALTER ROLE" in found["statement timeout"]


async def test_the_doctor_creates_no_data_folder() -> None:
    folder = Path(tempfile.mkdtemp(prefix="holdfast-cli-")) / "pg"
    done = await holdfast("doctor", HOLDFAST_DATA_DIR=str(folder), HOLDFAST_PORT="9")
    try:
        assert done.code == 0, done.out
        assert findings(done)["database"].startswith("ok embedded; the first start creates it in")
        assert not folder.exists()
    finally:
        rmtree(folder.parent)


async def test_a_key_that_the_server_does_not_know_is_a_problem(
    database_url: str, tmp_path: Path
) -> None:
    made = await holdfast(
        "keys", "new", "--subject", 'al"ice', "--tenant", "acme", "--scope", "runs:read"
    )
    [key] = re.findall(r"hf_\S+", made.err)
    [entry] = tomllib.loads(made.out)["keys"]
    assert (entry["subject"], entry["tenant"], entry["scopes"]) == ('al"ice', "acme", ["runs:read"])
    hashed = await holdfast("keys", "hash", stdin=f"{key}\n")
    assert hashed.out == f"{entry['sha256']}\n"
    file = tmp_path / "keys.toml"
    file.write_text(made.out)
    settings = {"DATABASE_URL": database_url, "HOLDFAST_API_KEYS_FILE": str(file)}
    async with serving(database_url, api_keys_file=file) as server:
        unknown = await holdfast("doctor", url=server.base, **settings)
        assert unknown.code == 1
        assert "Set HOLDFAST_API_KEY" in findings(unknown)["server"]
        known = await holdfast("doctor", url=server.base, HOLDFAST_API_KEY=key, **settings)
        assert known.code == 0, known.out
        denied = await holdfast("run", "Hello.", url=server.base, HOLDFAST_API_KEY=key)
        assert denied.code == 7
        assert "scope_missing" in denied.err
