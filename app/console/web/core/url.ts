/** Addresses of pages, and the state that a page keeps in its address. */

/** The path below which a proxy shows the server. Unit tests run without a document. */
export const prefix = globalThis.document?.documentElement.dataset["prefix"] ?? "";

export const pageUrl = {
  inbox: () => `${prefix}/console/inbox`,
  ticketsOf: (runId: string) => withQuery(`${prefix}/console/inbox`, { run: runId }),
  ticket: (id: string) => `${prefix}/console/tickets/${encodeURIComponent(id)}`,
  runs: () => `${prefix}/console/runs`,
  run: (id: string, query: Record<string, string> = {}) =>
    withQuery(`${prefix}/console/runs/${encodeURIComponent(id)}`, query),
  threads: () => `${prefix}/console/threads`,
  thread: (id: string) => `${prefix}/console/threads/${encodeURIComponent(id)}`,
  agents: () => `${prefix}/console/agents`,
  agent: (id: string) => `${prefix}/console/agents/${encodeURIComponent(id)}`,
  mcpServer: (id: string) => `${prefix}/console/mcp-servers/${encodeURIComponent(id)}`,
  memory: () => `${prefix}/console/memory`,
  system: () => `${prefix}/console/system`,
  start: (query: Record<string, string> = {}) => withQuery(`${prefix}/console/start`, query),
  login: (next?: string) => withQuery(`${prefix}/console/login`, next ? { next } : {}),
};

export function withQuery(path: string, query: Record<string, string | null | undefined>): string {
  const given = Object.entries(query).filter((pair): pair is [string, string] => !!pair[1]);
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

/** The part of the path after `/console/NAME/`, such as the id of a run. */
export function idInPath(): string | null {
  const [, id] = location.pathname.slice(`${prefix}/console/`.length).split("/");
  return id ? decodeURIComponent(id) : null;
}

export function queryOf(): Record<string, string> {
  return Object.fromEntries(new URLSearchParams(location.search));
}

/** Replace parameters of the address; empty ones are removed. */
export function setQuery(changes: Record<string, string | null>): void {
  history.replaceState(history.state, "", withQuery(location.pathname, { ...queryOf(), ...changes }));
}

/** A path of this console that sign-in may return to; other addresses are ignored. */
export function safeReturn(next: string | undefined): string {
  const start = `${prefix}/console/`;
  return next?.startsWith(start) && !next.includes("\\") ? next : pageUrl.inbox();
}
