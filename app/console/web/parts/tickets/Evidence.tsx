/** What is known about a call whose worker was lost: whether it took effect is for a person to find out. */
import type { Json, JsonObject } from "../../core/api/messages";
import { equal, isObject, pretty } from "../../core/json";
import { ago, duration, fullTime, useNow } from "../../core/time";
import { dollars } from "../../core/words/money";
import { JsonText } from "../JsonView";
import { SafeText } from "../Text";

/** `asked` are the arguments of the call; it ran with others if a person had edited them. */
export function Evidence({ evidence, asked }: { evidence: JsonObject; asked: Json }) {
  const now = useNow();
  const worker = isObject(evidence["worker"]) ? evidence["worker"] : {};
  const rows: [string, Json | undefined][] = [
    ["Call began", timed(evidence["started_at"], now)],
    ["Worker", worker["host"] ? `${text(worker["host"])}, process ${text(worker["pid"])}` : worker["id"]],
    ["Its last heartbeat", timed(worker["heartbeat_at"], now)],
    ["Idempotency key", evidence["idempotency_key"]],
    ["The tool’s own check says", evidence["reconcile"]],
    ["Last progress", evidence["progress"]],
  ];
  const streamed = evidence["streamed"];
  const ranWith = evidence["arguments"];
  return (
    <section aria-label="Evidence">
      <h2>What is known</h2>
      <dl class="facts">
        {rows.flatMap(([name, value]) =>
          value == null
            ? []
            : [<dt key={`${name}:name`}>{name}</dt>, <dd key={name}><SafeText text={text(value)} /></dd>],
        )}
      </dl>
      {ranWith != null && !equal(ranWith, asked) && (
        <>
          <h2>It ran with</h2>
          <JsonText value={ranWith} />
        </>
      )}
      {typeof streamed === "string" && streamed && (
        <>
          <h2>The end of its output</h2>
          <JsonText value={streamed} />
        </>
      )}
      <p class="quiet small">
        Look for the idempotency key in the system that the tool calls. If the call took effect there, enter its
        result.
      </p>
    </section>
  );
}

const AMOUNTS: Record<string, string> = { cost_usd: "cost", wall_seconds: "time of execution" };

function amount(name: string, value: Json | undefined): string {
  if (typeof value !== "number") return text(value);
  if (name === "cost_usd") return dollars(value);
  return name === "wall_seconds" ? duration(value) : value.toLocaleString("en");
}

/** The amounts of a run that has reached a limit. */
export function LimitEvidence({ evidence, reached }: { evidence: JsonObject; reached: JsonObject }) {
  const limit = text(reached["limit"]);
  return (
    <section aria-label="Used">
      <h2>Used so far</h2>
      <dl class="facts">
        {Object.entries(evidence).flatMap(([name, value]) => [
          <dt key={`${name}:name`}>{AMOUNTS[name] ?? name.replaceAll("_", " ")}</dt>,
          <dd key={name} class={name === limit ? "warn" : ""}>
            {amount(name, value)}
            {name === limit && ` of ${amount(name, reached["allowed"])}`}
          </dd>,
        ])}
      </dl>
    </section>
  );
}

function timed(value: Json | undefined, now: Date): string | null {
  if (typeof value !== "string") return null;
  const at = new Date(value);
  return `${fullTime(at)} (${ago(at, now)})`;
}

function text(value: Json | undefined): string {
  return typeof value === "string" ? value : pretty(value ?? null);
}
