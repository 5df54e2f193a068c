/** Messages that wait until a run reads them. Each can be changed or retracted until then. */
import { useState } from "preact/hooks";
import type { ActionRequest } from "../../core/api/runActions";
import { changePendingRequest, retractPendingRequest, sendPendingAction, type PendingInput } from "../../core/api/threads";
import { CopyAsCurl } from "../CopyAsCurl";
import { Failure } from "../States";
import { SafeText } from "../Text";

interface PendingInputsProps {
  threadId: string;
  inputs: readonly PendingInput[];
  mayChange: boolean;
  onChanged(): void;
}

export function PendingInputs({ threadId, inputs, mayChange, onChanged }: PendingInputsProps) {
  if (!inputs.length) return null;
  return (
    <section class="pending stack" aria-label="Messages that wait">
      <h2 class="small quiet">Not read yet</h2>
      {inputs.map((input) => (
        <Pending key={`${input.id}:${input.revision}`} threadId={threadId} input={input} mayChange={mayChange} onChanged={onChanged} />
      ))}
    </section>
  );
}

function Pending({ threadId, input, mayChange, onChanged }: { threadId: string; input: PendingInput } & Pick<PendingInputsProps, "mayChange" | "onChanged">) {
  const [text, setText] = useState<string | null>(null);
  const [error, setError] = useState<unknown>(null);
  const retract = retractPendingRequest(threadId, input);
  const change = () => changePendingRequest(threadId, input, text ?? "");
  const run = async (action: ActionRequest) => {
    setError(null);
    try {
      await sendPendingAction(action);
      setText(null);
      onChanged();
    } catch (problem) {
      setError(problem);
    }
  };
  return (
    <article class="pending-input">
      {text === null ? (
        <p class="plain-text">
          <SafeText text={input.text} />
        </p>
      ) : (
        <textarea aria-label="Change the message" rows={3} value={text} onInput={(event) => setText(event.currentTarget.value)} />
      )}
      {error ? <Failure error={error} onRetry={onChanged} /> : null}
      {mayChange && (
        <p class="row small">
          {text === null ? (
            <>
              <button class="link" onClick={() => setText(input.text)}>
                Edit
              </button>
              <button class="link" onClick={() => void run(retract)}>
                Retract
              </button>
              <CopyAsCurl request={() => retract} />
            </>
          ) : (
            <>
              <button class="primary" disabled={!text.trim()} onClick={() => void run(change())}>
                Save
              </button>
              <button onClick={() => setText(null)}>Keep as it was</button>
              {text.trim() && <CopyAsCurl request={change} />}
            </>
          )}
        </p>
      )}
    </article>
  );
}
