import assert from "node:assert/strict";
import { test } from "node:test";
import { gauge, MOST_SAMPLES, quantile, rate, sampleOf, valuesOf, withSample, type Sample } from "../events/metrics";
import { pathsOf } from "../parts/system/Sparkline";

const at = (second: number, ...lines: string[]) => sampleOf(["# HELP x", ...lines, 'python_info{x="y"} 1.0'].join("\n"), second * 1000);

test("a gauge is summed over its labels", () => {
  assert.deepEqual(gauge([at(0, "holdfast_a 2.0"), at(5, 'holdfast_a{x="1"} 2.0', 'holdfast_a{x="2"} 3e0'), at(10)], "holdfast_a"), [2, 5, null]);
});

test("a rate is the growth per second, also over a restart", () => {
  const samples = [10, 20, 4].map((value, step) => at(step * 5, `holdfast_runs_total{agent="a"} ${value}`));
  assert.deepEqual(rate(samples, "holdfast_runs_total"), [2, 0.8]);
  assert.deepEqual(rate(samples, "holdfast_runs_total", { agent: "b" }), [0, 0]);
});

test("a quantile is the bound of the bucket that has it, between two samples", () => {
  const buckets = (fast: number, slow: number, all: number) => ['le="0.1"', 'le="0.5"', 'le="+Inf"'].map((label, index) => `holdfast_q_bucket{${label}} ${[fast, slow, all][index]}`);
  const samples = [at(0, ...buckets(100, 100, 100)), at(5, ...buckets(101, 120, 120)), at(10, ...buckets(101, 120, 120)), at(15, ...buckets(101, 120, 200))];
  assert.deepEqual(quantile(samples, "holdfast_q", 0.95), [0.5, null, 0.5]);
});

test("models are named once", () => {
  assert.deepEqual(valuesOf([at(0, 'holdfast_t{kind="in",model="b"} 1', 'holdfast_t{kind="out",model="b"} 1', 'holdfast_t{kind="in",model="a"} 1')], "holdfast_t", "model"), ["a", "b"]);
});

test("old samples are dropped", () => {
  const samples = Array.from({ length: MOST_SAMPLES + 5 }, (_, second) => at(second)).reduce<Sample[]>(withSample, []);
  assert.equal(samples.length, MOST_SAMPLES);
  assert.equal(samples[0]!.at, 5000);
});

test("a gap in a series is a gap in its line", () => {
  assert.equal(pathsOf([1, 2, null, 3], 3).length, 2);
  assert.deepEqual(pathsOf([], 0), []);
});
