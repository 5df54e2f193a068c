/** Fields of a schema form for plain values and lists. */
import { useState } from "preact/hooks";
import type { Json } from "../core/api/messages";
import { blank, fieldOf } from "../core/schema";
import { Field, Labelled, type FieldProps } from "./SchemaForm";

type PlainProps = FieldProps & { hint: string };

export function TextField({ label, hint, value, onChange, at, found, isOptional }: PlainProps) {
  const text = typeof value === "string" ? value : "";
  const isLong = text.length > 80 || text.includes("\n");
  const isWrong = found[at] ? true : undefined;
  return (
    <Labelled label={label} hint={hint} problem={found[at]}>
      {isLong ? (
        <textarea
          rows={Math.min(16, text.split("\n").length + 2)}
          value={text}
          aria-invalid={isWrong}
          onInput={(event) => onChange(event.currentTarget.value)}
        />
      ) : (
        <input
          value={text}
          aria-required={!isOptional}
          aria-invalid={isWrong}
          onInput={(event) => onChange(event.currentTarget.value)}
        />
      )}
    </Labelled>
  );
}

/** The typed text is kept, so that `1.` and `-` can be typed on the way to a number. */
export function NumberField({ label, hint, field, value, onChange, at, report, found }: PlainProps) {
  const [text, setText] = useState(typeof value === "number" ? String(value) : "");
  const [problem, setProblem] = useState("");
  const type = (typed: string) => {
    setText(typed);
    const number = typed.trim() === "" ? NaN : Number(typed.trim());
    const isWrong = !Number.isFinite(number) || (field.kind === "integer" && !Number.isInteger(number));
    setProblem(isWrong ? (field.kind === "integer" ? "Enter a whole number." : "Enter a number.") : "");
    report(at, isWrong);
    if (!isWrong) onChange(number);
  };
  const shown = problem || found[at];
  return (
    <Labelled label={label} hint={hint} problem={shown}>
      <input
        inputMode={field.kind === "integer" ? "numeric" : "decimal"}
        value={text}
        aria-invalid={shown ? true : undefined}
        onInput={(event) => type(event.currentTarget.value)}
      />
    </Labelled>
  );
}

export function EnumField({ label, hint, field, value, onChange, at, found }: PlainProps) {
  const values = field.schema["enum"] as Json[];
  const chosen = values.findIndex((one) => JSON.stringify(one) === JSON.stringify(value));
  return (
    <Labelled label={label} hint={hint} problem={found[at]}>
      <select aria-invalid={found[at] ? true : undefined} value={String(chosen)} onChange={(event) => onChange(values[Number(event.currentTarget.value)] ?? null)}>
        {chosen < 0 && <option value="-1">{JSON.stringify(value)}</option>}
        {values.map((one, index) => (
          <option key={index} value={String(index)}>
            {typeof one === "string" ? one : JSON.stringify(one)}
          </option>
        ))}
      </select>
    </Labelled>
  );
}

export function ArrayField({ label, field, root, value, onChange, at, report, found }: FieldProps) {
  const items = Array.isArray(value) ? value : [];
  const one = fieldOf(field.schema["items"], root);
  const replace = (index: number, changed: Json) => onChange(items.map((old, at) => (at === index ? changed : old)));
  return (
    <fieldset class="fields">
      <legend>{label || "List"}</legend>
      {items.map((item, index) => (
        // A removed item changes the keys after it, so the fields show their own values again.
        <div key={`${items.length}:${index}`} class="stack">
          <Field
            label={`${index + 1}`}
            field={one}
            root={root}
            value={item}
            onChange={(changed) => replace(index, changed)}
            at={`${at}/${index}`}
            report={report}
            found={found}
            isOptional={false}
          />
          <p>
            <button type="button" class="link small" onClick={() => onChange(items.filter((_, other) => other !== index))}>
              Remove {index + 1}
            </button>
          </p>
        </div>
      ))}
      <p>
        <button type="button" onClick={() => onChange([...items, blank(one, root)])}>
          Add one
        </button>
      </p>
      {found[at] && <p class="problem">{found[at]}</p>}
    </fieldset>
  );
}
