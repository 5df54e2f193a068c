import assert from "node:assert/strict";
import { test } from "node:test";
import { SseParser } from "../core/streams/sse";

const STREAM = ': hello\nid: 1\ndata: {"a":1}\n\nid: 2\r\ndata: one\r\ndata: two\r\n\r\n:\n\ndata:x\n\n';
const FRAMES = [
  { id: "1", data: '{"a":1}' },
  { id: "2", data: "one\ntwo" },
  { id: "2", data: "x" },
];

test("frames are the same however the stream is cut", () => {
  for (let at = 0; at <= STREAM.length; at++) {
    const parser = new SseParser();
    assert.deepEqual([...parser.push(STREAM.slice(0, at)), ...parser.push(STREAM.slice(at))], FRAMES);
  }
});

test("a frame without its empty line isn't given out", () => {
  assert.deepEqual(new SseParser().push("id: 1\ndata: x\n"), []);
});
