/** What a form needs of a JSON Schema. The server checks values; a form only has to offer the right fields. */
import type { Json, JsonObject } from "./api/messages";
import { isObject } from "./json";

export type FieldKind = "object" | "array" | "enum" | "boolean" | "number" | "integer" | "string" | "null" | "json";

export interface FieldSchema {
  kind: FieldKind;
  schema: JsonObject;
  /** Whether `null` is allowed beside the kind. */
  isNullable: boolean;
}

const PLAIN = new Set(["object", "array", "boolean", "number", "integer", "string", "null"]);

/** The field for a schema; schemas with alternatives and references of their own become JSON text. */
export function fieldOf(schema: Json | undefined, root: JsonObject): FieldSchema {
  const found = resolved(schema, root);
  if (!found) return { kind: "json", schema: {}, isNullable: false };
  if (Array.isArray(found["enum"])) return { kind: "enum", schema: found, isNullable: false };
  if ("const" in found) return { kind: "enum", schema: { ...found, enum: [found["const"]!] }, isNullable: false };
  const types = typesOf(found);
  const others = types.filter((type) => type !== "null");
  const alternatives = optional(found, root);
  if (alternatives) return { ...fieldOf(alternatives, root), isNullable: true };
  const [kind] = others.length ? others : types;
  if (!kind || others.length > 1 || !PLAIN.has(kind) || isTooFree(kind, found)) {
    return { kind: "json", schema: found, isNullable: types.includes("null") };
  }
  return { kind: kind as FieldKind, schema: found, isNullable: others.length > 0 && types.includes("null") };
}

export function propertiesOf(schema: JsonObject): [string, Json][] {
  return isObject(schema["properties"]) ? Object.entries(schema["properties"]) : [];
}

export function isRequired(schema: JsonObject, name: string): boolean {
  return Array.isArray(schema["required"]) && schema["required"].includes(name);
}

/** A value to begin with. */
export function blank(field: FieldSchema, root: JsonObject): Json {
  if (field.schema["default"] !== undefined) return field.schema["default"];
  switch (field.kind) {
    case "object":
      return blankObject(field.schema, root);
    case "array":
      return [];
    case "boolean":
      return false;
    case "enum":
      return (field.schema["enum"] as Json[])[0] ?? null;
    case "string":
      return "";
    default:
      return null;
  }
}

function blankObject(schema: JsonObject, root: JsonObject): JsonObject {
  const required = propertiesOf(schema).filter(([name]) => isRequired(schema, name));
  return Object.fromEntries(required.map(([name, one]) => [name, blank(fieldOf(one, root), root)]));
}

function typesOf(schema: JsonObject): string[] {
  const type = schema["type"];
  if (typeof type === "string") return [type];
  if (Array.isArray(type)) return type.map(String);
  return "properties" in schema ? ["object"] : [];
}

function isTooFree(kind: string, schema: JsonObject): boolean {
  return (kind === "object" && !propertiesOf(schema).length) || (kind === "array" && !isObject(schema["items"]));
}

/** `anyOf` of one schema and null, as generators of schemas write optional fields. */
function optional(schema: JsonObject, root: JsonObject): Json | null {
  const given = schema["anyOf"];
  if (!Array.isArray(given) || given.length !== 2) return null;
  const others = given.filter((one) => resolved(one, root)?.["type"] !== "null");
  return others.length === 1 ? others[0]! : null;
}

/** The schema that a local `$ref` leads to. */
function resolved(schema: Json | undefined, root: JsonObject): JsonObject | null {
  let found = schema;
  for (let depth = 0; depth < 10; depth++) {
    if (!isObject(found)) return null;
    const reference = found["$ref"];
    if (typeof reference !== "string") return found;
    found = at(root, reference);
  }
  return null;
}

function at(root: JsonObject, reference: string): Json | undefined {
  if (!reference.startsWith("#/")) return undefined;
  const names = reference.slice(2).split("/").map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
  return names.reduce<Json | undefined>((value, name) => (isObject(value) ? value[name] : undefined), root);
}
