/** An event in a few words, for its row in the list. */
import type { ListedEvent } from "../core/api/events";
import type { Json } from "../core/api/messages";
import { isObject } from "../core/json";

const LONGEST = 160;

export function summaryOf({ wire }: ListedEvent): string {
  const found: string[] = [];
  const add = (value: Json | undefined) => {
    if (typeof value === "string" && value) found.push(value);
    else if (typeof value === "number") found.push(String(value));
  };
  for (const name of ["name", "model", "agent_id", "status", "outcome", "action", "reason", "decided_by", "requested_by", "ended_by"]) {
    add(wire[name]);
  }
  const { result, message, ticket, waiting, arguments: given } = wire;
  if (isObject(waiting ?? null)) add((waiting as Record<string, Json>)["reason"]);
  if (isObject(result ?? null)) {
    add((result as Record<string, Json>)["outcome"] ?? (result as Record<string, Json>)["status"]);
    add((result as Record<string, Json>)["text"]);
  }
  if (isObject(ticket ?? null)) {
    add((ticket as Record<string, Json>)["kind"]);
    add((ticket as Record<string, Json>)["tool_name"]);
  }
  if (isObject(message ?? null)) found.push(saidIn(message as Record<string, Json>));
  if (isObject(given ?? null)) found.push(JSON.stringify(given));
  const text = found.filter(Boolean).join(" · ").replace(/\s+/g, " ");
  return text.length > LONGEST ? `${text.slice(0, LONGEST)}…` : text;
}

function saidIn(message: Record<string, Json>): string {
  const parts = Array.isArray(message["content"]) ? message["content"] : [];
  return parts.map((part) => (isObject(part) && typeof part["text"] === "string" ? part["text"] : "")).join("");
}
