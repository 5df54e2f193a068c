/** A random UUID. `crypto.randomUUID` is missing on pages that are served by plain HTTP. */
export function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6]! & 0x0f) | 0x40;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

/** The last characters of an id, which tell the rows of a list apart: the first ones are the time. */
export function shortId(id: string): string {
  return id.slice(-8);
}
