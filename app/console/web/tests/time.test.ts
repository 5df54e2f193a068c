import assert from "node:assert/strict";
import { test } from "node:test";
import { age, duration } from "../core/time";

test("a duration has at most two units", () => {
  const cases: [number, string][] = [
    [0, "0 s"],
    [0.94, "0.9 s"],
    [19, "19 s"],
    [60, "1 min"],
    [245, "4 min"],
    [3600, "1 h"],
    [3720, "1 h 2 min"],
    [187_200, "2 d 4 h"],
    [172_805, "2 d"],
  ];
  for (const [seconds, text] of cases) assert.equal(duration(seconds), text);
});

test("an age has one unit, and the future is now", () => {
  const now = new Date("2026-01-02T03:04:05Z");
  assert.equal(age(new Date("2026-01-02T01:00:00Z"), now), "2 h");
  assert.equal(age(new Date("2026-01-02T03:04:06Z"), now), "now");
});
