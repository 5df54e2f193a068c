/** A request as a curl command. The key is left out. */
import type { ActionRequest } from "../api/runActions";

/** `origin` is where the API is, with the path of a proxy. */
export function curlOf(origin: string, { method = "POST", path, body, headers = {} }: ActionRequest): string {
  const parts = [`curl -s ${quoted(origin + path)}`, "-H 'Authorization: Bearer …'"];
  for (const [name, value] of Object.entries(headers)) parts.push(`-H ${quoted(`${name}: ${value}`)}`);
  if (body !== undefined) parts.push("-H 'Content-Type: application/json'", `-d ${quoted(JSON.stringify(body))}`);
  // With a body, curl sends POST.
  if (method !== "POST" || body === undefined) parts.push(`-X ${method}`);
  return parts.join(" ");
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
