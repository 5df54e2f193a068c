/** Requests to /v1: JSON in and out, and errors as `ApiError`. */
import { pageUrl, prefix, withQuery } from "../url";
import type { components, paths } from "../openapi";

export type Schemas = components["schemas"];

/** The query of a GET operation. */
export type QueryOf<P extends keyof paths> = paths[P] extends { get: { parameters: { query?: infer Q } } }
  ? NonNullable<Q>
  : never;

/** An error response. `code` is stable; `detail` is a sentence for people. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    readonly detail: string,
    readonly traceId: string,
    readonly facts: Readonly<Record<string, unknown>> = {},
  ) {
    super(detail);
  }

  get isTemporary(): boolean {
    return this.status === 0 || this.status === 429 || this.status === 503;
  }
}

type Query = Record<string, unknown>;

export interface RequestOptions {
  query?: Query;
  body?: unknown;
  signal?: AbortSignal;
  headers?: Record<string, string>;
}

export async function request<T>(method: string, path: string, options: RequestOptions = {}): Promise<T> {
  const response = await send(method, path, options);
  if (response.status === 204) return undefined as T;
  return (await response.json()) as T;
}

/** Send a request; an error response becomes an `ApiError`, and 401 leads to the sign-in. */
export async function send(method: string, path: string, options: RequestOptions = {}): Promise<Response> {
  const response = await reach(method, path, options);
  if (response.ok) return response;
  const error = await errorOf(response);
  if (response.status === 401 && path.startsWith("/v1/")) toSignIn();
  throw error;
}

async function reach(method: string, path: string, options: RequestOptions): Promise<Response> {
  const { body, signal } = options;
  const headers: Record<string, string> = { Accept: "application/json", ...options.headers };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  try {
    return await fetch(apiUrl(path, options.query), {
      method,
      headers,
      credentials: "same-origin",
      cache: "no-store",
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      ...(signal ? { signal } : {}),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "unreachable", "The server can’t be reached. Check that it runs.", "");
  }
}

export function apiUrl(path: string, query: Query = {}): string {
  const given = Object.entries(query).map(([name, value]) => [name, value == null ? "" : String(value)]);
  return prefix + withQuery(path, Object.fromEntries(given));
}

export async function errorOf(response: Response): Promise<ApiError> {
  let problem: Partial<Schemas["Problem"]> = {};
  try {
    problem = (await response.json()) as Partial<Schemas["Problem"]>;
  } catch {
    // A proxy has answered, and not with JSON.
  }
  return new ApiError(
    response.status,
    problem.code ?? "http_error",
    problem.detail ?? `The server answered with status ${response.status}.`,
    problem.trace_id ?? "",
    problem as Record<string, unknown>,
  );
}

export function toSignIn(): void {
  const here = location.pathname + location.search;
  if (location.pathname !== pageUrl.login()) location.assign(pageUrl.login(here));
}
