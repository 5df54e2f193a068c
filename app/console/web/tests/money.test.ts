import assert from "node:assert/strict";
import { test } from "node:test";
import { dollars } from "../core/words/money";

test("small amounts have the digits that tell them apart", () => {
  assert.deepEqual([0, 0.00001, 0.0123, 0.9, 12.345].map(dollars), ["$0.00", "< $0.0001", "$0.0123", "$0.9000", "$12.35"]);
});
