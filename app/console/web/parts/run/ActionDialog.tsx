/** Asks before an action, sends it, and shows what went wrong. */
import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { actionKey, type ActionRequest } from "../../core/api/runActions";
import { CopyAsCurl } from "../CopyAsCurl";
import { Dialog } from "../Dialog";
import { Failure } from "../States";

interface ActionDialogProps {
  title: string;
  /** The word on the button that sends. */
  name: string;
  isDangerous?: boolean;
  request: ActionRequest;
  send(request: ActionRequest, key: string): Promise<void>;
  onClose(): void;
  children: ComponentChildren;
}

export function ActionDialog({ title, name, isDangerous, request, send, onClose, children }: ActionDialogProps) {
  const [error, setError] = useState<unknown>(null);
  const [isBusy, setBusy] = useState(false);
  // A repetition of the same request has the same key, so it takes effect once.
  const key = useMemo(actionKey, [JSON.stringify(request)]);
  const submit = async (event: Event) => {
    event.preventDefault();
    if (isBusy) return;
    setBusy(true);
    setError(null);
    try {
      await send(request, key);
      onClose();
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <form class="stack" onSubmit={(event) => void submit(event)}>
        {children}
        {error ? <Failure error={error} /> : null}
        <p class="row">
          <button class={isDangerous ? "danger armed" : "primary"} disabled={isBusy}>
            {name}
          </button>
          <span class="grow" />
          <CopyAsCurl request={() => request} />
        </p>
      </form>
    </Dialog>
  );
}
