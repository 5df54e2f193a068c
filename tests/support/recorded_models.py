"""Models of every wire, whose provider plays recorded answers."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from app.llm.catalog import ModelCatalog
from app.llm.specs import ModelSpec
from app.runtime.ports.models import LanguageModel
from tests.support.recorded_answers import Wire
from tests.support.recorded_provider import RecordedProvider, recorded_provider


class RecordedModels:
    def __init__(self, provider: RecordedProvider, wires: Iterable[Wire]) -> None:
        self.provider = provider
        self.catalog = ModelCatalog([self._spec(wire) for wire in wires], {})

    def _spec(self, wire: Wire) -> ModelSpec:
        return ModelSpec(
            name=wire.model,
            provider=wire.provider,
            model=wire.model,
            base_url=f"{self.provider.origin}/{wire.name}{wire.base_path}",
            api_key="sk-of-a-test",
        )

    def model_with(self, wire: Wire, options: dict[str, Any], *answers: bytes) -> LanguageModel:
        """A model of this wire with options of its own."""
        name = f"{wire.model} with options"
        spec = replace(self._spec(wire), name=name, options=options)
        self.catalog = ModelCatalog([*self.catalog.specs, spec], {})
        self.provider.plays(wire.name, *answers)
        return self.catalog.model(name)

    def model(self, wire: Wire, *answers: bytes) -> LanguageModel:
        """The model of this wire. It answers like this."""
        self.provider.plays(wire.name, *answers)
        return self.catalog.model(wire.model)


@asynccontextmanager
async def recorded_models(wires: Iterable[Wire]) -> AsyncIterator[RecordedModels]:
    async with recorded_provider() as provider:
        models = RecordedModels(provider, wires)
        yield models
        await models.catalog.aclose()
