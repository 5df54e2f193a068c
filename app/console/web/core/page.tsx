/** Draws a page, and says when it is ready: tests and benchmarks wait for `data-ready`. */
import { render, type ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { readMe, type Me } from "./api/session";
import { chosenTheme, showTheme } from "./theme";

export function draw(Page: ComponentType): void {
  showTheme(chosenTheme());
  const app = document.getElementById("app")!;
  app.replaceChildren();
  render(<Page />, app);
}

/** Mark the page as drawn with its data. */
export function useReady(isReady: boolean): void {
  useEffect(() => {
    if (isReady) document.body.dataset["ready"] = "";
    else delete document.body.dataset["ready"];
  }, [isReady]);
}

export function useTitle(title: string): void {
  useEffect(() => {
    document.title = `${title} · Holdfast`;
  }, [title]);
}

export function useMe(): { me: Me | null; error: unknown } {
  const [state, setState] = useState<{ me: Me | null; error: unknown }>({ me: null, error: null });
  useEffect(() => {
    readMe().then(
      (me) => setState({ me, error: null }),
      (error: unknown) => setState({ me: null, error }),
    );
  }, []);
  return state;
}
