/** Tokens and cost of the last 30 days, by model or by agent. They are summed when a person asks for them. */
import { useState } from "preact/hooks";
import type { Me } from "../../core/api/session";
import { readSpending, type Spent } from "../../core/api/usage";
import { useRead } from "../../core/read";
import { dollars } from "../../core/words/money";
import { Failure, Skeleton } from "../States";
import { SafeText } from "../Text";

const NUMBER = new Intl.NumberFormat("en");
const GROUPS = ["model", "agent"] as const;

export function Spending({ me }: { me: Me | null }) {
  const [by, setBy] = useState<(typeof GROUPS)[number]>("model");
  const mayRead = me?.may("usage:read") ?? false;
  const [isWanted, want] = useState(false);
  const { value: rows, error, retry } = useRead((signal) => readSpending(by, signal), by, isWanted);
  return (
    <section class="stack" aria-label="Tokens and cost">
      <h2 class="row">
        <span class="grow">Tokens and cost of the last 30 days</span>
        {mayRead && !isWanted && <button onClick={() => want(true)}>Show them</button>}
        {isWanted && (
          <span class="segments" role="group" aria-label="Group by">
            {GROUPS.map((one) => (
              <button key={one} aria-pressed={by === one} onClick={() => setBy(one)}>
                By {one}
              </button>
            ))}
          </span>
        )}
      </h2>
      {me && !mayRead && <p class="quiet">Your key lacks the scope usage:read.</p>}
      {error ? <Failure error={error} onRetry={retry} /> : null}
      {isWanted && !rows && !error && <Skeleton rows={2} />}
      {rows && !rows.length && <p class="quiet">No model was asked.</p>}
      {rows && rows.length > 0 && <Table by={by} rows={rows} />}
    </section>
  );
}

function Table({ by, rows }: { by: string; rows: readonly Spent[] }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Table of tokens and cost">
      <table class="table">
        <thead>
          <tr>
            <th scope="col">{by === "model" ? "Model" : "Agent"}</th>
            <th scope="col" class="right">Requests</th>
            <th scope="col" class="right">Tokens in</th>
            <th scope="col" class="right">Tokens out</th>
            <th scope="col" class="right">Cost</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.name}>
              <td>
                <SafeText text={row.name} />
              </td>
              <td class="right number">{NUMBER.format(row.requests)}</td>
              <td class="right number">{NUMBER.format(row.inputTokens)}</td>
              <td class="right number">{NUMBER.format(row.outputTokens)}</td>
              <td class="right number">{costOf(row)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function costOf({ cost, unpriced }: Spent) {
  if (cost === null) return <span class="quiet">no known price</span>;
  return (
    <>
      {dollars(cost)}
      {unpriced > 0 && <span class="quiet small"> without {NUMBER.format(unpriced)} requests of unknown price</span>}
    </>
  );
}
