"""Query parameters: a route takes those that it declares, and refuses any other."""

from collections.abc import Iterator

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.params import Param
from fastapi.routing import APIRoute

from app.domain.errors import Invalid

_LONGEST_NAME = 100
_MOST_NAMED = 20


class PrefixedQuery:
    """A dependency: all parameters whose names begin alike, as `metadata.KEY=TEXT`, by what follows."""

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
    """A misspelt parameter must not pass for its default, which may be a list of everything."""
    route = request.scope["route"]
    if not request.scope["query_string"] or not isinstance(route, APIRoute):
        return
    known = dict(_declared(route.dependant))
    prefixes = tuple(name for name in known if name.endswith("."))
    unknown = [
        name[:_LONGEST_NAME]
        for name in request.query_params
        if name not in known and not name.startswith(prefixes)
    ]
    if unknown:
        shown = ", ".join(name + "KEY" * (name in prefixes) for name in known if known[name])
        raise Invalid(
            "invalid_request",
            f"query.{unknown[0]}: there is no such parameter here; a misspelt one must not pass for "
            f"its default. This address takes {shown or 'none'}.",
            errors=[
                {"at": f"query.{name}", "problem": "there is no such parameter here"}
                for name in unknown[:_MOST_NAMED]
            ],
        )


def _declared(dependant: Dependant) -> Iterator[tuple[str, bool]]:
    """What a route takes, itself or by what it depends on, and whether its document shows that."""
    for field in dependant.query_params:
        info = field.field_info
        yield field.alias, isinstance(info, Param) and info.include_in_schema
    if isinstance(dependant.call, PrefixedQuery):
        yield dependant.call.prefix, True
    for dependency in dependant.dependencies:
        yield from _declared(dependency)
