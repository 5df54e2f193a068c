"""An adapter of ours and the SDK's for the same provider, which records what both send."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from app.domain.structs import replace
from app.llm.catalog import ModelCatalog
from app.llm.specs import ModelSpec
from app.runtime.ports.models import ModelRequest
from tests.support.recorded_answers import WIRES
from tests.support.recorded_provider import RecordedProvider, recorded_provider
from tests.support.transcripts import collect

_SDK = "pydantic-ai"


@dataclass(frozen=True, slots=True)
class Adapters:
    """Both adapters with the same options."""

    provider: RecordedProvider
    catalog: ModelCatalog
    own: str
    model: str
    plain: Callable[[dict[str, Any]], dict[str, Any]]
    """The body as it is compared."""

    async def sent(self, request: ModelRequest, name: str | None = None) -> tuple[Any, Any]:
        """The bodies of our request and of the SDK's."""
        return await self.ours(request, name), await self.body(_SDK, request, name)

    async def ours(self, request: ModelRequest, name: str | None = None) -> dict[str, Any]:
        return await self.body(self.own, request, name)

    async def body(
        self, adapter: str, request: ModelRequest, name: str | None = None
    ) -> dict[str, Any]:
        self.provider.plays(self.own, WIRES[self.own].second)
        options = replace(request.options, upstream_model=name or self.model)
        await collect(self.catalog.model(adapter), replace(request, options=options))
        [body] = self.provider.requests(self.own)
        return self.plain(body)


@dataclass(frozen=True, slots=True)
class ComparedAdapters:
    provider: RecordedProvider
    own: str
    model: str
    plain: Callable[[dict[str, Any]], dict[str, Any]]
    catalogs: list[ModelCatalog]

    def with_options(self, options: Mapping[str, Any]) -> Adapters:
        ours, sdk = (
            ModelSpec(
                name=provider,
                provider=provider,
                model=model,
                base_url=f"{self.provider.origin}/{self.own}",
                api_key="sk-of-a-test",
                options=options,
            )
            for provider, model in ((self.own, self.model), (_SDK, f"{self.own}:{self.model}"))
        )
        catalog = ModelCatalog([ours, sdk], {})
        self.catalogs.append(catalog)
        return Adapters(self.provider, catalog, self.own, self.model, self.plain)


@asynccontextmanager
async def compared_adapters(
    own: str, model: str, plain: Callable[[dict[str, Any]], dict[str, Any]]
) -> AsyncIterator[ComparedAdapters]:
    """Our adapter of this name. `model` is asked unless a request names another one."""
    async with recorded_provider() as provider:
        opened = ComparedAdapters(provider, own, model, plain, [])
        yield opened
        for catalog in opened.catalogs:
            await catalog.aclose()
