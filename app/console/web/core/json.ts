/** JSON values: as text, and the differences of two of them. */
import type { Json, JsonObject } from "./api/messages";

export function pretty(value: unknown): string {
  return JSON.stringify(value, null, 2) ?? "";
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function equal(one: unknown, other: unknown): boolean {
  return canonical(one) === canonical(other);
}

function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (!isObject(value)) return JSON.stringify(value) ?? "";
  const names = Object.keys(value).sort();
  return `{${names.map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`).join(",")}}`;
}

/** One difference: `before` or `after` is undefined where there is none. */
export interface Change {
  /** JSON Pointer. */
  at: string;
  before: Json | undefined;
  after: Json | undefined;
}

/** The smallest parts that differ, by pointer. */
export function changes(before: Json | undefined, after: Json | undefined, at = ""): Change[] {
  if (equal(before, after) && (before === undefined) === (after === undefined)) return [];
  if (isObject(before) && isObject(after)) {
    const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
    return names.flatMap((name) => changes(before[name], after[name], `${at}/${escaped(name)}`));
  }
  if (Array.isArray(before) && Array.isArray(after)) {
    const length = Math.max(before.length, after.length);
    return Array.from({ length }, (_, index) => changes(before[index], after[index], `${at}/${index}`)).flat();
  }
  return [{ at, before, after }];
}

function escaped(name: string): string {
  return name.replaceAll("~", "~0").replaceAll("/", "~1");
}

/** The names of an object: first those of the schema in its order, then the others. */
export function orderedNames(value: JsonObject, schema: JsonObject | null): string[] {
  const properties = isObject(schema?.["properties"]) ? Object.keys(schema["properties"]) : [];
  const known = properties.filter((name) => name in value);
  return [...known, ...Object.keys(value).filter((name) => !known.includes(name))];
}
