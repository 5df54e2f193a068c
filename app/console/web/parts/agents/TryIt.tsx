/** Starts a run of an agent on a new thread, and opens the conversation. */
import type { Me } from "../../core/api/session";
import { startThread } from "../../core/api/start";
import { pageUrl } from "../../core/url";
import { Composer } from "../Composer";

export function TryIt({ agent, me }: { agent: string; me: Me | null }) {
  const send = async (text: string, key: string) => location.assign(pageUrl.thread(await startThread(agent, text, key)));
  return (
    <Composer
      label={`Try it: write to ${agent}`}
      refusal={me && !me.may("runs:write") ? "Your key lacks the scope runs:write." : null}
      variant={agent}
      send={send}
    >
      <span class="quiet small">Begins a new thread.</span>
    </Composer>
  );
}
