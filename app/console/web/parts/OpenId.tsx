/** `Ctrl+K`: opens a page by its name, or what has the id that was pasted. */
import { useState } from "preact/hooks";
import { findById } from "../core/api/find";
import { Dialog } from "./Dialog";
import { PLACES } from "./Shell";

const ID = /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/i;

export function OpenId({ onClose }: { onClose(): void }) {
  const [text, setText] = useState("");
  const [problem, setProblem] = useState("");
  const wanted = text.trim().toLowerCase();
  const places = PLACES.filter(({ name }) => name.toLowerCase().includes(wanted));
  const submit = async (event: Event) => {
    event.preventDefault();
    setProblem("");
    const id = ID.exec(text)?.[0];
    if (!id) return places[0] ? location.assign(places[0].href) : setProblem("Paste the id of a run, ticket or thread, or write the name of a page.");
    try {
      const found = await findById(id);
      if (found) location.assign(found);
      else setProblem("No run, ticket or thread has this id, or it isn’t yours.");
    } catch (error) {
      setProblem(String(error instanceof Error ? error.message : error));
    }
  };
  return (
    <Dialog title="Open" onClose={onClose}>
      <form class="stack" onSubmit={(event) => void submit(event)}>
        <label class="field">
          Id of a run, ticket or thread, or the name of a page
          <input autofocus value={text} onInput={(event) => setText(event.currentTarget.value)} spellcheck={false} autocomplete="off" />
        </label>
        {problem && (
          <p class="problem" role="alert">
            {problem}
          </p>
        )}
        {!ID.test(text) && (
          <ul class="row">
            {places.map(({ name, href }) => (
              <li key={name}>
                <a href={href}>{name}</a>
              </li>
            ))}
          </ul>
        )}
        <p>
          <button class="primary">Open</button>
        </p>
      </form>
    </Dialog>
  );
}
