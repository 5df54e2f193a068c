/** Light or dark: the user's choice, else the system's. */
export type Theme = "light" | "dark" | "system";

const KEY = "holdfast-theme";
const dark = () => window.matchMedia("(prefers-color-scheme: dark)");

export function chosenTheme(): Theme {
  const stored = read();
  return stored === "light" || stored === "dark" ? stored : "system";
}

export function chooseTheme(theme: Theme): void {
  try {
    if (theme === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, theme);
  } catch {
    // Without storage the choice lasts as long as the page.
  }
  showTheme(theme);
}

export function showTheme(theme: Theme = chosenTheme()): void {
  const shown = theme === "system" ? (dark().matches ? "dark" : "light") : theme;
  document.documentElement.dataset["theme"] = shown;
}

/** Shows the theme now, and follows the system. */
export function followTheme(): void {
  showTheme();
  dark().addEventListener("change", () => showTheme());
}

function read(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}
