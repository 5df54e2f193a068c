"""Starts the MCP servers of the agents file here, for checks and for one call."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import typer

from app.agents.catalog import Catalog
from app.bootstrap.agents import load_agents
from app.bootstrap.secrets import redactor_of
from app.cli.exit_codes import ExitCode
from app.cli.server.event_loop import StopSignal
from app.cli.setup.findings import Findings
from app.domain.errors import ConfigurationError, HoldfastError
from app.settings import Settings
from app.tools.mcp.client import InputRequired, TaskHandle, ToolRequest
from app.tools.mcp.servers import McpServers, NoListings, opened_servers
from app.tools.mcp.tasks import followed


@asynccontextmanager
async def opened(settings: Settings, catalog: Catalog) -> AsyncIterator[McpServers]:
    """The servers of a catalog, started when they are used. Nothing is stored."""
    redact = redactor_of(settings, os.environ)
    async with opened_servers(
        catalog.mcp, NoListings(), os.environ, redact, executes=True
    ) as servers:
        yield servers


async def check(findings: Findings, settings: Settings, catalog: Catalog) -> None:
    """Start each server, list its tools, and stop it."""
    if not catalog.mcp:
        return
    try:
        async with opened(settings, catalog) as servers:
            for name, server in servers.servers.items():
                if server.is_per_subject:
                    findings.ok(f"MCP server {name}", "is listed once a person has given access")
                    continue
                tools = await server.tools()
                if server.last_error is not None:
                    findings.problem(f"MCP server {name}", server.last_error)
                    continue
                report = server.report
                left_out = f"; left out: {', '.join(report.left_out)}" if report.left_out else ""
                count = "1 tool" if len(tools) == 1 else f"{len(tools)} tools"
                findings.ok(
                    f"MCP server {name}",
                    f"{report.version} speaks {report.protocol} and has {count}{left_out}",
                )
    except ConfigurationError as error:
        findings.problem("MCP servers", str(error))


async def call_tool(
    settings: Settings, name: str, tool: str, arguments: dict[str, Any], _: StopSignal
) -> None:
    """Call one tool of a server that is started for it, and print the result."""
    catalog, models = load_agents(settings)
    await models.aclose()
    if name not in catalog.mcp:
        known = ", ".join(catalog.mcp) or "none"
        raise ConfigurationError(f"there is no MCP server {name!r} in the agents file, but {known}")
    async with opened(settings, catalog) as servers:
        server = servers.servers[name]
        if server.is_per_subject:
            raise ConfigurationError(
                f"the MCP server {name!r} needs access that a person gives: start a run instead"
            )
        tools = await server.tools()
        if tool not in tools:
            why = server.last_error or f"it has: {', '.join(tools)}"
            raise ConfigurationError(f"the MCP server {name!r} offers no tool {tool!r}; {why}")
        try:
            request = ToolRequest(tool=tool, arguments=arguments)
            answer = await server.call(request, "")
            if isinstance(answer, TaskHandle):
                look = partial(server.call, thread="")
                answer = await followed(answer, request, look, may_suspend=False)
        except HoldfastError as error:
            raise ConfigurationError(f"the call failed: {error}") from error
    assert not isinstance(answer, TaskHandle)
    if isinstance(answer, InputRequired):
        for question in answer.questions.values():
            typer.echo(f"The server asks: {question.message}")
        return
    if answer.text:
        typer.echo(answer.text)
    elif answer.data is not None:
        typer.echo(json.dumps(answer.data, ensure_ascii=False, indent=2))
    if answer.is_error:
        raise SystemExit(ExitCode.FAILED)
