/** A tool call, folded to one line: its name, first arguments and state. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { Json, ToolCall, ToolResult } from "../../core/api/messages";
import type { Decision } from "../../core/api/tickets";
import { fullTime } from "../../core/time";
import { isObject, pretty } from "../../core/json";
import { shortened } from "../../core/text";
import { Icon } from "../Icon";
import { Arguments, JsonText } from "../JsonView";
import { Mark, wordOf } from "../Status";
import { SafeText } from "../Text";

type Look = Parameters<typeof Mark>[0]["look"];

const LOOKS: Record<string, Look> = {
  succeeded: ["ok", "done", "ok"],
  failed: ["failed", "failed", "bad"],
  cancelled: ["cancelled", "dropped", "quiet"],
  waiting: ["person", "waits", "wait"],
};
const RUNNING: Look = ["running", "running", "busy"];

interface CallProps {
  call: ToolCall;
  result: ToolResult | undefined;
  output: string;
  /** Who decided about it, if its ticket isn't shown below it. */
  decision?: Decision | undefined;
  /** The call's ticket. */
  children?: ComponentChildren;
}

export function Call({ call, result, output, decision, children }: CallProps) {
  const [isOpen, open] = useState(false);
  // What is decided while the page is open has no message yet that tells of it.
  const changed = result?.edited ?? (decision?.action === "edit" ? decision.payload : null) ?? undefined;
  return (
    <div class="call">
      <button class="call-head" aria-expanded={isOpen} onClick={() => open(!isOpen)}>
        <Icon name={isOpen ? "down" : "next"} />
        <code>{call.name}</code>
        <span class="quiet small cut grow">
          <SafeText text={shortened(oneLine(changed ?? call.arguments), 140).text} />
        </span>
        {decision ? <DecidedBy decision={decision} /> : changed !== undefined && <span class="badge warn">edited</span>}
        <Mark look={LOOKS[result?.status ?? ""] ?? RUNNING} />
      </button>
      {isOpen && (
        <div class="stack call-body">
          <h4 class="quiet small">Arguments{changed !== undefined && " after the edit"}</h4>
          <Arguments value={changed ?? call.arguments} schema={null} />
          {changed !== undefined && (
            <>
              <h4 class="quiet small">As the model wanted them</h4>
              <Arguments value={call.arguments} schema={null} />
            </>
          )}
          {output && (
            <>
              <h4 class="quiet small">Output</h4>
              <JsonText value={output} />
            </>
          )}
          {result && result.status !== "waiting" && (
            <>
              <h4 class="quiet small">Result</h4>
              <JsonText value={result.data == null ? result.text : result.data} />
            </>
          )}
        </div>
      )}
      {!isOpen && output && !result && <pre class="output small quiet">{shortened(lastLine(output), 200).text}</pre>}
      {children}
    </div>
  );
}

function DecidedBy({ decision: { action, by, at, reason } }: { decision: Decision }) {
  return (
    <span class={`badge ${action === "edit" ? "warn" : "quiet"}`} title={`${fullTime(at)}${reason ? `: ${reason}` : ""}`}>
      {action === "edit" ? "edited" : wordOf(action)} by <SafeText text={by} />
    </span>
  );
}

function oneLine(value: Json): string {
  if (!isObject(value)) return pretty(value);
  return Object.entries(value)
    .map(([name, one]) => `${name} ${typeof one === "string" ? one : JSON.stringify(one)}`)
    .join(", ");
}

function lastLine(text: string): string {
  return text.trimEnd().split("\n").at(-1) ?? "";
}
