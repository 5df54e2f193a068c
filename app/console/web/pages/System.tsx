/** How the server does: its health, runs that are not done, and its metrics of the last minutes. */
import { useState } from "preact/hooks";
import { readHealth, readMetrics, metricsUrl, type Health } from "../core/api/system";
import { draw, useMe, useReady, useTitle } from "../core/page";
import { age, useNow } from "../core/time";
import { usePoll } from "../core/visible";
import { gauge, quantile, rate, sampleOf, valuesOf, withSample, type Sample } from "../events/metrics";
import { Shell } from "../parts/Shell";
import { Failure, Skeleton } from "../parts/States";
import { HealthCard } from "../parts/system/HealthCard";
import { countIn, RunCounts } from "../parts/system/RunCounts";
import { RunHistory } from "../parts/system/RunHistory";
import { Workers } from "../parts/system/Workers";
import { ServerTable } from "../parts/mcp/ServerTable";
import { Spending } from "../parts/system/Spending";
import { Sparkline } from "../parts/system/Sparkline";

const PAUSE = 5_000;
const NUMBER = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

function System() {
  const { me } = useMe();
  const [health, setHealth] = useState<Health | null>(null);
  const [samples, setSamples] = useState<readonly Sample[]>([]);
  const [error, setError] = useState<unknown>(null);
  const [readAt, setReadAt] = useState<Date | null>(null);
  const [reading, setReading] = useState(0);
  const [waiting, setWaiting] = useState("");
  const now = useNow(5);
  usePoll(PAUSE, String(reading), async (signal) => {
    try {
      const [found, text] = await Promise.all([readHealth(signal), readMetrics(signal)]);
      setHealth(found);
      setSamples((before) => withSample(before, sampleOf(text, Date.now())));
      setReadAt(new Date());
      setError(null);
    } catch (problem) {
      if (!signal.aborted) setError(problem);
    }
  });
  useTitle("System");
  useReady(health !== null || error !== null);
  return (
    <Shell page="System" me={me} live={error ? "waiting" : health ? "live" : "connecting"} waiting={waiting}>
      <div class="page stack system">
        <h1>System</h1>
        {error ? <Failure error={error} onRetry={() => setReading(reading + 1)} /> : null}
        {error && readAt ? <p class="notice warn">What follows is {age(readAt, now)} old.</p> : null}
        {!health && !error && <Skeleton rows={6} />}
        <div class={`system-grid ${error ? "stale" : ""}`}>
          {health && <HealthCard health={health} version={me?.version ?? null} now={now} />}
          {!(error && !health) && (
            <div class="stack">
              <RunCounts onRead={(queue) => setWaiting(queue.openTickets ? countIn(queue, queue.openTickets) : "")} />
              <RunHistory />
            </div>
          )}
        </div>
        {!(error && !health) && <Workers now={now} />}
        {!(error && !health) && <ServerTable />}
        {!(error && !health) && <Spending me={me} />}
        {samples.length > 0 && <Metrics samples={samples} isStale={!!error} />}
      </div>
    </Shell>
  );
}

function Metrics({ samples, isStale }: { samples: readonly Sample[]; isStale: boolean }) {
  const perSecond = (value: number) => `${NUMBER.format(value)} / s`;
  const count = (value: number) => NUMBER.format(value);
  const milliseconds = (value: number) => (value < 1 ? `≤ ${NUMBER.format(value * 1000)} ms` : `≤ ${NUMBER.format(value)} s`);
  const models = valuesOf(samples, "holdfast_tokens_total", "model");
  return (
    <section class="stack" aria-label="Metrics">
      <h2>Metrics of the server that answers</h2>
      <p class="quiet small">
        Every five seconds, for at most 15 minutes, while this page is visible. All of them are at <a href={metricsUrl()}>/metrics</a>.
      </p>
      <div class={`sparklines ${isStale ? "stale" : ""}`}>
        <Sparkline name="Runs started" series={rate(samples, "holdfast_runs_started_total")} text={perSecond} />
        <Sparkline name="Runs executing" series={gauge(samples, "holdfast_runs_executing")} text={count} />
        <Sparkline name="Steps" series={rate(samples, "holdfast_steps_total")} text={perSecond} />
        <Sparkline name="Time in the queue, 95 %" series={quantile(samples, "holdfast_queue_delay_seconds", 0.95)} text={milliseconds} />
        <Sparkline name="Writing of events, 95 %" series={quantile(samples, "holdfast_flush_seconds", 0.95)} text={milliseconds} />
        <Sparkline name="Open streams" series={gauge(samples, "holdfast_streams_open")} text={count} />
        {/* A counter of failures has no value before the first one. */}
        <Sparkline name="Failures of the database" series={rate(samples, "holdfast_database_failures_total").map((value) => value ?? 0)} text={perSecond} />
        <Sparkline name="Takeovers" series={rate(samples, "holdfast_takeovers_total")} text={perSecond} />
        {models.map((model) => (
          <Sparkline key={model} name={`Tokens of ${model}`} series={rate(samples, "holdfast_tokens_total", { model })} text={perSecond} />
        ))}
      </div>
    </section>
  );
}

draw(System);
