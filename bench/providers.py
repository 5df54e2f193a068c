"""What each provider's adapter costs: CPU for a short answer, and for each further piece of a long one."""

import time
from statistics import median

from app.llm.catalog import ModelCatalog
from app.llm.specs import ModelSpec
from app.runtime.ports.models import LanguageModel
from bench.table import Line, Mark, microseconds, milliseconds
from tests.support.transcripts import ADD, asking

SHORT, LONG = 20, 2_000
"""The pieces of an answer, all of which the fake provider sends without a pause."""
ROUNDS = 5
PROVIDERS = ("openai", "anthropic", "google")
PIECE = Mark("<= 10 us", most=10e-6)


async def providers(model_url: str, *, answers: int) -> list[Line]:
    """Ask the fake provider over the wire of each. The adapters run in this process."""
    lines: list[Line] = []
    for name in PROVIDERS:
        address = model_url if name == "openai" else model_url.removesuffix("/v1")
        specs = [
            ModelSpec(
                name=str(pieces),
                provider=name,
                model=f"fake-{pieces}",
                base_url=address,
                api_key="unused",
            )
            for pieces in (SHORT, LONG)
        ]
        catalog = ModelCatalog(specs, {})
        short, long = (catalog.model(spec.name) for spec in specs)
        await _cpu(short, 5)
        each_short = median([await _cpu(short, answers) for _ in range(ROUNDS)])
        each_long = median([await _cpu(long, max(answers // 20, 2)) for _ in range(ROUNDS)])
        await catalog.aclose()
        piece = (each_long - each_short) / (LONG - SHORT)
        lines += [
            Line(f"{name}: CPU per answer of {SHORT} pieces", milliseconds(each_short)),
            Line(
                f"{name}: CPU per piece",
                microseconds(piece),
                mark=PIECE,
                judged=piece,
            ),
        ]
    return lines


async def _cpu(model: LanguageModel, answers: int) -> float:
    """CPU seconds of this process for one answer."""
    before = time.process_time()
    for _ in range(answers):
        async with model.stream(asking("hello", tools=[ADD])) as stream:
            async for _ in stream:
                pass
    return (time.process_time() - before) / answers
