/** What a page shows while it loads, when it fails, and when it is empty. */
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { ApiError } from "../core/api/client";

const SHOW_AFTER_MILLISECONDS = 150;

/** Grey bars, shown only if loading takes long enough to be noticed. */
export function Skeleton({ rows = 6 }: { rows?: number }) {
  const [isShown, show] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => show(true), SHOW_AFTER_MILLISECONDS);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div class="skeleton" aria-busy="true">
      <span class="unseen">Loading</span>
      {isShown && Array.from({ length: rows }, (_, at) => <span key={at} />)}
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

/** An error with its code and trace id, and a way to try again. */
export function Failure({ error, onRetry }: { error: unknown; onRetry?: (() => void) | undefined }) {
  const { title, detail, code, traceId } = describe(error);
  return (
    <div class="failure" role="alert">
      <h2>{title}</h2>
      {detail && <p>{detail}</p>}
      <p class="row small quiet">
        {code && <code>{code}</code>}
        {traceId && <span>trace {traceId}</span>}
        {onRetry && <button onClick={onRetry}>Try again</button>}
      </p>
    </div>
  );
}

function describe(error: unknown): { title: string; detail: string; code: string; traceId: string } {
  if (!(error instanceof ApiError)) {
    return { title: "This page has a defect", detail: String(error), code: "", traceId: "" };
  }
  const { status, detail, code, traceId } = error;
  const title =
    status === 404 ? "Not here, or not yours" : status === 0 ? "No connection" : error.isTemporary ? "Not now" : "That didn’t work";
  return { title, detail, code, traceId };
}
