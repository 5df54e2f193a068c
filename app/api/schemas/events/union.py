"""The AgentEvents in the OpenAPI document: a union that is discriminated by `event_type`."""

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from msgspec.structs import fields
from pydantic.json_schema import models_json_schema

from app.api.schemas.events.parts import PARTS
from app.domain.events.agent_events import AgentEvent
from app.domain.events.run_events import IDENTITY, RunFinish, RunStart
from app.domain.events.step_events import MessageDone
from app.domain.events.ticket_events import (
    TicketDecided,
    TicketExpired,
    TicketOpened,
    TicketVoid,
)
from app.domain.events.tool_call_events import ToolCallDone, ToolCallResumed

_ENVELOPE: dict[str, Any] = {
    "seq": {
        "type": "integer",
        "description": "Number of the event within its thread, from 1. On a run's own stream the "
        "frame's `id` has it.",
    },
    "ts": {
        "type": "string",
        "format": "date-time",
        "description": "When it was written. Deltas on a run's own stream don't show it.",
    },
    "thread_id": {
        "type": "string",
        "description": "Id of the thread. On a run's own stream only the first event of a connection "
        "has it.",
    },
    "run_id": {
        "type": "string",
        "description": "Id of the run. On a run's own stream only the first event of a connection "
        "has it.",
    },
    "step": {"type": "integer", "description": "Step of the run; absent outside of steps."},
}


_REFERENCES: Mapping[tuple[type, str], str] = {
    (MessageDone, "message"): "MessageOut",
    (ToolCallDone, "result"): "ToolResultOut",
    (ToolCallResumed, "result"): "ToolResultOut",
    (RunStart, "identity"): "RunIdentityOut",
    (RunFinish, "identity"): "RunIdentityOut",
    (RunFinish, "termination"): "TerminationOut",
    (RunFinish, "result"): "FinishResultOut",
    (RunFinish, "waiting"): "SuspensionOut",
    (TicketOpened, "ticket"): "OpenTicketOut",
    **{
        (kind, "child"): "ChildOut"
        for kind in (TicketOpened, TicketDecided, TicketExpired, TicketVoid)
    },
}
_SCALARS: Mapping[Any, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}


def event_schemas() -> dict[str, Any]:
    """`AgentEvent`, and a schema for each of its variants."""
    variants = {_name_of(kind): kind for kind in get_args(AgentEvent)}
    names = {kind.event_type: name for name, kind in variants.items()}
    union = {
        "title": "AgentEvent",
        "description": "An event of a run. Ignore events with an unknown `event_type`, and unknown "
        "fields: both may be added.",
        "oneOf": [_ref(name) for name in names.values()],
        "discriminator": {
            "propertyName": "event_type",
            "mapping": {event_type: _ref(name)["$ref"] for event_type, name in names.items()},
        },
    }
    return {
        **_schemas_of_parts(),
        "AgentEvent": union,
        **{name: _schema_of(kind) for name, kind in variants.items()},
    }


def _schemas_of_parts() -> dict[str, Any]:
    _, found = models_json_schema(
        [(part, "serialization") for part in PARTS], ref_template="#/components/schemas/{model}"
    )
    parts: dict[str, Any] = found["$defs"]
    return parts


def declare_events(document: dict[str, Any]) -> None:
    """Add the events to the document, as the items of event pages and the data of streams."""
    schemas = document["components"]["schemas"]
    schemas.update(event_schemas())
    schemas["EventsPage"]["properties"]["items"]["items"] = _ref("AgentEvent")


def _schema_of(kind: Any) -> dict[str, Any]:
    own = fields(kind)
    return {
        "title": _name_of(kind),
        "type": "object",
        "description": " ".join((kind.__doc__ or "").split()),
        "properties": {
            **_ENVELOPE,
            "event_type": {
                "type": "string",
                "const": kind.event_type,
                "description": "Type of the event.",
            },
            **{
                field.name: _ref(_REFERENCES[kind, field.name])
                if (kind, field.name) in _REFERENCES
                else _property(field.name, field.type)
                for field in own
            },
        },
        "required": [
            "event_type",
            *(each.name for each in own if each.required and each.name != IDENTITY),
        ],
    }


def _property(name: str, annotation: Any) -> dict[str, Any]:
    is_time = name.endswith("_at")
    return {**_type_of(annotation), **({"format": "date-time"} if is_time else {})}


def _type_of(annotation: Any) -> dict[str, Any]:
    """The JSON Schema of a field. Absent fields are left out of events, so none is null."""
    if isinstance(annotation, UnionType):
        [*kinds] = [one for one in get_args(annotation) if one is not NoneType]
        return _type_of(kinds[0]) if len(kinds) == 1 else {}
    if annotation in _SCALARS:
        return {"type": _SCALARS[annotation]}
    origin = get_origin(annotation) or annotation
    if origin in (list, tuple):
        return {"type": "array", "items": _type_of(get_args(annotation)[0])}
    return {"type": "object"} if origin in (dict, Mapping) else {}


def _name_of(kind: Any) -> str:
    return f"{kind.__name__.removesuffix('Event')}Event"


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}
