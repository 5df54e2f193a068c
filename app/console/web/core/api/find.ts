/** The page of what has an id: a run, a ticket or a thread. */
import { pageUrl } from "../url";
import { ApiError, request } from "./client";

export async function findById(id: string): Promise<string | null> {
  const kinds = [
    ["/v1/runs/", pageUrl.run(id)],
    ["/v1/tickets/", pageUrl.ticket(id)],
    ["/v1/threads/", pageUrl.thread(id)],
  ] as const;
  for (const [path, page] of kinds) {
    try {
      await request("GET", path + encodeURIComponent(id));
      return page;
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 404) throw error;
    }
  }
  return null;
}
