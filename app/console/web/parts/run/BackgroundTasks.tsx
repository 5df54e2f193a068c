/** The background tasks that a run waits for, each of which can be cancelled. */
import { useState } from "preact/hooks";
import { cancelTask, cancelTaskRequest, listTasks, type BackgroundTask } from "../../core/api/backgroundTasks";
import type { Me } from "../../core/api/session";
import { shortId } from "../../core/ids";
import { useRead } from "../../core/read";
import { age, fullTime, useNow } from "../../core/time";
import { pageUrl } from "../../core/url";
import { Failure } from "../States";
import { ActionDialog } from "./ActionDialog";

interface BackgroundTasksProps {
  runId: string;
  /** Grows when the run has changed. */
  version: number;
  me: Me | null;
}

export function BackgroundTasks({ runId, version, me }: BackgroundTasksProps) {
  const { value, error, retry } = useRead((signal) => listTasks(runId, signal), `${runId}:${version}`);
  const [asked, ask] = useState<BackgroundTask | null>(null);
  const now = useNow();
  const refusal = me && !me.may("runs:write") ? "Needs the scope runs:write" : null;
  const running = value?.filter(({ isDone }) => !isDone) ?? [];
  if (error) return <Failure error={error} onRetry={retry} />;
  if (!running.length) return null;
  return (
    <ul class="stack" aria-label="Background tasks">
      {running.map((task) => (
        <li key={task.id} class="row small">
          <code>{task.tool}</code>
          <span class="quiet" title={fullTime(task.startedAt ?? task.createdAt)}>
            {task.startedAt ? `runs for ${age(task.startedAt, now)}` : `waits for a worker for ${age(task.createdAt, now)}`}
            {task.attempt > 1 && `, attempt ${task.attempt}`}
          </span>
          {task.childRunId && <a href={pageUrl.run(task.childRunId)}>run {shortId(task.childRunId)}</a>}
          <button class="small" disabled={refusal !== null} {...(refusal ? { title: refusal } : {})} onClick={() => ask(task)}>
            Cancel the task
          </button>
        </li>
      ))}
      {asked && (
        <ActionDialog
          title={`Cancel the task of ${asked.tool}?`}
          name="Cancel it"
          isDangerous
          request={cancelTaskRequest(runId, asked)}
          send={async (request) => {
            await cancelTask(request);
            retry();
          }}
          onClose={() => ask(null)}
        >
          <p>The run is told that the task was cancelled. What it did stays done.</p>
        </ActionDialog>
      )}
    </ul>
  );
}
