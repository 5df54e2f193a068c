import assert from "node:assert/strict";
import { test } from "node:test";
import { changes, orderedNames } from "../core/json";
import { pieces } from "../core/text";

test("changes name the smallest parts that differ, by pointer", () => {
  const before = { number: "A-17", amount: 80, lines: [{ at: 1 }, { at: 2 }], "a/b": 1 };
  const after = { number: "A-17", amount: 40, lines: [{ at: 1 }, { at: 3 }, 4], "a/b": 2, note: null };
  assert.deepEqual(changes(before, after), [
    { at: "/amount", before: 80, after: 40 },
    { at: "/lines/1/at", before: 2, after: 3 },
    { at: "/lines/2", before: undefined, after: 4 },
    { at: "/a~1b", before: 1, after: 2 },
    { at: "/note", before: undefined, after: null },
  ]);
});

test("the order of an object's names is no change", () => {
  assert.deepEqual(changes({ a: 1, b: 2 }, { b: 2, a: 1 }), []);
});

test("a list and an object differ as a whole", () => {
  assert.deepEqual(changes({ a: [] }, { a: {} }), [{ at: "/a", before: [], after: {} }]);
});

test("names come in the order of the schema, then the others", () => {
  const schema = { properties: { second: {}, first: {} } };
  assert.deepEqual(orderedNames({ first: 1, other: 2, second: 3 }, schema), ["second", "first", "other"]);
});

test("characters that can't be seen are spelled out", () => {
  const text = "pay\u202e\u2066\u200b now\u0007\n\ttab";
  assert.equal(
    pieces(text).map((piece) => piece.text).join(""),
    "pay⟨U+202E⟩⟨U+2066⟩⟨U+200B⟩ now⟨U+0007⟩\n\ttab",
  );
  assert.deepEqual(pieces("plain ünïcödé 💶"), [{ text: "plain ünïcödé 💶", isHidden: false }]);
  assert.equal(pieces("\u{e0041}")[0]!.text, "⟨U+E0041⟩");
});
