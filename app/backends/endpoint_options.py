"""Endpoint options: their shared fields and checks, for every kind of endpoint."""

from collections.abc import Sequence
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from app.domain.agents.endpoints import Endpoint


class EndpointOptions(BaseModel):
    """`[agents.<name>.endpoint.options]` of one kind of endpoint."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @classmethod
    def of(cls, endpoint: Endpoint) -> Self:
        return cls.model_validate(dict(endpoint.options))

    @classmethod
    def errors_of(cls, endpoint: Endpoint) -> Sequence[tuple[str, str]]:
        """The errors in the options: for each a key below the endpoint, and a sentence."""
        try:
            cls.of(endpoint)
        except ValidationError as error:
            return [
                (
                    ".".join(["options", *map(str, each["loc"])]),
                    f"{each['msg'][:1].lower()}{each['msg'][1:]}; correct or remove it",
                )
                for each in error.errors(include_url=False, include_input=False)
            ]
        return []
