"""Mistakes that people make in an agents file and its modules, and the sentence that each one gets.

All of them go through the check of `holdfast serve`, `worker` and `doctor`.
"""

from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent

import pytest
from pydantic_ai.providers import infer_provider_class

from app.bootstrap.agents import load_agents, require_working_models
from app.domain.errors import ConfigurationError
from app.llm.specs import KNOWN_PROVIDERS
from app.settings import Settings
from tests.support.skills import skill_text, write_skill

FILE = """
[models.gpt]
provider = "openai"
model = "gpt-5.4-mini"
api_key = "unused"

[models.script]
provider = "scripted"

[tools]
modules = ["shop"]

[agents.support]
model = "gpt"
tools = ["find_order", "refund"]
approval = ["refund"]

[agents.billing]
model = "script"

[agents.far.endpoint]
backend = "a2a"
url = "http://far.example"
"""

SHOP = """
from holdfast import ToolContext, tool
from holdfast.plugins import Plugin, PluginConfig, PluginKind

@tool(effect="read")
async def find_order(number: str) -> dict: ...

@tool
async def refund(number: str, amount: float) -> str: ...

class Limit(PluginConfig):
    most: int = 3

def build(agent, config):
    return Plugin(name="limit") if config.most else 1 / 0

limit = PluginKind(name="limit", config=Limit, build=build)
"""


@dataclass(frozen=True)
class Mistake:
    """What is replaced in the file or the module, or added, and what the sentence contains."""

    place: str
    sentence: str
    remedy: str
    replace: dict[str, str] = field(default_factory=dict)
    add: str = ""
    shop: dict[str, str] = field(default_factory=dict)


def rule(pattern: str, behavior: str = "ask") -> str:
    return (
        '\n[agents.support.plugins.permission]\ndefault = "allow"\n'
        f"rules = [{{ tool = '{pattern}', behavior = \"{behavior}\" }}]\n"
    )


