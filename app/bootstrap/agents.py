"""Loads the agents that the settings name, their models, and the backends of remote agents."""

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
    """The backends that execute remote agents, by the name that an endpoint uses."""
    return Backends({"a2a": A2AFactory(), "holdfast": HoldfastFactory()}, os.environ)


def load_agents(
    settings: Settings, endpoints: EndpointCatalog | None = None
) -> tuple[Catalog, ModelCatalog]:
    """Load the agents that the settings name, or the demo agents, with their models."""
    defaults = specs_from_environment(os.environ)
    catalog = (
        demo_catalog(default_models=defaults)
        if settings.agents is None
        else load_catalog(
            settings.agents, default_models=defaults, endpoints=endpoints or known_backends()
        )
    )
    models = ModelCatalog(
        list(catalog.models.values()),
        os.environ,
        encoded_messages_bytes=settings.encoded_messages_bytes,
    )
    return catalog, models


def require_working_models(file: Path, catalog: Catalog, models: ModelCatalog) -> None:
    """Refuse to start if a model of the agents file can't work, instead of failing the first run."""
    problems = [
        f"{file}: agents.{spec.id}: {problem}; every agent of the file must be able to run."
        for spec in catalog.agents.values()
        for model in models_of(spec, catalog)
        if (problem := models.problem(model)) is not None
    ]
    if problems:
        raise ConfigurationError("\n".join(problems))
