/** How many runs are in each state; each leads to its list. */
import { useState } from "preact/hooks";
import { readQueue, type Queue } from "../../core/api/workload";
import { pageUrl, withQuery } from "../../core/url";
import { usePoll } from "../../core/visible";

const PAUSE = 5_000;
const NUMBER = new Intl.NumberFormat("en");

export function RunCounts({ onRead }: { onRead(queue: Queue): void }) {
  const [queue, setQueue] = useState<Queue | null>(null);
  usePoll(PAUSE, "counts", async (signal) => {
    try {
      const read = await readQueue(signal);
      setQueue(read);
      onRead(read);
    } catch {
      // The page says that the server can't be reached; the last counts stay.
    }
  });
  return (
    <section class="stack" aria-label="Runs that are not done">
      <h2>Now</h2>
      <ul class="counts">
        {countsOf(queue).map(([name, count, href]) => (
          <li key={name}>
            <a href={href}>
              <b class="number">{count}</b>
              <span class="quiet small">{name}</span>
            </a>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** A number of the queue, which is counted up to a limit. */
export function countIn(queue: Queue, count: number): string {
  return `${NUMBER.format(count)}${count >= queue.countedUpTo ? "+" : ""}`;
}

function countsOf(queue: Queue | null): [name: string, count: string, href: string][] {
  const runs = (state: string) => withQuery(pageUrl.runs(), { state });
  const text = (count: number | undefined) => (queue === null || count === undefined ? "–" : countIn(queue, count));
  const waiting = (reason: string) => (queue ? (queue.waiting[reason] ?? 0) : undefined);
  const all = Object.values(queue?.waiting ?? {}).reduce((sum, count) => sum + count, 0);
  const [approvals, answers] = [waiting("tool_permission"), waiting("user_input")];
  return [
    ["open tickets", text(queue?.openTickets), pageUrl.inbox()],
    ["ready for a worker", text(queue?.ready), runs("created")],
    ["queued behind others", text(queue?.behind), runs("created")],
    ["executing", text(queue?.executing), runs("running")],
    ["need an approval", text(approvals), runs("tool_permission")],
    ["need an answer", text(answers), runs("user_input")],
    ["wait for something else", text(queue ? all - (approvals ?? 0) - (answers ?? 0) : undefined), runs("waiting")],
  ];
}
