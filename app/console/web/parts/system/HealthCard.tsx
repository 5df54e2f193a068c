/** The health of the server that answers, in words. */
import type { Health } from "../../core/api/system";
import { age, fullTime } from "../../core/time";
import { Mark } from "../Status";

type Look = Parameters<typeof Mark>[0]["look"];

const LOOKS: Record<Health["status"], Look> = {
  healthy: ["ok", "healthy", "ok"],
  degraded: ["warning", "degraded", "warn"],
  unhealthy: ["failed", "unhealthy", "bad"],
  draining: ["clock", "stopping", "warn"],
};

export function HealthCard({ health, version, now }: { health: Health; version: string | null; now: Date }) {
  const { relay, schema } = health;
  return (
    <section class="stack" aria-label="Health">
      <h2 class="row">
        This server <Mark look={LOOKS[health.status]} />
      </h2>
      <dl class="facts">
        {version && (
          <>
            <dt>Version</dt>
            <dd>{version}</dd>
          </>
        )}
        {health.components.map(([name, state]) => [
          <dt key={name}>{name[0]!.toUpperCase() + name.slice(1)}</dt>,
          <dd key={`${name}=`} class={state === "ok" ? "" : "bad"}>
            {state.replaceAll("_", " ")}
          </dd>,
        ])}
        {schema && (
          <>
            <dt>Schema</dt>
            <dd>
              {schema.status.replaceAll("_", " ")} <span class="quiet mono small">{schema.revision}</span>
            </dd>
          </>
        )}
        <dt>Relay of events</dt>
        <dd>
          {relay.transport}: <span class={relay.status === "connected" ? "" : "bad"}>{relay.status}</span>{" "}
          <span class="quiet" title={fullTime(relay.since)}>
            for {age(relay.since, now)}
          </span>
        </dd>
      </dl>
    </section>
  );
}
