"""A function's signature as a JSON Schema, and JSON arguments as what the function expects."""

import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import SchemaError

from app.domain.errors import ConfigurationError, HoldfastError
from app.domain.json_values import Json, JsonObject
from app.runtime.ports import ToolContext
from app.tools.result_limits import MAX_COMPLAINT_CHARACTERS, shortened
from app.tools.schemas.validate import Validator, build_validator, located


class InvalidArguments(HoldfastError):
    """Arguments that a tool can't work with. A tool may raise it for what no schema can say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """What a function takes: from the model by `schema`, from the runtime by `context_names`."""

    schema: JsonObject
    context_names: tuple[str, ...]
    fields: Mapping[str, inspect.Parameter]
    validator: Validator
    model: type[BaseModel]

    def read(self, arguments: Json) -> dict[str, Any]:
        """The keyword arguments that JSON stands for; raises InvalidArguments."""
        given = {} if arguments is None else arguments
        problem = self.validator.problem(given)
        if problem is not None:
            raise InvalidArguments(problem)
        try:
            read = self.model.model_validate(given)
        except ValidationError as error:
            raise InvalidArguments(_complaint(error)) from error
        except Exception as error:  # types bring validators of their own
            raise InvalidArguments(shortened(str(error), MAX_COMPLAINT_CHARACTERS)) from error
        # What was left out is left out of the call too: the function knows its own defaults best.
        return {
            parameter.name: getattr(read, field)
            for field, parameter in self.fields.items()
            if field in read.model_fields_set or not _has_plain_default(parameter)
        }


def parameters_of(
    tool_name: str, function: Callable[..., Any], described: Mapping[str, str]
) -> Parameters:
    """What a function takes; a signature that JSON can't serve is a ConfigurationError."""
    try:
        hints = get_type_hints(function, include_extras=True)
        signature = inspect.signature(function)
    except (NameError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"tool {tool_name!r}: its annotations can't be read ({error}): every type that they"
            " name must be importable when the module is loaded"
        ) from error
    context_names = tuple(name for name in signature.parameters if _is_context(hints.get(name)))
    # Fields get names of their own: a parameter may be called `schema`, `copy` or `_private`.
    fields = {
        f"argument_{position}": parameter
        for position, parameter in enumerate(signature.parameters.values())
        if parameter.name not in context_names and _must_be_nameable(tool_name, parameter)
    }
    definitions: dict[str, Any] = {
        field: _definition(parameter, hints.get(parameter.name, Any), described)
        for field, parameter in fields.items()
    }
    try:
        model = create_model("Arguments", __config__=ConfigDict(extra="forbid"), **definitions)
        schema = model.model_json_schema(schema_generator=_UntitledFields)
        del schema["title"]
        validator = build_validator(schema)
    except (PydanticUserError, SchemaError, NameError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"tool {tool_name!r}: a parameter has a type that can't be described to a model"
            f" ({shortened(str(error).splitlines()[0], 200)})"
        ) from error
    except ConfigurationError as error:
        raise ConfigurationError(f"tool {tool_name!r}: {error}") from error
    return Parameters(
        schema=schema,
        context_names=context_names,
        fields=fields,
        validator=validator,
        model=model,
    )


class _UntitledFields(GenerateJsonSchema):
    """Titles made from names tell a model nothing; a default without a JSON form is left out."""

    ignored_warning_kinds = {"non-serializable-default", "skipped-choice"}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _must_be_nameable(tool_name: str, parameter: inspect.Parameter) -> bool:
    if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        return True
    raise ConfigurationError(
        f"tool {tool_name!r}: parameter {str(parameter)!r} can't be given by name;"
        " a tool takes named parameters only"
    )


def _is_context(annotation: Any) -> bool:
    """`ToolContext`, also as `ToolContext | None` or inside `Annotated`."""
    if get_origin(annotation) in (Annotated, Union, types.UnionType):
        return any(_is_context(part) for part in get_args(annotation))
    return annotation is ToolContext


def _definition(
    parameter: inspect.Parameter, annotation: Any, described: Mapping[str, str]
) -> tuple[Any, Any]:
    options: dict[str, Any] = {"alias": parameter.name}
    extras = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    if isinstance(parameter.default, FieldInfo):
        extras = (*extras, parameter.default)
        annotation = Annotated[annotation, parameter.default]
    if not any(isinstance(extra, FieldInfo) and extra.description for extra in extras):
        options["description"] = described.get(parameter.name)
    if _has_plain_default(parameter):
        options["default"] = parameter.default
    return annotation, Field(**options)


def _has_plain_default(parameter: inspect.Parameter) -> bool:
    return parameter.default is not parameter.empty and not isinstance(parameter.default, FieldInfo)


def _complaint(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    sentences = [located(each["loc"], each["msg"]) for each in found[:3]]
    return shortened("; ".join(sentences), MAX_COMPLAINT_CHARACTERS)
