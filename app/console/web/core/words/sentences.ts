/** Sentences of the API, as a person reads them on a page.
 *
 * The API names the request that a program would send next. A page has buttons and links instead. */
const REQUEST = String.raw`(?:GET|POST|DELETE|PATCH) \/v1\/\S+?`;
const END = String.raw`(?=[,.:;]?(?:\s|$))`;

/** A whole sentence about a request: "Answer with POST …", "GET … has its state". */
const WHOLE = new RegExp(String.raw`(?<=^|[.!] )(?:Answer with |Decide them in the inbox: )?${REQUEST}${END}(?: has its state)?\.\s*`, "g");
/** The request at the end of a sentence, or in it: ": GET …", "with POST …". */
const PART = new RegExp(String.raw`(?:: | with )${REQUEST}${END}`, "g");

export function withoutRequests(text: string): string {
  const shown = text.replace("Send it with POST /v1/signals.", "A program sends it.");
  return shown.replace(WHOLE, "").replace(PART, "").trim();
}
