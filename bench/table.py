"""The table: one line per measure, with its reference value and its required mark."""

from collections.abc import Sequence
from dataclasses import dataclass

HEADINGS = ("", "floor", "holdfast", "ratio", "mark", "")


@dataclass(frozen=True, slots=True)
class Mark:
    """The required range of a measure; `text` is its display form."""

    text: str
    most: float | None = None
    least: float | None = None

    def is_kept(self, value: float) -> bool:
        if self.most is not None and value > self.most:
            return False
        return self.least is None or value >= self.least


@dataclass(frozen=True, slots=True)
class Line:
    """One measure. `judged` is what its mark applies to."""

    what: str
    ours: str
    floor: str = ""
    ratio: str = ""
    mark: Mark | None = None
    judged: float | None = None

    def cells(self) -> tuple[str, ...]:
        verdict = ""
        if self.mark is not None and self.judged is not None:
            verdict = "kept" if self.mark.is_kept(self.judged) else "MISSED"
        mark = "" if self.mark is None else self.mark.text
        return (self.what, self.floor, self.ours, self.ratio, mark, verdict)


def times(value: float) -> str:
    return f"{value:.2f}x"


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"


def microseconds(seconds: float) -> str:
    return f"{seconds * 1_000_000:.1f} us"


def count(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}"


def megabytes(size: float) -> str:
    return f"{size / 1_000_000:.1f} MB"


def printed(sections: Sequence[tuple[str, Sequence[Line]]]) -> str:
    """All sections under one heading, in columns as wide as they need."""
    rows = [HEADINGS, *(line.cells() for _, lines in sections for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    widths[0] = max(widths[0], *(len(title) for title, _ in sections))
    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    text = [_aligned(HEADINGS, widths), rule]
    for title, lines in sections:
        text.append(title)
        text += [_aligned(line.cells(), widths) for line in lines]
        text.append(rule)
    return "\n".join(text)


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = zip(cells, widths, strict=True)
    right = [f"{cell:>{width}}" for cell, width in others]
    return "  ".join([f"{first[0]:<{first[1]}}", *right]).rstrip()
