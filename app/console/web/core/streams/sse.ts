/** Parses Server-Sent Events from pieces of text. */
export interface Frame {
  id: string;
  data: string;
}

/** Feed it pieces in order; it returns the frames that are complete, and keeps the rest. */
export class SseParser {
  private rest = "";
  private id = "";
  private data: string[] = [];

  push(text: string): Frame[] {
    const lines = (this.rest + text).split("\n");
    this.rest = lines.pop() ?? "";
    const frames: Frame[] = [];
    for (const line of lines) {
      const frame = this.line(line.endsWith("\r") ? line.slice(0, -1) : line);
      if (frame) frames.push(frame);
    }
    return frames;
  }

  private line(line: string): Frame | null {
    if (line === "") return this.dispatch();
    if (line.startsWith(":")) return null;
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "id") this.id = value;
    else if (field === "data") this.data.push(value);
    return null;
  }

  private dispatch(): Frame | null {
    if (this.data.length === 0) return null;
    const frame = { id: this.id, data: this.data.join("\n") };
    this.data = [];
    return frame;
  }
}
