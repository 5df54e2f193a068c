/** One thread in the list. */
import type { Thread } from "../../core/api/threads";
import { shortId } from "../../core/ids";
import { shortened } from "../../core/text";
import { age } from "../../core/time";
import { pageUrl } from "../../core/url";
import { Mark } from "../Status";
import { SafeText } from "../Text";

export function ThreadRow({ thread, isChosen, now }: { thread: Thread; isChosen: boolean; now: Date }) {
  const { id, title, key, messageCount, openRunId, queueLength, updatedAt, last, firstWords } = thread;
  return (
    <a class="thread-row" href={pageUrl.thread(id)} data-thread={id} {...(isChosen ? { "aria-current": "page" as const } : {})}>
      <span class="name cut">
        <SafeText text={nameOf(thread)} />
      </span>
      <span class="quiet small number">{age(updatedAt, now)}</span>
      {last?.text && (title || key || last.text !== firstWords) && (
        <span class="said-last small quiet cut">
          <span class="quiet">{last.by === "user" ? "asked: " : ""}</span>
          <SafeText text={last.text.replace(/\s+/g, " ")} />
        </span>
      )}
      <span class="row small whole">
        <span class="quiet grow">
          {messageCount} {messageCount === 1 ? "message" : "messages"}
        {queueLength > 0 && `, ${queueLength} queued`}
        </span>
        {openRunId && <Mark look={["others", "open run", "quiet"]} />}
      </span>
    </a>
  );
}

const NAME_CHARACTERS = 80;

/** What people call it, or else the words with which it began. */
export function nameOf({ id, title, key, resourceId, firstWords }: Thread): string {
  return title || key || firstLine(firstWords) || resourceId || `Thread ${shortId(id)}`;
}

function firstLine(text: string): string {
  return shortened(text.trim().replace(/\s+/g, " "), NAME_CHARACTERS).text;
}
