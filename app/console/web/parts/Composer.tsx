/** A text field that sends a message. `Ctrl+Enter` sends; what was typed stays if sending fails. */
import type { ComponentChildren } from "preact";
import { useMemo, useRef, useState } from "preact/hooks";
import { actionKey, type ActionRequest } from "../core/api/runActions";
import { useKeys } from "../core/keys";
import { CopyAsCurl } from "./CopyAsCurl";
import { Failure } from "./States";

interface ComposerProps {
  label: string;
  /** Why nothing can be sent. */
  refusal: string | null;
  /** Fields beside the button. */
  children?: ComponentChildren;
  /** Changes make a repeated message a new request. */
  variant: string;
  /** The request that sends a text. */
  request(text: string): ActionRequest;
  send(request: ActionRequest, key: string): Promise<void>;
}

export function Composer({ label, refusal, children, variant, request, send }: ComposerProps) {
  const [text, setText] = useState("");
  const [error, setError] = useState<unknown>(null);
  const [isBusy, setBusy] = useState(false);
  const [sent, setSent] = useState(0);
  const field = useRef<HTMLTextAreaElement>(null);
  const key = useMemo(actionKey, [text, variant, sent]);
  const submit = async () => {
    if (!text.trim() || isBusy || refusal) return;
    setBusy(true);
    setError(null);
    try {
      await send(request(text), key);
      setText("");
      setSent(sent + 1);
    } catch (problem) {
      setError(problem);
    } finally {
      setBusy(false);
    }
  };
  useKeys({ c: () => field.current?.focus() });
  // Only in the field: elsewhere on the page the same keys send a decision.
  const onKey = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    void submit();
  };
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
      }}
    >
      {error ? <Failure error={error} /> : null}
      <textarea
        ref={field}
        rows={Math.min(10, Math.max(2, text.split("\n").length))}
        aria-label={label}
        placeholder={`${label}  (c)`}
        value={text}
        disabled={refusal !== null}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={onKey}
      />
      <div class="row">
        {refusal ? <span class="quiet small">{refusal}</span> : children}
        <span class="grow" />
        {text.trim() && !refusal && <CopyAsCurl request={() => request(text)} />}
        <button class="primary" disabled={isBusy || refusal !== null || !text.trim()}>
          Send <kbd>Ctrl+Enter</kbd>
        </button>
      </div>
    </form>
  );
}
