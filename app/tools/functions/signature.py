"""Converts a function's signature to a JSON Schema, and JSON arguments to the function's arguments."""

import inspect
import types
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import SchemaError

from app.domain.errors import ConfigurationError, HoldfastError
from app.domain.json_values import Json, JsonObject
from app.runtime.ports.tool_context import ToolContext
from app.tools.result_limits import MAX_PROBLEM_CHARACTERS, shortened
from app.tools.schemas.validate import Validator, build_validator, with_location


class InvalidArguments(HoldfastError):
    """Arguments that a tool can't use. A tool may raise it for rules that a schema can't express."""


class Parameters(Struct, frozen=True, kw_only=True):
    """A function's parameters: `schema` describes those of the model, `context_names` those of the runtime."""

    schema: JsonObject
    context_names: tuple[str, ...]
    fields: Mapping[str, inspect.Parameter]
    validator: Validator
    model: type[BaseModel]

    def read(self, arguments: Json) -> dict[str, Any]:
        """Convert JSON to keyword arguments. Raises InvalidArguments."""
        given = {} if arguments is None else arguments
        problem = self.validator.problem(given)
        if problem is not None:
            raise InvalidArguments(problem)
        try:
            read = self.model.model_validate(given)
        except ValidationError as error:
            raise InvalidArguments(_error_text(error)) from error
        except Exception as error:  # types bring validators of their own
            raise InvalidArguments(shortened(str(error), MAX_PROBLEM_CHARACTERS)) from error
        # Absent arguments aren't passed: the function applies its own defaults.
        return {
            parameter.name: getattr(read, field)
            for field, parameter in self.fields.items()
            if field in read.model_fields_set or not _has_plain_default(parameter)
        }


def parameters_of(
    tool_name: str, function: Callable[..., Any], described: Mapping[str, str]
) -> Parameters:
    """Read a function's parameters. Raises ConfigurationError for a signature that JSON can't express."""
    try:
        hints = get_type_hints(function, include_extras=True)
        signature = inspect.signature(function)
    except (NameError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"tool {tool_name!r}: its annotations can't be read ({error}): every type that they"
            " name must be importable when the module is loaded"
        ) from error
    context_names = tuple(name for name in signature.parameters if _is_context(hints.get(name)))
    # Fields get their own names: a parameter may be called `schema`, `copy` or `_private`.
    fields = {
        f"argument_{position}": parameter
        for position, parameter in enumerate(signature.parameters.values())
        if parameter.name not in context_names and _check_named(tool_name, parameter)
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
    """Adds no titles made from names, and ignores defaults that JSON can't express."""

    ignored_warning_kinds = {"non-serializable-default", "skipped-choice"}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _check_named(tool_name: str, parameter: inspect.Parameter) -> bool:
    if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        if parameter.annotation is parameter.empty:
            is_context = parameter.name in ("ctx", "context")
            remedy = "ToolContext" if is_context else "str"
            raise ConfigurationError(
                f"tool {tool_name!r}: parameter {parameter.name!r} has no annotation, so the model wouldn't"
                f" know its type; write it, such as {parameter.name}: {remedy}"
            )
        return True
    raise ConfigurationError(
        f"tool {tool_name!r}: parameter {str(parameter)!r} can't be given by name;"
        " a tool takes named parameters only"
    )


def _is_context(annotation: Any) -> bool:
    """Whether it is `ToolContext`, also as `ToolContext
    None` or inside `Annotated`.
    """
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


def _error_text(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_context=False, include_input=False)
    sentences = [with_location(each["loc"], each["msg"]) for each in found[:3]]
    return shortened("; ".join(sentences), MAX_PROBLEM_CHARACTERS)
