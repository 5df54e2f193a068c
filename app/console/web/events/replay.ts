/** A run as it was at one of its events. */
import type { ListedEvent } from "../core/api/events";
import type { Message } from "../core/api/messages";
import { reduceOne, type RunState } from "./reduceRun";

/** `now` has the messages that no event tells: those of users and of earlier runs. */
export function stateAt(now: RunState, runId: string, events: readonly ListedEvent[], at: number): RunState {
  const shown = events.filter(({ seq }) => seq <= at);
  const time = shown.at(-1)?.at ?? new Date(0);
  const told = new Set(events.flatMap(({ wire }) => idOf(wire["message"]) ?? []));
  const untold = now.messages.filter((message) => isUntold(message, runId, told) && (!message.at || message.at <= time));
  const content = { messages: untold, open: null, results: resultsBefore(now, untold), output: {} };
  const start: RunState = { ...now, ...content, beforeStep: content, tickets: [], lastSeq: 0 };
  const end = shown.reduce((state, { wire }) => reduceOne(state, wire as unknown as Parameters<typeof reduceOne>[1]), start);
  // Tickets are shown as they are now, so a past run has none.
  return { ...end, tickets: [], messages: [...end.messages].sort((one, other) => one.seq - other.seq), lastSeq: at };
}

function isUntold(message: Message, runId: string, told: ReadonlySet<string>): boolean {
  return !told.has(message.id) && (message.role !== "tool" || message.runId !== runId);
}

/** Results of calls of earlier runs. */
function resultsBefore(now: RunState, messages: readonly Message[]): RunState["results"] {
  const calls = new Set(messages.flatMap((message) => message.calls.map(({ id }) => id)));
  return Object.fromEntries(Object.entries(now.results).filter(([id]) => calls.has(id)));
}

function idOf(message: unknown): string | null {
  return (message as { id?: string } | undefined)?.id ?? null;
}

/** The last state of the agent up to an event. */
export function agentStateAt(events: readonly ListedEvent[], at: number): unknown {
  return events.findLast(({ seq, type }) => type === "state_snapshot" && seq <= at)?.wire["snapshot"] ?? null;
}
