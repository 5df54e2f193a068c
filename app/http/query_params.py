"""Query parameters. A route refuses those that it doesn't declare."""

from collections.abc import Iterator

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.params import Param
from fastapi.routing import APIRoute

from app.domain.errors import Invalid

_MAX_NAME_LENGTH = 100
_MAX_NAMES = 20


class PrefixedQuery:
    """A dependency: all parameters with a prefix, such as `metadata.KEY=TEXT`, by the rest of their names."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    async def __call__(self, request: Request) -> dict[str, str]:
        found = {
            name.removeprefix(self.prefix): value
            for name, value in sorted(request.query_params.items())
            if name.startswith(self.prefix)
        }
        if "\0" in "".join([*found, *found.values()]):
            raise Invalid("invalid_request", f"query.{self.prefix}: contains the character U+0000.")
        return found


async def require_known_query(request: Request) -> None:
    """Refuses unknown parameters. If a misspelt filter were ignored, a list would return everything."""
    route = request.scope["route"]
    if not request.scope["query_string"] or not isinstance(route, APIRoute):
        return
    known = dict(_declared(route.dependant))
    prefixes = tuple(name for name in known if name.endswith("."))
    unknown = [
        name[:_MAX_NAME_LENGTH]
        for name in request.query_params
        if name not in known and not name.startswith(prefixes)
    ]
    if unknown:
        shown = ", ".join(name + "KEY" * (name in prefixes) for name in known if known[name])
        raise Invalid(
            "invalid_request",
            f"query.{unknown[0]}: unknown parameter. This operation takes {shown or 'none'}.",
            errors=[
                {"at": f"query.{name}", "problem": "unknown parameter"}
                for name in unknown[:_MAX_NAMES]
            ],
        )


def _declared(dependant: Dependant) -> Iterator[tuple[str, bool]]:
    """Names of the parameters of a route and its dependencies, and whether the document shows them."""
    for field in dependant.query_params:
        info = field.field_info
        yield field.alias, isinstance(info, Param) and info.include_in_schema
    if isinstance(dependant.call, PrefixedQuery):
        yield dependant.call.prefix, True
    for dependency in dependant.dependencies:
        yield from _declared(dependency)
