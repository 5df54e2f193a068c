/** Says something to a run: before its next step, after it, or in its place. */
import { useState } from "preact/hooks";
import { runInputRequest, sendInput, type ActionRequest, type InputMode } from "../../core/api/runActions";
import type { Run } from "../../core/api/runs";
import type { Me } from "../../core/api/session";
import { pageUrl } from "../../core/url";
import { Composer } from "../Composer";

const MODES: readonly [InputMode, string][] = [
  ["steer", "Steer: the run reads it before its next step"],
  ["queue", "Queue: a new run reads it after this one"],
  ["interrupt_then_queue", "Interrupt: this run is cancelled, a new one reads it"],
];

export function RunComposer({ run, me }: { run: Run; me: Me | null }) {
  const isDone = run.status === "done";
  const [wanted, setMode] = useState<InputMode>("steer");
  const mode = isDone ? "queue" : wanted;
  const send = async (request: ActionRequest, key: string) => {
    const reader = await sendInput(request, key);
    if (reader !== run.id) location.assign(pageUrl.run(reader));
  };
  return (
    <Composer
      label={isDone ? "Continue in a new run" : "Say something to the run"}
      refusal={me && !me.may("runs:write") ? "Your key lacks the scope runs:write." : null}
      variant={mode}
      request={(text) => runInputRequest(run.id, text, mode)}
      send={send}
    >
      {!isDone && (
        <select aria-label="When it is read" value={mode} onChange={(event) => setMode(event.currentTarget.value as InputMode)}>
          {MODES.map(([name, text]) => (
            <option key={name} value={name}>
              {text}
            </option>
          ))}
        </select>
      )}
    </Composer>
  );
}
