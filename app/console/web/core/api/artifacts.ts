/** What a run has made beside its messages, and the state that its agent keeps. */
import { request, type Schemas } from "./client";

export interface Artifact {
  id: string | null;
  name: string | null;
  mediaType: string | null;
  content: unknown;
}

export async function listArtifacts(runId: string, cursor: string | null, signal?: AbortSignal): Promise<{ items: Artifact[]; next: string | null }> {
  const page = await request<Schemas["ArtifactPage"]>("GET", `/v1/runs/${encodeURIComponent(runId)}/artifacts`, {
    query: { cursor },
    ...(signal ? { signal } : {}),
  });
  const items = page.items.map(({ id, name, media_type, content, content_url, size }) => ({
    id,
    name,
    mediaType: media_type,
    content: content_url ? { content_url, size } : content,
  }));
  return { items, next: page.has_more ? page.next_cursor : null };
}

export async function readAgentState(runId: string, signal?: AbortSignal): Promise<unknown> {
  const run = await request<Schemas["Run"]>("GET", `/v1/runs/${encodeURIComponent(runId)}`, {
    query: { include: "state" },
    ...(signal ? { signal } : {}),
  });
  return run.state ?? null;
}
