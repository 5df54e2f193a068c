import assert from "node:assert/strict";
import { test } from "node:test";
import { curlOf } from "../core/words/curl";

const AT = "http://127.0.0.1:8080";

test("a request with a body is sent as JSON, and quotes stay inside", () => {
  const command = curlOf(AT, { path: "/v1/decisions", body: { reason: "it's late" } });
  assert.equal(command, `curl -s 'http://127.0.0.1:8080/v1/decisions' -H 'Authorization: Bearer …' -H 'Content-Type: application/json' -d '{"reason":"it'\\''s late"}'`);
});

test("a request without a body names its method", () => {
  assert.equal(curlOf(AT, { path: "/v1/runs/7/resume", body: undefined }), "curl -s 'http://127.0.0.1:8080/v1/runs/7/resume' -H 'Authorization: Bearer …' -X POST");
  const changed = { method: "PATCH" as const, path: "/v1/threads/1/inputs/2", body: {}, headers: { "If-Match": '"3"' } };
  assert.match(curlOf(AT, changed), / -H 'If-Match: "3"' .* -X PATCH$/);
  assert.match(curlOf(AT, { method: "DELETE", path: "/v1/rules/7", body: undefined }), / -X DELETE$/);
});
