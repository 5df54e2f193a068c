"""Mutation tests: which tokens are changed, and which are skipped because no test could notice."""

import ast
import random
from pathlib import Path

import pytest

from tests.mutation.changes import Change, changes_of, offered_by, sample

MODULE = Path("app/domain/some.py")
ROOT = Path(__file__).parents[2]


def changed(source: str) -> list[str]:
    """The source after each possible change."""
    return [change.applied(source) for change in changes_of(MODULE, source)]


@pytest.mark.parametrize(
    "source, others",
    [
        ("x = a < b", ["x = a <= b"]),
        ("x = a >= b", ["x = a > b"]),
        ("x = a == b", ["x = a != b"]),
        ("x = a + b", ["x = a - b"]),
        ("x += y", ["x -= y"]),
        ("x = a and b", ["x = a or b"]),
        ("x = not a", ["x =  a"]),
        ("x = a is b", ["x = a is not b"]),
        ("x = a is not b", ["x = a is  b"]),
        ("x = a not in b", ["x = a  in b"]),
        ("x = f(1)", ["x = f(2)"]),
        ("RANKS = {A: 1}", ["RANKS = {A: 2}"]),
        ("FULL = Offer(limits=True)", ["FULL = Offer(limits=False)"]),
        ("x = f(True)", ["x = f(False)"]),
        ("x = min(a)", ["x = max(a)"]),
        ("x = any(a)", ["x = all(a)"]),
        ("for x in y:\n    break", ["for x in y:\n    continue"]),
        ("x = a[1:-1]", ["x = a[2:-1]", "x = a[1:-2]"]),
        ("def f(x: int = 0) -> int:\n    return x", ["def f(x: int = 1) -> int:\n    return x"]),
        ("class A:\n    x: int = 0", ["class A:\n    x: int = 1"]),
        ("f('ä', 'é', 1)", ["f('ä', 'é', 2)"]),
    ],
)
def test_a_token_with_behaviour_can_be_changed(source: str, others: list[str]) -> None:
    assert changed(source) == others


@pytest.mark.parametrize(
    "source",
    [
        "x = 'a and b is not c < 1'",
        '"""Not 1 and 2."""',
        "def f() -> None:\n    '''Not 1.'''",
        "# not 1",
        "import a.b",
        "x: Literal[1]",
        "def f(a: Literal[1], *b: Literal[2], **c: Literal[3]) -> Literal[4]:\n    return a",
        "@dataclass(frozen=True, slots=True)\nclass A:\n    pass",
        "class P(Protocol):\n    def f(self, now: bool = False) -> int: ...",
        "assert x is not None",
        "x = zip(a, b, strict=True)",
        "T = TypeVar('T', covariant=True)",
        "class A:\n    x: str = field(repr=False)",
        "x = JSONEncoder(check_circular=False)",
        "log.info('emitted', times=1, ok=not x)",
        "if a > 1 and b:\n    log.warning('emitted', times=1)",
        "telemetry.runs.labels('x').inc(1)",
        "x = f'{a + 1} and {not b}'",
        "MAX_SECONDS = 30",
        "MAX_BYTES = 2 * KIB + 1",
        "x = 0.5",
        "for x in y:\n    pass",
        "x = a in b",
        "x = -y",
        "x = a.min(b)",
        "def max(a): return a",
        "match x:\n    case A():\n        pass",
    ],
)
def test_a_token_without_behaviour_is_not_changed(source: str) -> None:
    assert changed(source) == []


def test_a_value_beside_an_annotation_can_be_changed() -> None:
    source = "def f(a: Literal[1] = 2, *, b: bool = True) -> None:\n    g(a, b)"
    assert [(one.old, one.new) for one in changes_of(MODULE, source)] == [
        ("2", "3"),
        ("True", "False"),
    ]


def test_a_change_names_its_place() -> None:
    [change] = changes_of(MODULE, "x = [\n    a < b,\n]")
    assert change == Change(MODULE, 2, 6, "<", "<=")
    assert str(change) == "app/domain/some.py:2:6: '<' → '<='"


def test_every_change_of_the_domain_is_still_python() -> None:
    offered = offered_by(ROOT, "domain")
    for change in random.Random(1).sample(offered, 60):
        source = (ROOT / change.module).read_text()
        applied = change.applied(source)
        assert applied != source
        ast.parse(applied)


def test_a_seed_decides_the_sample() -> None:
    first, same = (sample(ROOT, ["domain"], 20, 7) for _ in range(2))
    assert first == same
    assert len(set(first)) == 20
    assert sample(ROOT, ["domain"], 20, 8) != first
    both = sample(ROOT, ["domain", "runtime"], 5, 7)
    assert [change.module.parts[1] for change in both] == ["domain"] * 5 + ["runtime"] * 5
