/** Sign-in with an API key. The browser gets a session cookie and keeps no key. */
import { useEffect, useState } from "preact/hooks";
import { ApiError } from "../core/api/client";
import { readMe, signIn } from "../core/api/session";
import { draw, useReady, useTitle } from "../core/page";
import { queryOf, safeReturn } from "../core/url";

function Login() {
  const [key, setKey] = useState("");
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);
  const next = safeReturn(queryOf()["next"]);
  useTitle("Sign in");
  useReady(true);
  useEffect(() => {
    // A server without keys needs no sign-in, and a session may still be valid.
    readMe().then(
      () => location.replace(next),
      () => undefined,
    );
  }, []);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setProblem("");
    try {
      await signIn(key);
      location.replace(next);
    } catch (error) {
      setProblem(error instanceof ApiError ? error.detail : String(error));
      setBusy(false);
    }
  };
  return (
    <main class="login">
      <form class="stack" onSubmit={(event) => void submit(event)}>
        <h1>Holdfast</h1>
        <p class="quiet">
          Sign in with your own API key. Decisions and the audit carry its name, so don’t share one.
        </p>
        <label class="field">
          API key
          <input
            type="password"
            autocomplete="current-password"
            autofocus
            required
            value={key}
            onInput={(event) => setKey(event.currentTarget.value)}
            aria-describedby={problem ? "problem" : undefined}
          />
        </label>
        {problem && (
          <p id="problem" class="problem" role="alert">
            {problem}
          </p>
        )}
        <button class="primary" disabled={isBusy}>
          Sign in
        </button>
      </form>
    </main>
  );
}

draw(Login);