RULE = "agents.support.plugins.permission.rules[0].tool: column "
OPTIONS = "\n[agents.support.options]\n"
MISTAKES = {
    "unknown skill": Mistake(
        "agents.support.skills[0]: ",
        "there is no skill 'repotr', did you mean 'report'?",
        "create skills/<name>/SKILL.md beside the agents file, or name another",
        replace={"tools = [": 'skills = ["repotr"]\ntools = ['},
    ),
    "skill with an unknown key": Mistake(
        "agents.support.skills[0]: skills/wrong/SKILL.md, line 4: ",
        "unknown key 'licence'",
        "did you mean 'license'?",
        replace={"tools = [": 'skills = ["wrong"]\ntools = ['},
    ),
    "skill that allows an unknown tool": Mistake(
        "agents.support.skills[0]: skills/report/SKILL.md, line 4: allowed-tools: ",
        "the agent has no tool 'refnd', did you mean 'refund'?",
        "add it to the agent's tools or remove it there",
        replace={"tools = [": 'skills = ["report"]\ntools = ['},
    ),
    "skill that is listed twice": Mistake(
        "agents.support.skills",
        "twice",
        "remove",
        replace={"tools = [": 'skills = ["plain", "plain"]\ntools = ['},
    ),
    "tool with the name of a tool for skills": Mistake(
        "agents.support.tools[0]: ",
        "'load_skill' is a tool that agents with skills have besides",
        "rename yours",
        replace={"tools = [": 'skills = ["plain"]\ntools = ["load_skill", '},
        shop={"async def find_order": "async def load_skill(): ...\n\n@tool\nasync def find_order"},
    ),
    "time limit of scripts without skills": Mistake(
        "agents.support.script_timeout: ",
        "means nothing without skills",
        "remove it",
        replace={"tools = [": "script_timeout = 5\ntools = ["},
    ),
    "unknown section": Mistake(
        "agent: ", "unknown section", "did you mean 'agents'?", add="[agent.x]\nmodel = 'gpt'"
    ),
    "unknown key of an agent": Mistake(
        "agents.support.aproval: ",
        "unknown key",
        "did you mean 'approval'?",
        replace={"approval =": "aproval ="},
    ),
    "misspelt key of options": Mistake(
        "agents.support.options.temprature: ",
        "unknown key",
        "did you mean 'temperature'?",
        add=OPTIONS + "temprature = 1.0",
    ),
    "unknown key of options": Mistake(
        "agents.support.options.x: ",
        "unknown key",
        "known: upstream_model, fallback_upstream_models, temperature, max_tokens, top_p,",
        add=OPTIONS + "x = 1",
    ),
    "unknown key of approvers": Mistake(
        "agents.support.approvers.refund.quorom: ",
        "unknown key",
        "did you mean 'quorum'?",
        add="[agents.support.approvers.refund]\nquorom = 2",
    ),
    "unknown key of a model": Mistake(
        "models.gpt: ",
        "has the key 'baseurl', which no model has",
        "did you mean 'base_url'? Parameters for the provider go into [models.gpt.options]",
        replace={"api_key =": "baseurl ="},
    ),
    "unknown provider": Mistake(
        "models.gpt: ",
        "there is no provider 'opnai'",
        "did you mean 'openai'? There are: openai, openai-compatible, anthropic, google, scripted,",
        replace={'"openai"': '"opnai"'},
    ),
    "missing provider": Mistake(
        "models.gpt: ",
        "needs a provider",
        '"openai" for any OpenAI-compatible server',
        replace={'provider = "openai"\n': ""},
    ),
    "missing key": Mistake(
        "agents.support: ",
        "[models.gpt] has no API key",
        "set NO_SUCH_KEY in the environment",
        replace={'api_key = "unused"': 'api_key_env = "NO_SUCH_KEY"'},
    ),
    "unknown model": Mistake(
        "agents.support.model: ",
        "there is no model 'gtp', did you mean 'gpt'?",
        "add [models.gtp] or name another",
        replace={'support]\nmodel = "gpt"': 'support]\nmodel = "gtp"'},
    ),
    "missing model": Mistake(
        "agents.support.model: ",
        "is missing",
        'add model = "…"',
        replace={'support]\nmodel = "gpt"': "support]"},
    ),
    "time-out with a unit": Mistake(
        "agents.support.ticket_expires_in: ",
        "must be a number without quotes and unit",
        "write ticket_expires_in = 3600",
        replace={"approval =": 'ticket_expires_in = "1h"\napproval ='},
    ),
    "time-out of a model with a unit": Mistake(
        "models.gpt: ",
        "timeout must be a number of seconds above 0",
        "write timeout = 90",
        replace={"api_key =": 'timeout = "1.5m"\napi_key ='},
    ),
    "number in quotes": Mistake(
        "agents.support.max_rounds: ",
        "must be a number without quotes and unit",
        "write max_rounds = 12",
        replace={"approval =": 'max_rounds = "12"\napproval ='},
    ),
    "number out of range": Mistake(
        "agents.support.max_rounds: ",
        "greater than or equal to 1",
        "correct the value",
        replace={"approval =": "max_rounds = 0\napproval ="},
    ),
    "text instead of a list": Mistake(
        "agents.support.approval: ",
        "must be a list",
        'write ["…", "…"]',
        replace={'["refund"]': '"refund"'},
    ),
    "unknown tool": Mistake(
        "agents.support.tools[1]: ",
        "there is no tool 'refnd', did you mean 'refund'?",
        "define it in a module of tools.modules or remove it",
        replace={'"refund"]\napproval = ["refund"]': '"refnd"]'},
    ),
    "approval of a tool that the agent doesn't have": Mistake(
        "agents.support.approval[0]: ",
        "the agent has no tool 'refunds', did you mean 'refund'?",
        "add it to the agent's tools or remove it here",
        replace={'approval = ["refund"]': 'approval = ["refunds"]'},
    ),
    "approval with a condition": Mistake(
        "agents.support.approval[0]: ",
        "'refund(amount > 50)' is a rule, and this list has names of tools",
        "list 'refund' here, or write the rule into plugins.permission.rules of the agent",
        replace={'approval = ["refund"]': 'approval = ["refund(amount > 50)"]'},
    ),
    "approvers of a tool that needs no approval": Mistake(
        "agents.support.approvers.find_order: ",
        "calls of 'find_order' run without a ticket",
        "add it to approval too",
        add="[agents.support.approvers.find_order]\nquorum = 2",
    ),
    "module that isn't there": Mistake(
        "tools.modules[0]: ",
        "there is no module 'shops' beside the agents file",
        "did you mean 'shop'? Otherwise create ",
        replace={'["shop"]': '["shops"]'},
    ),
    "module that can't be imported": Mistake(
        "tools.modules[0]: ",
        "can't be imported: ModuleNotFoundError: No module named 'no_such_package'",
        "(shop.py, line 2)",
        shop={
            "from holdfast import ToolContext": "import no_such_package\nfrom holdfast import ToolContext"
        },
    ),
    "module without tools": Mistake(
        "tools.modules[0]: ",
        "module 'shop' defines no tool",
        "decorate a function with @tool",
        shop={SHOP: "x = 1"},
    ),
    "parameter without annotation": Mistake(
        "tools.modules[0]: ",
        "tool 'refund': parameter 'amount' has no annotation",
        "write it, such as amount: str",
        shop={"amount: float": "amount"},
    ),
    "context without annotation": Mistake(
        "tools.modules[0]: ",
        "tool 'refund': parameter 'ctx' has no annotation",
        "write it, such as ctx: ToolContext",
        shop={"amount: float": "amount: float, ctx"},
    ),
    "approval of a tool with an unknown argument": Mistake(
        "tools.modules[0]: ",
        "tool 'refund': approval: column 1: 'refund' has no argument 'amont'",
        "did you mean 'amount'?",
        shop={"@tool\nasync def refund": '@tool(approval="amont > 50")\nasync def refund'},
    ),
    "hand-off to a remote agent": Mistake(
        "agents.support.handoffs[0]: ",
        "agent 'far' is executed by a remote server and can't take over a run",
        "name it in delegates instead",
        replace={"approval =": 'handoffs = ["far"]\napproval ='},
    ),
    "delegates in a circle": Mistake(
        "agents.billing.delegates[0]: ",
        "support → billing → support is a circle",
        "remove one of these delegates",
        replace={
            "approval =": 'delegates = ["billing"]\napproval =',
            'billing]\nmodel = "script"': 'billing]\nmodel = "script"\ndelegates = ["support"]',
        },
    ),
    "delegate that isn't there": Mistake(
        "agents.support.delegates[0]: ",
        "there is no agent 'biling', did you mean 'billing'?",
        "add it or remove it here",
        replace={"approval =": 'delegates = ["biling"]\napproval ='},
    ),
    "delegate that is the agent itself": Mistake(
        "agents.support.delegates[0]: ",
        "is the agent itself",
        "remove it",
        replace={"approval =": 'delegates = ["support"]\napproval ='},
    ),
    "model and endpoint": Mistake(
        "agents.far.tools: ",
        "means nothing for an agent behind an endpoint",
        "remove it",
        replace={"[agents.far.endpoint]": "[agents.far]\ntools = []\n[agents.far.endpoint]"},
    ),
    "unknown backend": Mistake(
        "agents.far.endpoint.backend: ",
        "there is no backend 'a2b'",
        "did you mean 'a2a'?",
        replace={'"a2a"': '"a2b"'},
    ),
    "password in an address": Mistake(
        "agents.far.endpoint.url: ",
        "must not have a password in it",
        "auth_env names the variable of a token",
        replace={"http://far": "http://me:secret@far"},
    ),
    "unknown plugin": Mistake(
        "agents.support.plugins.permision: ",
        "there is no plugin 'permision', did you mean 'permission'?",
        "remove its table",
        add="[agents.support.plugins.permision]",
    ),
    "plugin that can't be built": Mistake(
        "agents.support.plugins: ",
        "can't be built: ZeroDivisionError: division by zero",
        "correct it there",
        add="[agents.support.plugins.limit]\nmost = 0",
    ),
    "rule for an unknown tool": Mistake(
        RULE + "1: ",
        "the agent has no tool 'refnd', did you mean 'refund'?",
        "correct it, or add frontend = true if clients bring this tool",
        add=rule("refnd"),
    ),
    "rule for an unknown argument": Mistake(
        RULE + "8: ",
        "'refund' has no argument 'amont', did you mean 'amount'?",
        "correct it",
        add=rule("refund(amont > 50)"),
    ),
    "comparison that there isn't": Mistake(
        RULE + "15: ", "'=' isn't a comparison", "write ==", add=rule("refund(amount = 50)")
    ),
    "comparison in words": Mistake(
        RULE + "8: ",
        "'amount is over 50' looks like a condition on 'amount'",
        "write a comparison such as amount > 50",
        add=rule("refund(amount is over 50)"),
    ),
    "comparison with another type": Mistake(
        RULE + "8: ",
        "'amount' of 'refund' is a number, and \"50\" never is",
        "write amount > 50, without quotes",
        add=rule('refund(amount > "50")'),
    ),
    "deny rule that another one lifts": Mistake(
        "agents.support.plugins.permission.rules[0].tool: ",
        "has no effect: the rule 'refund' is more specific",
        "name the tool as exactly as that rule does",
        replace={'approval = ["refund"]': ""},
        add=rule("re*(amount > 50)", 'deny" }, { tool = "refund", behavior = "allow'),
    ),
}


