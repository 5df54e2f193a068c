"""What a client may override for a run: model options, and what the model's answers have to be."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from app.api.schemas.common import Metadata, RequestModel, Str
from app.domain.inference.options import EffortName, InferenceOptions, ThinkingBudget
from app.domain.runs.output_specs import MAX_RETRIES, OutputMode, OutputSpec, problem_of_output
from app.domain.runs.requested_answers import ANY_ANSWER, RequestedAnswer
from app.tools.schemas.subset import problem_of_schema

_MAX_TOKENS = 2**31 - 1
MAX_INSTRUCTIONS = 100_000


_NAME = re.compile(r"\w[\w.:/@+~-]*")


def _name(name: str) -> str:
    """Some providers put the name into a URL path, so it must not contain other path parts."""
    if not name.strip():
        raise ValueError("must not be blank")
    if not _NAME.fullmatch(name) or ".." in name:
        raise ValueError(
            "must be the provider's name of a model: letters, digits and . : / @ + ~ - _"
        )
    return name


ModelName = Annotated[Str, Field(max_length=200), AfterValidator(_name)]
Tokens = Annotated[int, Field(strict=True, ge=1, le=_MAX_TOKENS)]


class ThinkingBudgetIn(RequestModel):
    """A reasoning budget in tokens."""

    budget: Tokens = Field(description="Maximum number of reasoning tokens.")


class OverridesIn(RequestModel):
    """Overrides of model options. The agent's options apply to absent fields."""

    upstream_model: ModelName | None = Field(
        None, description="Model to use instead of the agent's, by the provider's name."
    )
    fallback_upstream_models: list[ModelName] | None = Field(
        None,
        max_length=10,
        description="Models to try in this order if the first one fails. They replace the agent's.",
    )
    temperature: Annotated[float, Field(strict=True, ge=0, le=2)] | None = None
    max_tokens: Tokens | None = None
    top_p: Annotated[float, Field(strict=True, gt=0, le=1)] | None = None
    reasoning_effort: EffortName | ThinkingBudgetIn | None = None

    def to_domain(self) -> InferenceOptions:
        effort, fallbacks = self.reasoning_effort, self.fallback_upstream_models
        return InferenceOptions(
            upstream_model=self.upstream_model,
            fallback_upstream_models=None if fallbacks is None else tuple(fallbacks),
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            top_p=self.top_p,
            reasoning_effort=ThinkingBudget(effort.budget)
            if isinstance(effort, ThinkingBudgetIn)
            else effort,
        )


# --- answers --------------------------------------------------------------------------------------


class OutputIn(RequestModel):
    """The format of the run's final answer. It is always checked here, too."""

    schema_: Metadata = Field(
        alias="schema",
        description="JSON Schema of an object. References stay within it. The answer is in `structured_output`.",
    )
    name: Str = Field("final_answer", pattern=r"^[A-Za-z0-9_-]{1,64}$")
    mode: OutputMode = Field(
        OutputMode.AUTO,
        description="How the model is asked. `native`: its provider gets the schema. `tool`: it calls a tool "
        "with its answer. `prompted`: its system prompt has the schema. `auto`: `native`, if the provider "
        "supports it together with the tools, else `tool`.",
    )
    retries: int = Field(
        2,
        ge=0,
        le=MAX_RETRIES,
        strict=True,
        description="How often the model may correct an answer that doesn't fit. Then the run fails with "
        "`output_invalid`.",
    )
    strict: bool = Field(
        False,
        description="In `native` mode, have the provider keep to the whole schema. All properties have to be "
        "required, and additional ones forbidden.",
    )

    @model_validator(mode="after")
    def _schema_is_usable(self) -> Self:
        problem = problem_of_output(self.schema_, self.name, strict=self.strict)
        problem = problem or problem_of_schema(self.schema_)
        if problem is not None:
            raise PydanticCustomError("schema_unsupported", "{problem}", {"problem": problem})
        return self

    def to_domain(self) -> OutputSpec:
        return OutputSpec(
            schema=self.schema_,
            name=self.name,
            mode=self.mode,
            retries=self.retries,
            strict=self.strict,
        )


class ToolChoiceIn(RequestModel):
    """The tool that the model has to call in the first step."""

    name: Str = Field(min_length=1, max_length=200)


class AnswerRequest(RequestModel):
    """A request that may say what the model's answers have to be."""

    output: OutputIn | None = Field(
        None, description="The format of the final answer, in place of the agent's own."
    )
    instructions: Str | None = Field(
        None,
        min_length=1,
        max_length=MAX_INSTRUCTIONS,
        description="Added to the agent's system prompt, for this run.",
    )
    tool_choice: Literal["auto", "none", "required"] | ToolChoiceIn | None = Field(
        None,
        description="`none`: the model calls no tools. `required`: its first step has to call one. An object: "
        "its first step has to call that tool. Some models can't be forced while they reason.",
    )
    tools: list[Str] | None = Field(
        None,
        max_length=200,
        fail_fast=True,
        description="The names of the agent's tools that this run has. For this run there are no others.",
    )

    def wanted_answer(self) -> RequestedAnswer:
        choice = self.tool_choice
        if isinstance(choice, ToolChoiceIn):
            choice_text: str | None = f"tool:{choice.name}"
        else:
            choice_text = None if choice == "auto" else choice
        answer = RequestedAnswer(
            output=None if self.output is None else self.output.to_domain(),
            instructions=self.instructions,
            tool_choice=choice_text,
            tools=None if self.tools is None else tuple(dict.fromkeys(self.tools)),
        )
        return ANY_ANSWER if answer == ANY_ANSWER else answer

    def used_answer_fields(self) -> dict[str, Any]:
        """The fields that are set, for the fingerprint of the request."""
        fields = AnswerRequest.model_fields
        set_fields = {
            name: getattr(self, name) for name in fields if getattr(self, name) is not None
        }
        return self.model_dump(mode="json", include=set(set_fields), by_alias=True)
