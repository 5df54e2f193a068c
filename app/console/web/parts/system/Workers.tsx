/** The processes of the server. */
import { useState } from "preact/hooks";
import { listWorkers, type Worker } from "../../core/api/workload";
import { age, ago, fullTime } from "../../core/time";
import { usePoll } from "../../core/visible";
import { Mark } from "../Status";

const PAUSE = 5_000;

export function Workers({ now }: { now: Date }) {
  const [workers, setWorkers] = useState<readonly Worker[]>([]);
  usePoll(PAUSE, "workers", async (signal) => {
    try {
      setWorkers(await listWorkers(signal));
    } catch {
      // The page says that the server can't be reached; the last rows stay.
    }
  });
  if (!workers.length) return null;
  return (
    <section class="stack" aria-label="Processes">
      <h2>Processes</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="Table of processes">
        <table class="table">
          <thead>
            <tr>
              <th scope="col">State</th>
              <th scope="col">Host and process</th>
              <th scope="col">Role</th>
              <th scope="col" class="right">Executing</th>
              <th scope="col" class="right">Heartbeat</th>
              <th scope="col" class="right">Started</th>
            </tr>
          </thead>
          <tbody>
            {workers.map((worker) => (
              <tr key={worker.id}>
                <td>
                  <Mark look={worker.isAlive ? ["ok", "alive", "ok"] : ["failed", "lost", "bad"]} />
                </td>
                <td class="mono small" title={worker.id}>
                  {worker.host}:{worker.pid}
                </td>
                <td class="quiet">{worker.role === "all" ? "serves and executes" : worker.role === "api" ? "serves" : "executes"}</td>
                <td class="right number">{worker.executing}</td>
                <td class="right quiet number">{age(worker.heartbeatAt, now)}</td>
                <td class="right quiet number" title={fullTime(worker.startedAt)}>
                  {ago(worker.startedAt, now)}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
