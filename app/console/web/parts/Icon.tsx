/** Small drawings, as SVG of our own, so that they look the same in every font. */
const PATHS: Record<string, string> = {
  // Outlines in a box of 16 by 16.
  queued: "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 0 0 0-11Z",
  person: "M8 1.8 14.2 8 8 14.2 1.8 8Z",
  others: "M8 1.8 14.2 8 8 14.2 1.8 8Z",
  ok: "m3 8.5 3.3 3.3L13 4.8",
  failed: "m4 4 8 8m0-8-8 8",
  cancelled: "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 0 0 0-11ZM4.2 11.8l7.6-7.6",
  limit: "M8 2.6 14.4 13.4H1.6Z",
  blocked: "M3.2 3.2h9.6v9.6H3.2Z",
  warning: "M8 2.2 14.6 13.6H1.4ZM8 6.4v3.4m0 1.6v.6",
  sun: "M8 5a3 3 0 1 0 0 6a3 3 0 0 0 0-6ZM8 1v1.6m0 10.8V15M1 8h1.6m10.8 0H15M3 3l1.2 1.2m7.6 7.6L13 13m0-10-1.2 1.2M4.2 11.8 3 13",
  moon: "M13.5 9.6A5.8 5.8 0 0 1 6.4 2.5a5.8 5.8 0 1 0 7.1 7.1Z",
  screen: "M2 3h12v8H2ZM5.5 13.8h5",
  back: "M9.8 3 4.8 8l5 5",
  next: "m6.2 3 5 5-5 5",
  down: "m3 6 5 5 5-5",
  plus: "M8 3v10M3 8h10",
  freeze: "M5.4 3.2v9.6M10.6 3.2v9.6",
  follow: "M5 3 12.6 8 5 13Z",
  more: "M8 3.4v.2M8 7.9v.2M8 12.4v.2",
  copy: "M5.5 5.5h8v8h-8ZM10.5 5.5v-3h-8v8h3",
  link: "M9 3h4v4M13 3 7.5 8.5M11 9.5V13H3V5h3.5",
  clock: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2Zm0 2.8V8l2.2 1.6",
  tool: "M9.6 6.4 3 13M10.5 2.2a3.4 3.4 0 0 0 3.3 4.4l-1.9.2L10.3 5l.2-2.8Z",
  people: "M6 3a2.4 2.4 0 1 0 0 4.8A2.4 2.4 0 0 0 6 3ZM1.8 13c.4-2.4 2-3.6 4.2-3.6s3.8 1.2 4.2 3.6M10.5 3.2a2.4 2.4 0 0 1 0 4.4M12 9.8c1.3 .5 2 1.6 2.2 3.2",
};
const FILLED = new Set(["person", "limit", "blocked"]);

export function Icon({ name, label }: { name: string; label?: string }) {
  return (
    <svg
      class={`icon ${FILLED.has(name) ? "filled" : ""}`}
      viewBox="0 0 16 16"
      {...(label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" })}
    >
      {name === "running" ? <Running /> : <path d={PATHS[name] ?? ""} />}
    </svg>
  );
}

/** A half-filled circle. */
function Running() {
  return (
    <>
      <circle cx="8" cy="8" r="5.5" />
      <path class="solid" d="M8 2.5a5.5 5.5 0 0 1 0 11Z" />
    </>
  );
}
