/** The actions on a run: which there are, and their dialogs. */
import { useState } from "preact/hooks";
import { cancelRequest, cancelRun, pauseRequest, pauseRun, resumeRequest, resumeRun, retryRequest, retryRun } from "../../core/api/runActions";
import type { Message } from "../../core/api/messages";
import type { Run, RunRow } from "../../core/api/runs";
import type { Me } from "../../core/api/session";
import { shortId } from "../../core/ids";
import { pageUrl } from "../../core/url";
import { ActionDialog } from "./ActionDialog";
import { ForkDialog } from "./ForkDialog";

export type RunAction = "cancel" | "pause" | "resume" | "retry" | "fork";

interface Offered {
  action: RunAction;
  name: string;
  refusal: string | null;
}

/** What may be done now, and why not. */
export function offeredActions(run: RunRow, me: Me | null): Offered[] {
  const scope = me && !me.may("runs:write") ? "Needs the scope runs:write" : null;
  const isDone = run.status === "done";
  return [
    { action: "cancel", name: "Cancel", refusal: isDone ? "The run is done" : (scope ?? (run.isCancelling ? "Is being cancelled" : null)) },
    { action: "pause", name: "Pause", refusal: isDone ? "The run is done" : (scope ?? (run.isPaused ? "Is paused" : null)) },
    { action: "resume", name: "Resume", refusal: run.isPaused ? scope : "The run isn’t paused" },
    { action: "retry", name: "Retry", refusal: notRetryable(run) ?? scope },
  ];
}

function notRetryable({ status, outcome }: RunRow): string | null {
  if (status !== "done") return "The run isn’t done";
  return outcome === "succeeded" ? "The run has succeeded" : null;
}

/** The actions as buttons, at the head of a run. */
export function RunActions({ run, messages, me, onDone }: { run: Run; messages: readonly Message[]; me: Me | null; onDone(): void }) {
  const [asked, ask] = useState<RunAction | null>(null);
  const close = () => ask(null);
  const scope = me && !me.may("runs:write") ? "Needs the scope runs:write" : null;
  const fork = { action: "fork" as const, name: "Fork", refusal: messages.length ? scope : "There is no message yet" };
  const isNow = ({ action }: Offered) => {
    if (action === "retry") return notRetryable(run) === null;
    if (action === "resume") return run.isPaused;
    return run.status !== "done" && (action === "cancel" || !run.isPaused);
  };
  const offered = [...offeredActions(run, me).filter(isNow), fork];
  return (
    <div class="row">
      {offered.map(({ action, name, refusal }) => (
        <button key={action} disabled={refusal !== null} {...(refusal ? { title: refusal } : {})} onClick={() => ask(action)}>
          {name}
        </button>
      ))}
      {asked === "cancel" && <CancelDialog run={run} onDone={onDone} onClose={close} />}
      {asked === "pause" && <PauseDialog run={run} onDone={onDone} onClose={close} />}
      {asked === "resume" && <ResumeDialog run={run} onDone={onDone} onClose={close} />}
      {asked === "retry" && <RetryDialog run={run} onClose={close} />}
      {asked === "fork" && <ForkDialog threadId={run.threadId} messages={messages} onClose={close} />}
    </div>
  );
}

export function CancelDialog({ run, onDone, onClose }: { run: RunRow; onDone(): void; onClose(): void }) {
  const [reason, setReason] = useState("");
  return (
    <ActionDialog
      title={`Cancel run ${shortId(run.id)}?`}
      name="Cancel the run"
      isDangerous
      request={cancelRequest(run.id, reason.trim())}
      send={async (request) => {
        await cancelRun(request);
        onDone();
      }}
      onClose={onClose}
    >
      <p>{run.agentId} stops, also its agents below. What its tools did stays done.</p>
      <Reason value={reason} onChange={setReason} />
    </ActionDialog>
  );
}

function Reason({ value, onChange }: { value: string; onChange(text: string): void }) {
  return (
    <label class="field">
      <span>
        Reason <span class="quiet">(optional)</span>
      </span>
      <input value={value} maxLength={1000} onInput={(event) => onChange(event.currentTarget.value)} />
    </label>
  );
}

export function PauseDialog({ run, onDone, onClose }: { run: RunRow; onDone(): void; onClose(): void }) {
  const [reason, setReason] = useState("");
  return (
    <ActionDialog
      title={`Pause run ${shortId(run.id)}?`}
      name="Pause the run"
      request={pauseRequest(run.id, reason.trim())}
      send={async (request) => {
        await pauseRun(request);
        onDone();
      }}
      onClose={onClose}
    >
      <p>It stops after its current step, until a person resumes it. Its tickets can still be decided.</p>
      <Reason value={reason} onChange={setReason} />
    </ActionDialog>
  );
}

export function ResumeDialog({ run, onDone, onClose }: { run: RunRow; onDone(): void; onClose(): void }) {
  return (
    <ActionDialog
      title={`Resume run ${shortId(run.id)}?`}
      name="Resume the run"
      request={resumeRequest(run.id)}
      send={async (request, key) => {
        await resumeRun(request, key);
        onDone();
      }}
      onClose={onClose}
    >
      <p>It continues where it stopped.</p>
    </ActionDialog>
  );
}

export function RetryDialog({ run, onClose }: { run: RunRow; onClose(): void }) {
  const [version, setVersion] = useState<"same" | "current">("current");
  return (
    <ActionDialog
      title={`Retry run ${shortId(run.id)}?`}
      name="Start a new run"
      request={retryRequest(run.id, version)}
      send={async (request, key) => location.assign(pageUrl.run(await retryRun(request, key)))}
      onClose={onClose}
    >
      <p>A new run of {run.agentId} reads the same messages. Tools are called again.</p>
      <fieldset class="row">
        <legend class="unseen">Version of the agent</legend>
        {(["current", "same"] as const).map((one) => (
          <label key={one} class="row">
            <input type="radio" name="version" checked={version === one} onChange={() => setVersion(one)} />
            {one === "current" ? "Current version of the agent" : "Same version as then"}
          </label>
        ))}
      </fieldset>
    </ActionDialog>
  );
}
