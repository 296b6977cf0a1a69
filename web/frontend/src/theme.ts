/** Light, dark, or as the system has it. The choice is an attribute on <html>, which the stylesheet reads. */

import { browserStorage } from "./storage";

export type Theme = "system" | "light" | "dark";
const KEY = "m3.theme";
const THEMES: readonly Theme[] = ["system", "light", "dark"];

export function storedTheme(): Theme {
  try {
    return THEMES.find((one) => one === browserStorage("localStorage")?.getItem(KEY)) ?? "system";
  } catch {
    return "system";
  }
}

export function applyTheme(theme: Theme): void {
  const root = document.documentElement;
  if (theme === "system") delete root.dataset["theme"];
  else root.dataset["theme"] = theme;
}

export function chooseTheme(theme: Theme): void {
  applyTheme(theme);
  try {
    browserStorage("localStorage")?.setItem(KEY, theme);
  } catch {
    // the choice then lasts as long as the page
  }
}

/** What the eye sees now. */
export function shownTheme(theme: Theme): "light" | "dark" {
  if (theme !== "system") return theme;
  return globalThis.matchMedia?.("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}
