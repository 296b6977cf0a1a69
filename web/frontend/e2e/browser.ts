/** A real Chromium for the tests, the faults a page may show in it, and the rules of accessibility. */

import axe from "axe-core";
import { type Browser, type BrowserContextOptions, chromium, type Page } from "playwright-core";

export async function openBrowser(): Promise<Browser> {
  const executablePath = process.env["M3_CHROMIUM"];
  if (!executablePath) throw new Error("M3_CHROMIUM is not set: run `npm run e2e`");
  return chromium.launch({
    executablePath,
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  });
}

export interface Visit {
  readonly page: Page;
  /** What went wrong in the page: errors, refusals of the content policy, requests to other hosts. */
  readonly faults: string[];
  readonly close: () => Promise<void>;
}

export async function visit(browser: Browser, url: string, options: BrowserContextOptions = {}): Promise<Visit> {
  const context = await browser.newContext({
    viewport: { width: 1280, height: 800 },
    reducedMotion: "no-preference",
    ...options,
  });
  const page = await context.newPage();
  const faults: string[] = [];
  page.on("pageerror", (error) => faults.push(`error: ${error.message}`));
  page.on("console", (message) => {
    // The browser reports each refused request here; tests of refusals ask for them.
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource"))
      faults.push(`console: ${message.text()}`);
  });
  page.on("request", (request) => {
    if (new URL(request.url()).origin !== new URL(url).origin) faults.push(`request to ${request.url()}`);
  });
  page.setDefaultTimeout(15_000);
  await page.goto(url);
  return { page, faults, close: () => context.close() };
}

/** The accessibility findings that count as faults, each in one line. */
export async function accessibilityFaults(page: Page): Promise<string[]> {
  // Animations would give colours that are on the way to somewhere.
  await page.evaluate(() =>
    Promise.all(
      document
        .getAnimations()
        .filter((one) => one.effect?.getComputedTiming().iterations === 1)
        .map((one) => one.finished),
    ),
  );
  await page.evaluate(axe.source);
  const violations = await page.evaluate(async () => {
    const run = (globalThis as unknown as { axe: typeof axe }).axe.run;
    return (await run(document, { resultTypes: ["violations"] })).violations;
  });
  return violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .flatMap(({ id, nodes }) =>
      nodes.map((node) => `${id}: ${node.html.slice(0, 160)} (${node.any[0]?.message ?? ""})`),
    );
}
