/** Runs as a tree: each with its depth, and what it and the runs below have used. */
import type { RunRow } from "../core/api/runs";

export interface TreeRow {
  run: RunRow;
  depth: number;
  tokens: number;
  /** Also of all runs below it. */
  tokensWithBelow: number;
  /** Open tickets that people decide, of this run and of all runs below it. */
  ticketsWithBelow: number;
  isLast: boolean;
}

export function treeOf(runs: readonly RunRow[]): TreeRow[] {
  const known = new Set(runs.map(({ id }) => id));
  const below = new Map<string | null, RunRow[]>();
  for (const run of [...runs].sort((one, other) => one.createdAt.getTime() - other.createdAt.getTime())) {
    const parent = run.parentId !== null && known.has(run.parentId) ? run.parentId : null;
    below.set(parent, [...(below.get(parent) ?? []), run]);
  }
  return rowsBelow(null, 0, below);
}

function rowsBelow(parent: string | null, depth: number, below: ReadonlyMap<string | null, RunRow[]>): TreeRow[] {
  const runs = below.get(parent) ?? [];
  return runs.flatMap((run, at) => {
    const rows = rowsBelow(run.id, depth + 1, below);
    const tokens = run.inputTokens + run.outputTokens;
    const tokensWithBelow = tokens + rows.reduce((sum, row) => sum + row.tokens, 0);
    const ticketsWithBelow = run.openTickets + rows.reduce((sum, row) => sum + row.run.openTickets, 0);
    return [{ run, depth, tokens, tokensWithBelow, ticketsWithBelow, isLast: at === runs.length - 1 }, ...rows];
  });
}
