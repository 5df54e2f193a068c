/** A form for a value with a JSON Schema, with the value as JSON text beside it. */
import type { ComponentChildren } from "preact";
import { useId, useRef, useState } from "preact/hooks";
import type { Json, JsonObject } from "../core/api/messages";
import { NO_PROBLEMS, type Problems } from "../core/decisions";
import { isObject, pretty } from "../core/json";
import { blank, fieldOf, isRequired, propertiesOf, type FieldSchema } from "../core/schema";
import { ArrayField, EnumField, NumberField, TextField } from "./fields";

export interface SchemaFormProps {
  schema: JsonObject;
  value: Json;
  /** What the server found wrong, by place. */
  problems?: Problems;
  onChange(value: Json): void;
  /** Whether what is typed can't be read as a value. */
  onProblem(isWrong: boolean): void;
}

export function SchemaForm({ schema, value, problems: found = NO_PROBLEMS, onChange, onProblem }: SchemaFormProps) {
  const [asJson, showJson] = useState(false);
  const problems = useRef(new Set<string>());
  const report = (at: string, isWrong: boolean) => {
    if (isWrong) problems.current.add(at);
    else problems.current.delete(at);
    onProblem(problems.current.size > 0);
  };
  const switchTo = (json: boolean) => {
    problems.current.clear();
    onProblem(false);
    showJson(json);
  };
  const field = fieldOf(schema, schema);
  return (
    <div class="stack">
      {field.kind !== "json" && (
        <div class="segments" role="group" aria-label="Edit as">
          <button type="button" aria-pressed={!asJson} onClick={() => switchTo(false)}>
            Form
          </button>
          <button type="button" aria-pressed={asJson} onClick={() => switchTo(true)}>
            JSON
          </button>
        </div>
      )}
      {asJson || field.kind === "json" ? (
        <JsonField label="JSON" value={value} onChange={onChange} at="" report={report} found={found} />
      ) : (
        <Field label="" field={field} root={schema} value={value} onChange={onChange} at="" report={report} found={found} isOptional={false} />
      )}
    </div>
  );
}

export interface FieldProps {
  label: string;
  field: FieldSchema;
  root: JsonObject;
  value: Json | undefined;
  onChange(value: Json): void;
  at: string;
  report(at: string, isWrong: boolean): void;
  /** What the server found wrong, by place. */
  found: Problems;
  isOptional: boolean;
}

export function Field(props: FieldProps) {
  const { label, field, value, onChange, at, report, found } = props;
  const hint = typeof field.schema["description"] === "string" ? field.schema["description"] : "";
  if (field.isNullable && value === null) {
    return (
      <Labelled label={label} hint={hint}>
        <button type="button" onClick={() => onChange(blank({ ...field, isNullable: false }, props.root))}>
          null: enter a value
        </button>
      </Labelled>
    );
  }
  switch (field.kind) {
    case "object":
      return <ObjectField {...props} />;
    case "array":
      return <ArrayField {...props} />;
    case "enum":
      return <EnumField {...props} hint={hint} />;
    case "boolean":
      return (
        <label class="row">
          <input type="checkbox" checked={value === true} onChange={(event) => onChange(event.currentTarget.checked)} />
          {label} <span class="quiet small">{hint}</span>
          {found[at] && <span class="problem">{found[at]}</span>}
        </label>
      );
    case "number":
    case "integer":
      return <NumberField {...props} hint={hint} />;
    case "string":
      return <TextField {...props} hint={hint} />;
    case "null":
      return <Labelled label={label} hint="Always null." />;
    case "json":
      return <JsonField label={label} value={value ?? null} onChange={onChange} at={at} report={report} found={found} />;
  }
}

function ObjectField({ label, field, root, value, onChange, at, report, found }: FieldProps) {
  const given = isObject(value) ? value : {};
  const body = propertiesOf(field.schema).map(([name, schema]) => {
    const one = fieldOf(schema, root);
    const isOptional = !isRequired(field.schema, name);
    if (isOptional && given[name] === undefined) {
      const add = () => onChange({ ...given, [name]: blank(one, root) });
      return (
        <p key={name}>
          <button type="button" class="link" onClick={add}>
            Add {name}
          </button>
        </p>
      );
    }
    const change = (changed: Json) => onChange({ ...given, [name]: changed });
    const { [name]: _, ...without } = given;
    return (
      <div key={name} class="stack">
        <Field
          label={name}
          field={one}
          root={root}
          value={given[name]}
          onChange={change}
          at={`${at}/${pointerPart(name)}`}
          report={report}
          found={found}
          isOptional={isOptional}
        />
        {isOptional && (
          <p>
            <button type="button" class="link small" onClick={() => onChange(without)}>
              Leave {name} out
            </button>
          </p>
        )}
      </div>
    );
  });
  if (!label) return <div class="fields">{body}</div>;
  return (
    <fieldset class="fields">
      <legend>{label}</legend>
      {body}
      {found[at] && <p class="problem">{found[at]}</p>}
    </fieldset>
  );
}

/** A name in a JSON Pointer. */
function pointerPart(name: string): string {
  return name.replaceAll("~", "~0").replaceAll("/", "~1");
}

interface LabelledProps {
  label: string;
  hint?: string;
  problem?: string | undefined;
  children?: ComponentChildren;
}

export function Labelled({ label, hint, problem, children }: LabelledProps) {
  return (
    <label class="field">
      <span>
        {label} {hint && <span class="quiet small">{hint}</span>}
      </span>
      {children}
      {problem && <span class="problem">{problem}</span>}
    </label>
  );
}

interface JsonFieldProps {
  label: string;
  value: Json;
  onChange(value: Json): void;
  at: string;
  report(at: string, isWrong: boolean): void;
  found: Problems;
}

function JsonField({ label, value, onChange, at, report, found }: JsonFieldProps) {
  const [text, setText] = useState(pretty(value));
  const [problem, setProblem] = useState("");
  const id = useId();
  // At the top the form says it already.
  const shown = problem || (at && found[at]) || "";
  const type = (typed: string) => {
    setText(typed);
    try {
      onChange(JSON.parse(typed) as Json);
      setProblem("");
      report(at, false);
    } catch (error) {
      setProblem(`This isn’t JSON: ${(error as Error).message}`);
      report(at, true);
    }
  };
  return (
    <Labelled label={label} problem={shown}>
      <textarea
        id={id}
        class="code"
        rows={Math.min(20, Math.max(3, text.split("\n").length))}
        value={text}
        aria-invalid={shown ? true : undefined}
        onInput={(event) => type(event.currentTarget.value)}
      />
    </Labelled>
  );
}
