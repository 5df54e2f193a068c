// Runs before the first paint, so that a dark page doesn't flash in white.
import { followTheme } from "./theme";

followTheme();
