/** Starts a run of an agent on a new thread, and opens the conversation. */
import type { ComponentChildren } from "preact";
import type { ActionRequest } from "../../core/api/runActions";
import type { Me } from "../../core/api/session";
import { startRequest, startRun } from "../../core/api/start";
import { pageUrl } from "../../core/url";
import { Composer } from "../Composer";

interface TryItProps {
  agent: string;
  me: Me | null;
  label: string;
  /** Fields beside the button. */
  children: ComponentChildren;
}

export function TryIt({ agent, me, label, children }: TryItProps) {
  // The key of the composer is the id of the run, so a repetition starts no second one.
  const send = async (request: ActionRequest, key: string) => location.assign(pageUrl.thread((await startRun(request, key)).threadId));
  return (
    <Composer
      label={label}
      refusal={me && !me.may("runs:write") ? "Your key lacks the scope runs:write." : null}
      variant={agent}
      request={(text) => startRequest(agent, text)}
      send={send}
    >
      {children}
    </Composer>
  );
}
