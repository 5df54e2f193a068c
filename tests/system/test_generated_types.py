"""Clients can generate TypeScript types from the OpenAPI document, and they check what programs do."""

import asyncio
import json
import os
import shutil
from pathlib import Path

import pytest

from tests.support.documents import ROOT
from tests.system.programs import program
from tests.system.readers import CLIENTS

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

DOCUMENT = ROOT / "tests" / "snapshots" / "openapi.json"
STRICT = ("--noEmit", "--strict", "--noUncheckedIndexedAccess", "--exactOptionalPropertyTypes")


async def run(script: str, *arguments: str | Path, cwd: Path) -> str:
    """Run a program of `node_modules` and return what it prints."""
    process = await asyncio.create_subprocess_exec(
        program("node"),
        CLIENTS / "node_modules" / script,
        *arguments,
        cwd=cwd,
        env={**os.environ, "NO_COLOR": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0, printed.decode()
    return printed.decode()


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    """With `api.ts`, generated with default options."""
    await run(
        "openapi-typescript/bin/cli.js", DOCUMENT, "--output", tmp_path / "api.ts", cwd=tmp_path
    )
    return tmp_path


async def test_types_and_their_use_type_check(folder: Path) -> None:
    shutil.copy(CLIENTS / "typed.ts", folder)
    assert await run("typescript/bin/tsc", *STRICT, "typed.ts", cwd=folder) == ""


async def test_every_example_of_a_body_has_its_type(folder: Path) -> None:
    schemas = json.loads(DOCUMENT.read_text())["components"]["schemas"]
    lines = [
        f'export const {name}{at}: components["schemas"]["{name}"] = {json.dumps(example)};'
        for name, schema in schemas.items()
        for at, example in enumerate(schema.get("examples", ()))
    ]
    assert len(lines) >= 10
    text = "\n".join(['import type { components } from "./api";', *lines])
    (folder / "examples.ts").write_text(text)
    assert await run("typescript/bin/tsc", *STRICT, "examples.ts", cwd=folder) == ""
