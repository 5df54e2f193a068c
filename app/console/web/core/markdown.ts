/** Markdown as a tree. It never becomes an HTML string. */
import type { Root } from "mdast";
import { fromMarkdown } from "mdast-util-from-markdown";
import { gfmTableFromMarkdown } from "mdast-util-gfm-table";
import { gfmTable } from "micromark-extension-gfm-table";

export type { Nodes } from "mdast";

export function parseMarkdown(text: string): Root {
  return fromMarkdown(text, { extensions: [gfmTable()], mdastExtensions: [gfmTableFromMarkdown()] });
}

const SCHEMES = new Set(["http:", "https:", "mailto:"]);

/** The address of a link that may be followed; null for others, such as `javascript:`. */
export function safeLink(url: string): URL | null {
  try {
    const parsed = new URL(url);
    return SCHEMES.has(parsed.protocol) ? parsed : null;
  } catch {
    return null;
  }
}
