"""`@tool(approval=…)`: what is refused when the module is loaded, and who may answer such tickets."""

from pathlib import Path
from typing import Any

import pytest

from app.domain.errors import ConfigurationError
from app.tools.functions.decorator import tool
from tests.support.agents_files import AGENT, MODELS, load, problems


def decorated(approval: Any) -> None:
    @tool(approval=approval)
    async def refund(number: str, amount: float) -> None:
        """Pay money back."""


@pytest.mark.parametrize(
    ("approval", "sentence"),
    [
        ("amont > 50", "column 1: 'refund' has no argument 'amont', did you mean 'amount'?"),
        ("amount > 50 and amont > 5", "column 17: 'refund' has no argument 'amont'"),
        ('amount > "50"', "write amount > 50, without quotes"),
        ("amount = 50", "column 8: '=' isn't a comparison; write =="),
        ("above 50", "'above 50' isn't a condition; write one such as \"amount > 50\""),
        ("", "'' isn't a condition"),
        (50, "it must be True, conditions as text, or a function"),
        (lambda: True, "the function takes the arguments as a dict"),
        (lambda *args: True, "the function takes the arguments as a dict"),
        (lambda a, b, c: True, "the function takes the arguments as a dict"),
    ],
)
def test_an_approval_that_cannot_work_is_refused(approval: Any, sentence: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        decorated(approval)
    assert str(caught.value).startswith("tool 'refund': approval: ")
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    "approval", [True, False, "amount > 50", lambda a: True, lambda a, ctx: True]
)
def test_other_approvals_are_accepted(approval: Any) -> None:
    decorated(approval)


SHOP = """
from holdfast import ToolContext, tool

@tool(approval="amount > 50")
async def refund(amount: float) -> None: ...

@tool
async def order(ctx: ToolContext) -> None: ...

@tool
async def find(number: str) -> None: ...
"""


def test_approvers_are_for_tools_that_may_open_tickets(tmp_path: Path) -> None:
    file = (
        MODELS + '[tools]\nmodules = ["shop"]\n' + AGENT + 'tools = ["refund", "order", "find"]\n'
    )
    table = "[agents.helper.approvers.{}]\nnot_starter = true\n"
    load(tmp_path, file + table.format("refund") + table.format("order"), shop=SHOP)
    [sentence] = problems(tmp_path, file + table.format("find"), shop=SHOP)
    assert "calls of 'find' run without a ticket; add it to approval too" in sentence
