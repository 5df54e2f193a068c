/** Copies a request as a curl command, and says so. */
import { useState } from "preact/hooks";
import type { ActionRequest } from "../core/api/runActions";
import { prefix } from "../core/url";
import { curlOf } from "../core/words/curl";

const WORDS = { no: "Copy as curl", yes: "Copied", failed: "This browser doesn’t let the page copy" };

export function CopyAsCurl({ request }: { request(): ActionRequest }) {
  const [isCopied, setCopied] = useState<keyof typeof WORDS>("no");
  const copy = async () => {
    try {
      // Browsers have a clipboard only over https and on the server's own machine.
      await navigator.clipboard.writeText(curlOf(location.origin + prefix, request()));
      setCopied("yes");
    } catch {
      setCopied("failed");
    }
  };
  return (
    <button type="button" class="plain small" onClick={() => void copy()}>
      {WORDS[isCopied]}
    </button>
  );
}
