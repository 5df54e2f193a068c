/** Copies the request of a decision as a curl command, without a key. */
import { useState } from "preact/hooks";
import { decisionRequest, type Answer, type TicketDetail } from "../../core/api/tickets";
import { newId } from "../../core/ids";
import { prefix } from "../../core/url";

export function CopyAsCurl({ ticket, answer }: { ticket: TicketDetail; answer: Answer }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    const { path, body } = decisionRequest(ticket, answer, newId());
    await navigator.clipboard.writeText(curlOf(location.origin + prefix + path, body));
    setCopied(true);
  };
  return (
    <button type="button" class="plain small" onClick={() => void copy()}>
      {isCopied ? "Copied" : "Copy as curl"}
    </button>
  );
}

export function curlOf(url: string, body: unknown): string {
  const quoted = JSON.stringify(body).replaceAll("'", `'\\''`);
  return `curl -s '${url}' -H 'Authorization: Bearer …' -H 'Content-Type: application/json' -d '${quoted}'`;
}
