"""What is read from a docstring, in each of its layouts."""

from hypothesis import given
from hypothesis import strategies as st

from app.tools.functions.docstring import read_docstring


def google(a: int, b: int) -> None:
    """Add two numbers.

    Carries over.

    Args:
        a (int): the first,
            which may be negative
        *b: the second: always there

    Returns:
        c: not a parameter
    """


def numpy(a: int, b: int) -> None:
    """Add two numbers.

    Parameters
    ----------
    a : int
        the first,
        which may be negative
    b
        the second

    Returns
    -------
    int
        the sum
    """


def plain() -> None:
    """Says: nothing of parameters.

    Note that "Args:" in a sentence starts no section.
    """


def bare() -> None: ...


def test_google_sections_are_read() -> None:
    assert read_docstring(google) == (
        "Add two numbers.\n\nCarries over.",
        {"a": "the first, which may be negative", "b": "the second: always there"},
    )


def test_numpy_sections_are_read() -> None:
    assert read_docstring(numpy) == (
        "Add two numbers.",
        {"a": "the first, which may be negative", "b": "the second"},
    )


def test_a_text_without_sections_is_the_description() -> None:
    description, described = read_docstring(plain)
    assert description.startswith("Says: nothing")
    assert description.endswith("starts no section.")
    assert described == {}


def test_no_docstring_is_no_description() -> None:
    assert read_docstring(bare) == ("", {})


@given(st.lists(st.sampled_from(["Args:", "Parameters", "----", "  a: x", "    b", "", "x"])))
def test_any_docstring_can_be_read(lines: list[str]) -> None:
    def function() -> None: ...

    function.__doc__ = "\n".join(lines)
    description, described = read_docstring(function)
    assert all(described.values())
    assert description == description.strip()
