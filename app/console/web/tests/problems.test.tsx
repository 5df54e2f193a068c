import assert from "node:assert/strict";
import { test } from "node:test";
import { render } from "preact-render-to-string";
import { ApiError } from "../core/api/client";
import { outcomeOf, type Problems } from "../core/decisions";
import { SchemaForm } from "../parts/SchemaForm";

const refusal = (code: string, errors: unknown) => outcomeOf(new ApiError(422, code, "No.", "", { errors }));
const schema = {
  type: "object",
  properties: {
    "a/b": { type: "string" },
    amount: { type: "number" },
    lines: { type: "array", items: { type: "string" } },
    place: { type: "object", properties: { city: { type: "string" } } },
    speed: { enum: ["now", "later"] },
  },
  required: ["a/b", "amount", "lines", "place", "speed"],
};
const value = { "a/b": "x", amount: 1, lines: ["one", "two"], place: { city: "Oslo" }, speed: "now" };
const ignore = () => undefined;
const shown = (problems: Problems) =>
  [...render(<SchemaForm schema={schema} value={value} problems={problems} onChange={ignore} onProblem={ignore} />).matchAll(/class="problem">([^<]*)</g)].map(([, text]) => text);

test("a refusal of edited arguments names the wrong parts", () => {
  const outcome = refusal("arguments_invalid", [{ at: "/amount", problem: "is too large" }]);
  assert.deepEqual(outcome, { kind: "refused", text: "No.", code: "arguments_invalid", problems: { "/amount": "is too large" } });
  assert.deepEqual((refusal("invalid_request", [{ at: "/decisions" }]) as { problems: Problems }).problems, {});
});

test("each field shows what is wrong with its part", () => {
  const problems = { "/a~1b": "one", "/amount": "two", "/lines/1": "three", "/lines": "four", "/place/city": "five", "/place": "six", "/speed": "seven", "": "of the whole" };
  assert.deepEqual(shown(problems), ["one", "two", "three", "four", "five", "six", "seven"]);
  assert.deepEqual(shown({}), []);
});
