"""`holdfast doctor`: checks everything that a server needs, and says how to fix problems."""

import asyncio
import os

from app.agents.resolve import models_of
from app.backends.registry import Backends
from app.bootstrap.agents import known_backends, load_agents, require_working_models
from app.bootstrap.connections import nats
from app.bootstrap.file_chunks import file_chunks
from app.bootstrap.secrets import redactor_of
from app.cli import environment
from app.cli.client.api_client import ServerRefused, ServerUnreachable, connect_client
from app.cli.exit_codes import ExitCode
from app.cli.server.event_loop import StopSignal
from app.cli.setup import database_checks, mcp_servers, provider_models
from app.cli.setup.findings import Findings
from app.domain.agents.endpoints import Endpoint
from app.domain.errors import ConfigurationError, FilesUnavailable
from app.domain.ids import AgentId
from app.events.fanout.relay import TransportUnavailable
from app.http.auth import load_authenticator, require_safe_address
from app.http.origins.web_access import WebAccess, load_web_access
from app.llm.specs import ModelSpec
from app.settings import Settings
from app.tools.skills.skill import Skill


async def run_checks(settings: Settings, url: str | None, key: str | None, _: StopSignal) -> None:
    """Print one line per check. Exits with 1 if there is a problem."""
    findings = Findings(redactor_of(settings, os.environ))
    _variables(findings)
    _keys(findings, settings)
    await check_agents(findings, settings)
    workers = await database_checks.check(findings, settings)
    await _relay(findings, settings)
    await _bucket(findings, settings)
    await asyncio.to_thread(_server, findings, settings, url, key, workers)
    await asyncio.to_thread(_worker_health, findings, settings)
    raise SystemExit(ExitCode.FAILED if findings.problems else ExitCode.SUCCEEDED)


def _variables(findings: Findings) -> None:
    unknown = environment.unknown_variables(os.environ)
    for sentence in unknown:
        findings.problem("settings", sentence)
    if not unknown:
        chosen = [one.name for one in environment.variables() if os.environ.get(one.name)]
        findings.ok("settings", ", ".join(chosen) or "all have their defaults")


def _keys(findings: Findings, settings: Settings) -> None:
    try:
        web_access = load_web_access(
            settings.cors_origins, settings.allowed_hosts, settings.public_url
        )
    except ConfigurationError as error:
        findings.problem("web pages", str(error))
        return
    try:
        authenticator = load_authenticator(settings.api_keys_file, settings.api_keys, web_access)
        require_safe_address(settings.host, authenticator)
    except ConfigurationError as error:
        findings.problem("API keys", str(error))
    else:
        findings.ok(
            "API keys",
            "none, so only local requests are accepted" if authenticator.is_keyless else "",
        )
        _web_access(findings, web_access, is_keyless=authenticator.is_keyless)


def _web_access(findings: Findings, access: WebAccess, *, is_keyless: bool) -> None:
    """Which pages and host names the settings allow."""
    origins = "every origin" if access.allows_any_origin else ", ".join(sorted(access.origins))
    findings.ok("web pages", f"{origins} may call" if origins else "none but its own may call")
    unnamed = "local names only" if is_keyless else "every name"
    findings.ok(
        "host names", ", ".join(["local names", *sorted(access.hosts)]) if access.hosts else unnamed
    )


async def check_agents(findings: Findings, settings: Settings) -> None:
    """Check the agents file, and the models, skills, endpoints and MCP servers of its agents."""
    backends = known_backends()
    try:
        catalog, models = load_agents(settings, backends)
    except ConfigurationError as error:
        findings.problem("agents", str(error))
        return
    try:
        if settings.agents is not None:
            require_working_models(settings.agents, catalog, models)
        findings.ok("agents", ", ".join(catalog.agents))
    except ConfigurationError as error:
        findings.problem("agents", str(error))
    used = {name for spec in catalog.agents.values() for name in models_of(spec, catalog)}
    for spec in models.specs:
        problem = models.problem(spec.name)
        if problem is None:
            await _model(findings, spec)
        elif spec.name not in used:
            findings.ok(f"model {spec.name}", f"doesn't work, but no agent uses it: {problem}")
        elif settings.agents is None:
            findings.problem(f"model {spec.name}", problem)
    for skill in catalog.skills.values():
        _skill(findings, skill)
    for agent in catalog.agents.values():
        if agent.endpoint is not None:
            _endpoint(findings, agent.id, agent.endpoint, backends)
    await mcp_servers.check(findings, settings, catalog)
    await models.aclose()


