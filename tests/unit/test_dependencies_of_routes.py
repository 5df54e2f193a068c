"""No dependency of a route is called in a thread, which would take ten times as long as the call."""

from collections.abc import Iterator
from inspect import iscoroutinefunction

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, APIRouter

from app.api.runs import routes as runs
from app.api.runs import start
from app.api.threads import routes as threads
from app.api.tickets import audit
from app.api.tickets import routes as tickets

ROUTERS = (runs.router, start.router, threads.router, tickets.router, audit.router)


def dependencies_of(dependant: Dependant) -> Iterator[object]:
    for dependency in dependant.dependencies:
        yield dependency.call
        yield from dependencies_of(dependency)


def is_called_in_the_event_loop(call: object) -> bool:
    """As the framework decides it: a class isn't."""
    if isinstance(call, type):
        return False
    return iscoroutinefunction(call) or iscoroutinefunction(getattr(call, "__call__", None))  # noqa: B004


def routes_of(router: APIRouter) -> list[APIRoute]:
    return [route for route in router.routes if isinstance(route, APIRoute)]


def test_each_dependency_is_called_in_the_event_loop() -> None:
    found = [
        call
        for router in ROUTERS
        for route in routes_of(router)
        for call in (route.endpoint, *dependencies_of(route.dependant))
    ]
    assert len(found) > 50
    assert [call for call in found if not is_called_in_the_event_loop(call)] == []
