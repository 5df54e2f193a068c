/** The catalogue of tools that agents may name. */
import { request, type QueryOf, type Schemas } from "./client";

const MOST_TOOLS = 200;

/** The effects of tools by their names. */
export async function listToolEffects(signal: AbortSignal): Promise<ReadonlyMap<string, string>> {
  const query: QueryOf<"/v1/tools"> = { limit: MOST_TOOLS };
  const page = await request<Schemas["CatalogToolPage"]>("GET", "/v1/tools", { query, signal });
  return new Map(page.items.map(({ name, effect }) => [name, effect]));
}