async def _model(findings: Findings, spec: ModelSpec) -> None:
    """Ask the provider of a model that can work whether it has it."""
    found = await asyncio.to_thread(provider_models.look_up, spec, os.environ)
    name = f"model {spec.name}"
    if found.problem is not None:
        findings.problem(name, found.problem)
    else:
        findings.ok(name, found.remark)


def _skill(findings: Findings, skill: Skill) -> None:
    allowed = skill.spec.allowed_tools
    narrowed = "" if allowed is None else f", allows only {', '.join(allowed)}"
    findings.ok(
        f"skill {skill.name}",
        f"{len(skill.files)} files besides SKILL.md, {len(skill.scripts)} of them scripts{narrowed}",
    )


def _endpoint(findings: Findings, agent: AgentId, endpoint: Endpoint, backends: Backends) -> None:
    """Check the endpoint's definition. The other server isn't called."""
    problem = backends.problem(endpoint)
    if problem is None:
        findings.ok(
            f"agent {agent}", f"is on another server ({endpoint.backend}), which wasn't called"
        )
    else:
        findings.problem(f"agent {agent}", problem)


async def _relay(findings: Findings, settings: Settings) -> None:
    """Check NATS, if NATS_URL is set."""
    if settings.nats_url is None:
        return
    try:
        findings.ok("NATS", await nats().require_reachable(settings.nats_url))
    except ConfigurationError as error:
        findings.problem("NATS", str(error))
    except TransportUnavailable as error:
        findings.problem(
            "NATS",
            f"no server of NATS_URL responds ({error}). Until one does, replicas poll the event log.",
        )


async def _bucket(findings: Findings, settings: Settings) -> None:
    """Write, read and delete an object in the bucket of HOLDFAST_BLOBS, if it is set."""
    if settings.blobs is None:
        return
    try:
        chunks = file_chunks(settings, os.environ)
        if chunks is not None:
            await chunks.check()
    except ConfigurationError as error:
        findings.problem("files", str(error))
    except FilesUnavailable as error:
        findings.problem(
            "files",
            f"{settings.blobs} can't be used: {error.__cause__ or error}. Check its name, AWS_ENDPOINT_URL_S3, "
            "AWS_REGION and the credentials, which need to put, get, list and delete objects.",
        )
    else:
        findings.ok("files", f"{settings.blobs} takes, returns and deletes objects")


def _server(
    findings: Findings, settings: Settings, url: str | None, key: str | None, workers: int | None
) -> None:
    """Check the server. If no address is set, it needn't run."""
    address, key = environment.server_settings(url, key)
    try:
        with connect_client(address, key) as server:
            health = server.health()
            agents = list(server.pages("/v1/agents", {}))
    except ServerUnreachable as error:
        if url is None and settings.url is None:
            findings.ok("server", f"no server runs at {address}")
        else:
            findings.problem("server", str(error))
    except ServerRefused as error:
        remedy = ". Set HOLDFAST_API_KEY to a key of that server." if error.status == 401 else ""
        findings.problem("server", f"{address} answers {error}{remedy}")
    else:
        offered = f"{address} offers {', '.join(one['id'] for one in agents)}"
        if health["status"] in ("healthy", "degraded"):
            findings.ok("server", offered)
        else:
            parts = ", ".join(f"{name} {state}" for name, state in health["components"].items())
            findings.problem("server", f"{address} is {health['status']}: {parts}")
        _workers(findings, workers)


def _workers(findings: Findings, living: int | None) -> None:
    """Check that a worker executes what the server starts."""
    if living == 0:
        findings.problem(
            "workers",
            "none lives, so runs stay queued. Start `holdfast worker`, or serve with HOLDFAST_ROLE=all.",
        )
    elif living is not None:
        findings.ok("workers", f"{living} live")


def _worker_health(findings: Findings, settings: Settings) -> None:
    """Check the worker of this machine, if one runs."""
    if not settings.health_port:
        return
    address = f"http://127.0.0.1:{settings.health_port}"
    try:
        with connect_client(address, None) as worker:
            status = worker.get("/health")["status"]
    except ServerUnreachable:
        findings.ok("worker health", f"no worker runs at {address}")
    except ServerRefused as error:
        findings.problem("worker health", f"{address}/health answers {error}")
    else:
        findings.ok("worker health", f"{address} is {status}")
