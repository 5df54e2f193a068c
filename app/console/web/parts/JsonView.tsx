/** Arguments and other JSON: a table of the top-level fields, or the whole text. */
import { useState } from "preact/hooks";
import type { Json, JsonObject } from "../core/api/messages";
import { isObject, orderedNames, pretty } from "../core/json";
import { SafeText } from "./Text";

/** More than this is folded until the reader unfolds it. */
export const FOLD_BYTES = 20_000;

export function JsonText({ value }: { value: unknown }) {
  return (
    <pre class="json" tabIndex={0}>
      <SafeText text={typeof value === "string" ? value : pretty(value)} />
    </pre>
  );
}

interface ArgumentsProps {
  value: Json;
  schema: JsonObject | null;
  onUnfold?: () => void;
}

/** The whole arguments. Large ones are folded; `onUnfold` says that the reader has them before the eyes. */
export function Arguments({ value, schema, onUnfold }: ArgumentsProps) {
  const [asJson, showJson] = useState(false);
  const size = pretty(value).length;
  const [isFolded, fold] = useState(size > FOLD_BYTES);
  if (isFolded) {
    const unfold = () => {
      fold(false);
      onUnfold?.();
    };
    return (
      <div class="notice row">
        <span class="grow">The arguments have {Math.ceil(size / 1000)} kB.</span>
        <button onClick={unfold}>Show all of them</button>
      </div>
    );
  }
  const isTable = isObject(value) && Object.keys(value).length > 0;
  return (
    <div class="with-switch">
      {isTable && (
        <div class="segments" role="group" aria-label="Show arguments as">
          <button aria-pressed={!asJson} onClick={() => showJson(false)}>
            Fields
          </button>
          <button aria-pressed={asJson} onClick={() => showJson(true)}>
            JSON
          </button>
        </div>
      )}
      {isTable && !asJson ? <Fields value={value} schema={schema} /> : <JsonText value={value} />}
    </div>
  );
}

function Fields({ value, schema }: { value: JsonObject; schema: JsonObject | null }) {
  return (
    <dl class="arguments">
      {orderedNames(value, schema).flatMap((name) => [
        <dt key={`${name}:name`}>
          <SafeText text={name} />
        </dt>,
        <dd key={name}>
          <pre {...(pretty(value[name]).length > 400 ? { tabIndex: 0 } : {})}>
            <SafeText text={shown(value[name])} />
          </pre>
        </dd>,
      ])}
    </dl>
  );
}

/** Strings without quotes, unless they could be taken for something else. */
function shown(value: Json | undefined): string {
  if (typeof value !== "string") return pretty(value);
  const looksElse = value === "" || value.trim() !== value || /^(-?\d|true$|false$|null$|[[{"])/.test(value);
  return looksElse ? JSON.stringify(value) : value;
}
