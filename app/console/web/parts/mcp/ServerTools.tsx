/** The tools of an MCP server. New and changed ones come first, with what has changed, and can be accepted. */
import { useState } from "preact/hooks";
import { acceptPath, acceptTools, type McpServerDetail, type McpTool } from "../../core/api/mcp";
import type { Me } from "../../core/api/session";
import { clockTime, useNow } from "../../core/time";
import { ActionDialog } from "../run/ActionDialog";
import { Diff } from "../Diff";
import { JsonText } from "../JsonView";
import { SafeText } from "../Text";

interface ServerToolsProps {
  server: McpServerDetail;
  me: Me | null;
  onChanged(server: McpServerDetail): void;
}

export function ServerTools({ server, me, onChanged }: ServerToolsProps) {
  const [accepted, accept] = useState<McpTool[] | null>(null);
  const listed = server.tools.filter(({ isListed }) => isListed);
  const drifted = listed.filter(({ isToAccept }) => isToAccept);
  const refusal = me && !me.may("admin") ? "Your key lacks the scope admin." : null;
  return (
    <>
      {drifted.length > 0 && (
        <section class="stack" aria-label="Tools to accept">
          <h2>Tools to accept</h2>
          <p class="quiet">{WHAT_NEXT[server.pin]}</p>
          {drifted.map((tool) => (
            <Drifted key={tool.digest} tool={tool} />
          ))}
          <p class="row">
            <button class="primary" disabled={refusal !== null} onClick={() => accept(drifted)}>
              {drifted.length === 1 ? "Accept this tool" : `Accept these ${drifted.length} tools`}
            </button>
            {refusal && <span class="quiet">{refusal}</span>}
          </p>
        </section>
      )}
      <section class="stack" aria-label="Tools">
        <h2>Tools</h2>
        {listed.length ? <Table tools={listed} /> : <p class="quiet">It hasn’t been asked for its tools yet: it starts when an agent first needs it.</p>}
        {server.leftOut.length > 0 && (
          <ul class="stack small">
            {server.leftOut.map(([tool, reason]) => (
              <li key={tool}>
                <code><SafeText text={tool} /></code> is left out: <SafeText text={reason} />
              </li>
            ))}
          </ul>
        )}
      </section>
      {accepted && (
        <ActionDialog
          title={accepted.length === 1 ? `Accept ${accepted[0]!.name}?` : `Accept ${accepted.length} tools?`}
          name="Accept"
          request={{ path: acceptPath(server.id), body: { digests: accepted.map(({ digest }) => digest) } }}
          send={async () => onChanged(await acceptTools(server.id, accepted.map(({ digest }) => digest)))}
          onClose={() => accept(null)}
        >
          <p>What you have seen is accepted: a description that has changed meanwhile is refused. Models read these descriptions, so look for instructions in them.</p>
        </ActionDialog>
      )}
    </>
  );
}

const WHAT_NEXT: Record<McpServerDetail["pin"], string> = {
  require: "Agents don’t get these tools until a person accepts what the server says about them.",
  warn: "Agents get these tools. Accept them to end the warnings.",
  off: "Agents get these tools. This server isn’t pinned.",
};

function Drifted({ tool }: { tool: McpTool }) {
  return (
    <article class="notice stack">
      <h3 class="row">
        <code><SafeText text={tool.name} /></code> <span class="badge warn">{tool.drift ?? "not accepted yet"}</span>
      </h3>
      {tool.accepted ? (
        <Diff before={tool.accepted} after={tool.described} />
      ) : (
        <>
          <p class="plain-text">
            <SafeText text={tool.description || "The server doesn’t describe it."} />
          </p>
          <details>
            <summary class="small quiet">All that the server says</summary>
            <JsonText value={tool.described} />
          </details>
        </>
      )}
    </article>
  );
}

const EFFECTS = { read: ["only reads", "ok"], idempotent: ["idempotent", "busy"], unsafe: ["unsafe", "warn"] } as const;

function Table({ tools }: { tools: readonly McpTool[] }) {
  const now = useNow(60);
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Table of tools">
      <table class="table tools-table">
        <thead>
          <tr>
            <th scope="col">Tool</th>
            <th scope="col">Effect</th>
            <th scope="col">Agents get it</th>
            <th scope="col">Accepted</th>
          </tr>
        </thead>
        <tbody>
          {tools.map((tool) => (
            <tr key={tool.name}>
              <td>
                <code><SafeText text={tool.modelName ?? tool.name} /></code>
                <p class="small quiet">
                  <SafeText text={tool.description.split("\n")[0] ?? ""} />
                </p>
              </td>
              <td>{tool.effect ? <span class={`badge ${EFFECTS[tool.effect][1]}`}>{EFFECTS[tool.effect][0]}</span> : <span class="quiet">can’t be used</span>}</td>
              <td>{tool.isOffered ? "yes" : <span class="warn">no</span>}</td>
              <td class="small quiet">{acceptedOf(tool, now)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function acceptedOf({ isToAccept, drift, acceptedBy, acceptedAt }: McpTool, now: Date): string {
  if (isToAccept && drift !== "changed") return "not yet";
  const when = acceptedAt ? ` ${clockTime(acceptedAt, now)}` : "";
  return `${acceptedBy ? `by ${acceptedBy}` : "as first seen"}${when}${drift === "changed" ? ", then changed" : ""}`;
}