def check(folder: Path, mistake: Mistake) -> str:
    """What the check says about the file."""
    file, shop = FILE, SHOP
    for old, new in mistake.replace.items():
        assert old in file
        file = file.replace(old, new, 1)
    for old, new in mistake.shop.items():
        assert old in shop
        shop = shop.replace(old, new, 1)
    (folder / "agents.toml").write_text(f"{file}\n{mistake.add}\n")
    (folder / "shop.py").write_text(dedent(shop))
    write_skill(folder, skill_text(more="allowed-tools: find_order refnd"))
    write_skill(folder, skill_text("wrong", more="licence: MIT"), name="wrong")
    write_skill(folder, skill_text("plain"), name="plain")
    settings = Settings(agents=folder / "agents.toml")
    try:
        catalog, models = load_agents(settings)
        require_working_models(folder / "agents.toml", catalog, models)
    except ConfigurationError as error:
        return str(error)
    return "accepted"


def test_the_file_without_a_mistake_is_accepted(tmp_path: Path) -> None:
    assert check(tmp_path, Mistake("", "", "")) == "accepted"


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_gets_one_sentence_with_its_place_and_the_remedy(
    tmp_path: Path, name: str
) -> None:
    mistake = MISTAKES[name]
    [sentence] = check(tmp_path, mistake).splitlines()
    assert sentence.startswith(f"{tmp_path / 'agents.toml'}: {mistake.place}")
    assert mistake.sentence in sentence
    assert mistake.remedy in sentence
    assert "secret" not in sentence


def test_there_are_at_least_32_mistakes() -> None:
    assert len(MISTAKES) >= 32


@pytest.mark.parametrize(
    "provider",
    sorted(set(KNOWN_PROVIDERS) - {"openai-compatible", "scripted", "pydantic-ai"}),
)
def test_every_known_provider_is_one_of_pydantic_ai(provider: str) -> None:
    try:
        infer_provider_class(provider)
    except ImportError:
        pass  # its SDK isn't installed
