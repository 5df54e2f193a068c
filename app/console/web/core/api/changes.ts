/** Hints of `/v1/changes`. */
import type { Frame } from "../streams/sse";
import type { Schemas } from "./client";

export const CHANGES_PATH = "/v1/changes";

export interface Changes {
  /** Anything may have changed. */
  reset: boolean;
  tickets: boolean;
  runs: { id: string; status: string }[];
}

export function changesOf(frame: Frame): Changes {
  const { reset, tickets, runs } = JSON.parse(frame.data) as Schemas["Changes"];
  return { reset, tickets, runs };
}
