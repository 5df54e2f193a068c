"""What many tools cost: tokens of a request and CPU of a step, with all descriptions and with the search tool.

`python -m bench.many_tools` prints the table. It executes an agent in memory, without a server and a network.
Each step's request is also encoded as for an OpenAI-compatible server. Tokens are estimated, four characters
each. CPU of a step is the median of several runs, and includes the whole loop; compare the columns.
"""

import asyncio
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import process_time

from app.llm.openai.request import request_body
from app.runtime.history import token_estimates
from app.runtime.ports.tools import Tool
from app.runtime.tool_search.ranking import ranked
from app.tools.functions.decorator import FunctionTool
from holdfast.testing import Turn, call, run_agent, say

TOOLS = (20, 100, 400)
STEPS = 100
RUNS = 7
QUERY = "workspace_create_issue or other issue tools"
MODULE = '''
from itertools import islice, product

from holdfast import tool

VERBS = ["create", "list", "get", "update", "delete", "search", "archive", "assign", "export", "merge"]
THINGS = ["issue", "invoice", "customer", "message", "channel", "meeting", "document", "branch", "shipment", "contract"]
PLACES = ["workspace", "account", "region", "team"]


def made(place: str, thing: str, verb: str) -> object:
    async def act(id: str, fields: list[str], limit: int = 50, dry_run: bool = False) -> str:
        return "done"

    act.__doc__ = f"""{verb.capitalize()} a {thing} of the {place}. Needs the rights of a member of the {place}.
    Returns the {thing} with the chosen fields, or an error if there is no such {thing}.

    Args:
        id: The id of the {thing}, as the list of the {place} shows it.
        fields: The fields of the {thing} to return; an empty list returns all of them.
        limit: How many entries to return at most.
        dry_run: Only check whether the call is allowed, and change nothing.
    """
    return tool(name=f"{place}_{verb}_{thing}", effect="idempotent")(act)


for names in islice(product(PLACES, THINGS, VERBS), COUNT):
    globals()["_".join(names)] = made(*names)
'''


@dataclass(frozen=True, slots=True)
class Cost:
    tokens: int
    """Of the tools in the last request."""
    cpu: float
    """Seconds."""


def main() -> None:
    print(
        "| Tools | All shown: tokens | CPU of a step | With search: tokens | CPU of a step | a search |"
    )
    print("|--:|--:|--:|--:|--:|--:|")
    for count in TOOLS:
        off, on = (_measured(count, mode) for mode in ("off", "on"))
        cells = [str(count), f"{off.tokens:,}", _ms(off.cpu), f"{on.tokens:,}", _ms(on.cpu)]
        print(f"| {' | '.join([*cells, _ms(_search(count))])} |")


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


def _search(count: int) -> float:
    """CPU of one search, when the tools were searched before."""
    tools = [each.descriptor for each in _tools(count)]
    times = []
    for _ in range(RUNS + 1):
        begin = process_time()
        ranked(QUERY, tools)
        times.append(process_time() - begin)
    return median(times[1:])


def _measured(count: int, mode: str) -> Cost:
    """Steps that call a tool. With the search, the first step finds five tools."""
    with tempfile.TemporaryDirectory() as folder:
        file = _agents_file(Path(folder), count, mode)
        shorts, longs = zip(*(asyncio.run(_pair(file, mode)) for _ in range(RUNS)), strict=True)
    steps = [(long.cpu - short.cpu) / STEPS for short, long in zip(shorts, longs, strict=True)]
    return Cost(longs[0].tokens, median(steps))


async def _pair(file: Path, mode: str) -> tuple[Cost, Cost]:
    """A run with few steps and one with more: their difference is without the time to load the agent."""
    return await _cost(file, mode, 2), await _cost(file, mode, 2 + STEPS)


async def _cost(file: Path, mode: str, steps: int) -> Cost:
    first: list[Turn] = []
    if mode == "on":
        first = [call("search_tools", query=QUERY)]
    script = [*first, *[call("workspace_create_issue", id="7", fields=[])] * steps, say("Done.")]
    begin = process_time()
    async with run_agent(file, script=script) as run:
        requests = run.requests
        for request in requests:
            request_body(request, "model", {})
        cpu = process_time() - begin
    return Cost(token_estimates.of_tools(requests[-1].tools), cpu)


def _agents_file(folder: Path, count: int, mode: str) -> Path:
    """An agent with all tools of the module."""
    (folder / f"tools_{count}.py").write_text(MODULE.replace("COUNT", str(count)))
    names = [each.descriptor.name for each in _tools(count)]
    file = folder / "agents.toml"
    file.write_text(
        textwrap.dedent(
            f"""
            [models.m]
            provider = "scripted"
            [tools]
            modules = ["tools_{count}"]
            [agents.a]
            model = "m"
            max_rounds = {STEPS + 10}
            tools = {names}
            [agents.a.tool_search]
            mode = "{mode}"
            """
        ).replace("'", '"')
    )
    return file


def _tools(count: int) -> list[Tool]:
    made: dict[str, object] = {}
    exec(MODULE.replace("COUNT", str(count)), made)
    return [each for each in made.values() if isinstance(each, FunctionTool)]


if __name__ == "__main__":
    main()
