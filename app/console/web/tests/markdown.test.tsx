import assert from "node:assert/strict";
import { test } from "node:test";
import { renderToString } from "preact-render-to-string";
import { Markdown } from "../parts/Markdown";

const html = (text: string) => renderToString(<Markdown text={text} />);

test("the usual marks become elements", () => {
  assert.match(html("**a** _b_ `c`\n\n- d\n\n1. e\n\n| f |\n|---|\n| g |"), /<strong>a<\/strong> <em>b<\/em> <code>c<\/code>.*<ul>.*<ol start="1">.*<table>.*<td>g/s);
});

test("HTML stays text", () => {
  const drawn = html('<img src=x onerror=alert(1)> and\n\n<script>alert(1)</script>');
  assert.ok(!/<img|<script/.test(drawn), drawn);
  assert.match(drawn, /&lt;script>/);
});

test("no image is loaded", () => {
  const drawn = html("![secret](https://evil.example/?q=1)");
  assert.ok(!/<img|evil\.example\/\?q/.test(drawn), drawn);
});

test("only links with known schemes can be followed, and they show their host", () => {
  assert.match(html("[pay](https://evil.example/x)"), /href="https:\/\/evil\.example\/x" rel="noopener noreferrer".*\(evil\.example\)/s);
  for (const url of ["javascript:alert(1)", "data:text/html,x", "vbscript:x", "//evil.example", "/console/inbox"]) {
    assert.ok(!html(`[x](${url})`).includes("<a"), url);
  }
});

test("hidden characters are spelled in text and code", () => {
  assert.match(html("a\u202eb `c\u200bd`"), /⟨U\+202E⟩.*⟨U\+200B⟩/s);
});
