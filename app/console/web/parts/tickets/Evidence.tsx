/** What is known about a call whose worker was lost: whether it took effect is for a person to find out. */
import type { Json, JsonObject } from "../../core/api/messages";
import { isObject, pretty } from "../../core/json";
import { age, fullTime, useNow } from "../../core/time";
import { JsonText } from "../JsonView";
import { SafeText } from "../Text";

export function Evidence({ evidence }: { evidence: JsonObject }) {
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

/** The amounts of a run that has reached a limit. */
export function LimitEvidence({ evidence, reached }: { evidence: JsonObject; reached: JsonObject }) {
  const limit = text(reached["limit"]);
  return (
    <section aria-label="Used">
      <h2>Used so far</h2>
      <dl class="facts">
        {Object.entries(evidence).flatMap(([name, value]) => [
          <dt key={`${name}:name`}>{name.replaceAll("_", " ")}</dt>,
          <dd key={name} class={name === limit ? "warn" : ""}>
            {text(value)}
            {name === limit && ` of ${text(reached["allowed"])}`}
          </dd>,
        ])}
      </dl>
    </section>
  );
}

function timed(value: Json | undefined, now: Date): string | null {
  if (typeof value !== "string") return null;
  const at = new Date(value);
  return `${fullTime(at)} (${age(at, now)} ago)`;
}

function text(value: Json | undefined): string {
  return typeof value === "string" ? value : pretty(value ?? null);
}
