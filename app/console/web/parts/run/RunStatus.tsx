/** The status of a run by shape, word and colour. */
import type { Run } from "../../core/api/runs";
import { Mark } from "../Status";

type Look = Parameters<typeof Mark>[0]["look"];

const OUTCOMES: Record<string, Look> = {
  succeeded: ["ok", "succeeded", "ok"],
  failed: ["failed", "failed", "bad"],
  cancelled: ["cancelled", "cancelled", "quiet"],
  budget_exceeded: ["limit", "reached a limit", "warn"],
  blocked: ["blocked", "blocked", "bad"],
};

const WAITS: Record<string, string> = {
  background_tasks: "waits for tasks",
  child_runs: "waits for agents",
  rate_limit: "waits for a rate limit",
  external_event: "waits for a signal",
  agent_version_unavailable: "waits for its agent’s version",
  manual_pause: "paused",
};

export function lookOf(run: Pick<Run, "status" | "outcome" | "waitingReason" | "needsDecision">): Look {
  if (run.status === "done") return OUTCOMES[run.outcome ?? ""] ?? ["cancelled", run.outcome ?? "done", "quiet"];
  if (run.status === "created") return ["queued", "queued", "quiet"];
  if (run.status === "running") return ["running", "running", "busy"];
  if (run.waitingReason === "manual_pause") return ["others", "paused", "warn"];
  if (run.needsDecision) return ["person", "needs a person", "wait"];
  return ["others", WAITS[run.waitingReason ?? ""] ?? "waits", "quiet"];
}

export function RunStatus({ run }: { run: Parameters<typeof lookOf>[0] }) {
  return <Mark look={lookOf(run)} />;
}
