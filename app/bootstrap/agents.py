"""The agents that the settings name: their models, and who executes those that live elsewhere."""

import os
from pathlib import Path

from app.agents.catalog import Catalog, load_catalog
from app.agents.demo.catalog import demo_catalog
from app.agents.endpoints import EndpointCatalog
from app.agents.resolve import models_of
from app.backends.a2a.factory import A2AFactory
from app.backends.registry import Backends
from app.backends.remote_holdfast.backend import HoldfastFactory
from app.domain.errors import ConfigurationError
from app.llm.catalog import ModelCatalog
from app.llm.specs import specs_from_environment
from app.settings import Settings


def known_backends() -> Backends:
    """Who can execute agents that don't live here, by the name that an endpoint calls them."""
    return Backends({"a2a": A2AFactory(), "holdfast": HoldfastFactory()}, os.environ)


def load_agents(
    settings: Settings, endpoints: EndpointCatalog | None = None
) -> tuple[Catalog, ModelCatalog]:
    """The agents that the settings name, and the models behind them."""
    defaults = specs_from_environment(os.environ)
    catalog = (
        demo_catalog(default_models=defaults)
        if settings.agents is None
        else load_catalog(
            settings.agents, default_models=defaults, endpoints=endpoints or known_backends()
        )
    )
    return catalog, ModelCatalog(list(catalog.models.values()), os.environ)


def require_working_models(file: Path, catalog: Catalog, models: ModelCatalog) -> None:
    """Who wrote an agent down wants it to run: a model that can't work is found before the first run."""
    problems = [
        f"{file}: agents.{spec.id}: {problem}; an agent of your own file must be able to run"
        for spec in catalog.agents.values()
        for model in models_of(spec, catalog)
        if (problem := models.problem(model)) is not None
    ]
    if problems:
        raise ConfigurationError("\n".join(problems))
