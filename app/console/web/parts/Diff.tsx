/** The differences of two JSON values, by pointer, and of long texts by line. */
import { diffLines } from "diff";
import type { Json } from "../core/api/messages";
import { changes, pretty, type Change } from "../core/json";
import { SafeText } from "./Text";

export function Diff({ before, after }: { before: Json; after: Json }) {
  const found = changes(before, after);
  if (!found.length) return <p class="quiet small">No changes yet.</p>;
  return (
    <div class="diff">
      {found.map((change) => (
        <div key={change.at}>
          <code class="quiet tiny">{change.at || "/"}</code>
          <One change={change} />
        </div>
      ))}
    </div>
  );
}

function One({ change: { before, after } }: { change: Change }) {
  const [old, now] = [textOf(before), textOf(after)];
  if (old?.includes("\n") || now?.includes("\n")) return <Lines before={old ?? ""} after={now ?? ""} />;
  return (
    <>
      {old !== null && (
        <pre class="old">
          <span class="unseen">before: </span>− <SafeText text={old} />
        </pre>
      )}
      {now !== null && (
        <pre class="new">
          <span class="unseen">after: </span>+ <SafeText text={now} />
        </pre>
      )}
    </>
  );
}

function Lines({ before, after }: { before: string; after: string }) {
  return (
    <>
      {diffLines(before, after).map((part, at) => {
        const [kind, sign] = part.added ? ["new", "+"] : part.removed ? ["old", "−"] : ["same", " "];
        return (
          <pre key={at} class={kind}>
            <SafeText text={part.value.replace(/\n$/, "").replace(/^/gm, `${sign} `)} />
          </pre>
        );
      })}
    </>
  );
}

function textOf(value: Json | undefined): string | null {
  if (value === undefined) return null;
  return typeof value === "string" ? value : pretty(value);
}
