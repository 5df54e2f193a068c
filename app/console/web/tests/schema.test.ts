import assert from "node:assert/strict";
import { test } from "node:test";
import { blank, fieldOf } from "../core/schema";
import type { Json, JsonObject } from "../core/api/messages";

const kind = (schema: Json, root: JsonObject = {}) => {
  const field = fieldOf(schema, root);
  return field.isNullable ? `${field.kind}?` : field.kind;
};

test("each plain type has its field", () => {
  for (const type of ["boolean", "number", "integer", "string", "null"]) assert.equal(kind({ type }), type);
  assert.equal(kind({ properties: { a: {} } }), "object");
  assert.equal(kind({ type: "array", items: { type: "string" } }), "array");
  assert.equal(kind({ enum: ["a", 1, null] }), "enum");
  assert.equal(kind({ const: 3 }), "enum");
});

test("a field that may be null keeps its kind", () => {
  assert.equal(kind({ type: ["string", "null"] }), "string?");
  assert.equal(kind({ anyOf: [{ type: "integer" }, { type: "null" }] }), "integer?");
});

test("what no form fits is edited as JSON", () => {
  for (const schema of [true, {}, { type: "object" }, { type: "array" }, { type: ["string", "number"] }]) {
    assert.equal(kind(schema), "json");
  }
  assert.equal(kind({ anyOf: [{ type: "string" }, { type: "number" }] }), "json");
});

test("local references are followed, and circular and foreign ones are not", () => {
  const root = { $defs: { name: { type: "string" }, loop: { $ref: "#/$defs/loop" } } };
  assert.equal(kind({ $ref: "#/$defs/name" }, root), "string");
  assert.equal(kind({ $ref: "#/$defs/loop" }, root), "json");
  assert.equal(kind({ $ref: "https://example.com/s.json" }, root), "json");
});

test("a blank object has its required fields and defaults", () => {
  const schema = {
    type: "object",
    required: ["name", "count", "tags"],
    properties: { name: { type: "string" }, count: { type: "integer", default: 2 }, tags: { type: "array", items: {} }, more: {} },
  };
  assert.deepEqual(blank(fieldOf(schema, schema), schema), { name: "", count: 2, tags: [] });
});
