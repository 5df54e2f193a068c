/** Text of others: characters that a reader can't see are spelled out. */

/** Control characters but tab and line feed, zero-width and bidirectional ones, and other invisible ones. */
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

export interface Piece {
  text: string;
  isHidden: boolean;
}

/** The text in pieces; a hidden character is a piece `⟨U+202E⟩` of its own. */
export function pieces(text: string): Piece[] {
  const found: Piece[] = [];
  let last = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (match.index > last) found.push({ text: text.slice(last, match.index), isHidden: false });
    found.push({ text: spelled(match[0]), isHidden: true });
    last = match.index + match[0].length;
  }
  if (last < text.length || !found.length) found.push({ text: text.slice(last), isHidden: false });
  return found;
}

function spelled(character: string): string {
  return `⟨U+${character.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}⟩`;
}

/** At most `length` characters, and whether some are left out. */
export function shortened(text: string, length: number): { text: string; isCut: boolean } {
  return text.length <= length ? { text, isCut: false } : { text: `${text.slice(0, length)}…`, isCut: true };
}
