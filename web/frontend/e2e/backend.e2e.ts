/** The page with the real server behind it: the loop, the tools and the checks as they are; only model and web are played. */

import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";

import { action, Backend, Edge, HAS_BACKEND, pdf } from "./backend";
import { accessibilityFaults, openBrowser, type Visit, visit } from "./browser";

const OOLONG = "Oolong is a tea that is partly oxidised. Oolong comes from Fujian and from Taiwan.";
const GREEN = "Green tea is not oxidised at all. Green tea is drunk in Japan and in China every day.";
const FILLER = "The tea plant is grown in many countries of the world, on hills and in gardens. ".repeat(6);
const SEARCH = action("search_web", { query: "oolong tea" });
const FETCH = action("fetch_page", { results: ["R1", "R2"] });
const FINISH = action("finish");
// A report is shown from its first sentences on, once it is clear that it is none of the loop's own turns.
const OPENING =
  "The tea plant is grown in many countries of the world, on hills and in gardens. [Source 1] " +
  "The tea plant is grown in many countries. [Source 1]\n\n";

if (!HAS_BACKEND) console.log("the page with the real server: skipped, web/backend or .venv is missing (make setup)");

let browser: Browser;
let edge: Edge;
let seen: Visit | undefined;

async function open(backend: Backend): Promise<Page> {
  seen = await visit(browser, backend.url);
  return seen.page;
}

async function ask(page: Page, question: string): Promise<void> {
  await page.getByLabel("Your question").fill(question);
  await page.keyboard.press("Enter");
}

/** The last turn, once it has ended. */
async function ended(page: Page) {
  const turn = page.locator(".turn").last();
  await page.locator(".turn:last-of-type[data-status=done]").waitFor();
  return turn;
}

const words = async (page: Page): Promise<string> =>
  (await page.locator(".prose").last().innerText()).replaceAll("\u00a0", " ");

const held = (): { promise: Promise<void>; release: () => void } => {
  let release = (): void => undefined;
  const promise = new Promise<void>((resolve) => (release = resolve));
  return { promise, release };
};

describe.skipIf(!HAS_BACKEND)("the page with the real server", () => {
  beforeAll(async () => {
    browser = await openBrowser();
    edge = await Edge.start();
    edge.pages.set("/oolong", { title: "Oolong", text: `${OOLONG}\n\n${FILLER}` });
    edge.pages.set("/green", { title: "Green tea", text: `${GREEN}\n\n${FILLER}` });
  });
  afterAll(async () => {
    await browser.close();
    await edge.stop();
  });
  afterEach(async () => {
    const faults = seen?.faults ?? [];
    await seen?.close();
    seen = undefined;
    expect(faults, "errors in the page").toEqual([]);
  });

  describe("with a scripted model", () => {
    let backend: Backend;
    beforeAll(async () => {
      backend = await Backend.start({ ...edge.settings, CITATION_REPAIR: "tags" });
    });
    afterAll(() => backend.stop());
    afterEach(async () => {
      // Uploads are everybody's: what one test leaves behind the next one would find.
      const { files } = (await (await fetch(`${backend.url}/files`)).json()) as { files: { name: string }[] };
      for (const { name } of files)
        await fetch(`${backend.url}/files/${encodeURIComponent(name)}`, { method: "DELETE" });
    });

    test("ask, see the steps, see the answer stream, open a citation", async () => {
      const rest = held();
      edge.script = {
        turns: [SEARCH, FETCH, FINISH],
        report: [
          OPENING,
          "Oolong is a tea that is partly oxidised. [Source 1] ",
          rest.promise,
          "Green tea is not oxidised at all. [Source 2]",
        ],
      };
      const page = await open(backend);
      await ask(page, "What is oolong?");
      await page.locator(".pill.ok", { hasText: "oolong tea" }).getByText("2 results").waitFor();
      await page.locator(".pill.ok", { hasText: "Read" }).getByText("2 pages read").waitFor();
      await page.getByText("The tea plant").waitFor();
      expect(await page.locator(".cursor").count()).toBe(1);
      expect(await words(page)).not.toContain("not oxidised");
      rest.release();
      const turn = await ended(page);
      expect(await turn.locator(".outcome").innerText()).toBe("Answered");
      expect(await page.locator(".cursor").count()).toBe(0);
      expect(await turn.locator(".chip.matched").allInnerTexts()).toEqual(["[1]", "[1]", "[1]", "[2]"]);

      await turn.locator(".chip").nth(2).click();
      const panel = page.getByRole("complementary", { name: "Oolong" });
      await panel.locator(".verdict", { hasText: "matched to a passage" }).waitFor();
      expect(await panel.locator(".passage blockquote").first().innerText()).toContain(
        "Oolong is a tea that is partly oxidised.",
      );
      const link = await panel.getByRole("link", { name: "Open the page at these words" }).first().getAttribute("href");
      expect(link).toMatch(new RegExp(`^${edge.url}/oolong#:~:text=`));
    });

    test("a wrong citation: what stays on the page is the corrected text", async () => {
      const rest = held();
      edge.script = {
        turns: [SEARCH, FETCH, FINISH],
        report: [
          "Green tea is not oxidised at all. [Source 1] Green tea is drunk in Japan and in China every day. [Source 1]\n\n",
          rest.promise,
          "Oolong is a tea that is partly oxidised. [Source 9]",
        ],
      };
      const page = await open(backend);
      await ask(page, "Is green tea oxidised?");
      await page.locator(".chip.draft", { hasText: "[1]" }).first().waitFor();
      rest.release();
      const turn = await ended(page);
      // The sentence about green tea now cites the page that bears it out; no source 9 was ever read.
      const corrected = async () => {
        const first = turn.locator(".prose > p").first();
        const labels = await first
          .locator(".chip.matched")
          .evaluateAll((chips) => chips.map((one) => one.getAttribute("aria-label")));
        expect(labels.every((label) => label?.endsWith("matched to a passage: Green tea"))).toBe(true);
        expect(labels).toHaveLength(2);
        expect(await words(page)).not.toContain("9");
        expect(await page.locator(".chip.draft").count()).toBe(0);
      };
      await corrected();
      await page.reload();
      await corrected();
    });

    test("upload a PDF, ask about it, delete it", async () => {
      edge.script = {
        turns: [action("extract_pdf_text", { file: "report.pdf", page: 1 }), FINISH],
        report: ["The trial yielded 412 kilograms of leaf in the second year. [Source 1]"],
      };
      const page = await open(backend);
      const pages = [
        ["A field trial of tea bushes.", FILLER.slice(0, 90)],
        ["The trial yielded 412 kilograms of leaf in the second year.", "It was held on a hill."],
      ];
      await page
        .locator("input[type=file]")
        .setInputFiles([{ name: "report.pdf", mimeType: "application/pdf", buffer: pdf(pages) }]);
      const stored = page.getByRole("list", { name: "Uploaded files" });
      await stored.getByText("report.pdf").waitFor();
      await ask(page, "What did the trial in report.pdf yield?");
      await page.locator(".pill.ok", { hasText: "report.pdf" }).waitFor();
      const turn = await ended(page);
      expect(await turn.locator(".card-where").innerText()).toContain("report.pdf, p. 2");
      await turn.locator(".chip.matched").click();
      const panel = page.locator(".panel");
      expect(await panel.locator(".passage blockquote").first().innerText()).toContain("412 kilograms");
      await panel.getByText("p. 2", { exact: true }).first().waitFor();
      await page.keyboard.press("Escape");

      await page.getByRole("button", { name: "Delete report.pdf" }).click();
      await page.getByRole("button", { name: "Delete", exact: true }).click();
      await stored.waitFor({ state: "detached" });
      await page.reload();
      await page.getByText("No files yet.").waitFor();
      // The answer and its evidence outlive the file.
      await page.locator(".chip.matched").click();
      await page.locator(".panel").getByText("412").first().waitFor();
    });

    test("a file that is not what its name says is refused with the reason", async () => {
      const page = await open(backend);
      await page
        .locator("input[type=file]")
        .setInputFiles([{ name: "fake.pdf", mimeType: "application/pdf", buffer: Buffer.from("MZ\x00\x01") }]);
      const failed = page.getByRole("list", { name: "Being uploaded" }).locator(".failed");
      await failed.waitFor();
      expect(await failed.locator(".bad").innerText()).not.toContain("status");
      await page.getByText("No files yet.").waitFor({ state: "detached" });
      expect(await page.getByRole("list", { name: "Uploaded files" }).count()).toBe(0);
    });

    test("a stopped run leaves a checked partial answer and makes room, however often", async () => {
      const never = held();
      const moon = "Oolong was brought from the moon by 17 astronauts. [Source 1] ";
      edge.script = {
        turns: [SEARCH, FETCH, FINISH],
        report: [`${moon}${OPENING}`, never.promise, "Oolong is partly oxidised. [Source 1]"],
      };
      const page = await open(backend);
      await ask(page, "What is oolong?");
      for (let i = 0; i < 4; i++) {
        await page.getByText("from the moon").waitFor();
        await page.getByRole("button", { name: "Stop", exact: true }).click();
        await page.locator(".outcome", { hasText: "Partial answer: the run was stopped" }).waitFor();
        expect(await words(page)).not.toContain("moon");
        expect(await page.locator(".chip.matched").count()).toBeGreaterThan(0);
        expect(await page.locator(".chip:not(.matched)").count()).toBe(0);
        await page.getByRole("button", { name: "Ask again" }).click();
      }
      await page.getByText("from the moon").waitFor();
      never.release();
      await ended(page);
    });

    test("a reload keeps the conversation, and a run that was going on is shown as interrupted", async () => {
      edge.script = { turns: [SEARCH, FETCH, FINISH], report: ["Oolong is a tea that is partly oxidised. [Source 1]"] };
      const page = await open(backend);
      await ask(page, "What is oolong?");
      await ended(page);
      const never = held();
      edge.script = { turns: [SEARCH, FETCH, FINISH], report: [OPENING, never.promise, "Green tea is not oxidised."] };
      await ask(page, "And green tea?");
      await page.locator(".prose").nth(1).getByText("The tea plant").waitFor();
      await page.reload();
      expect(await page.locator(".outcome").allInnerTexts()).toEqual([
        "Answered",
        "Interrupted: the page was left while the answer was being written",
      ]);
      expect(await page.locator(".turn").first().locator(".chip.matched").count()).toBe(1);
      never.release();
    });

    test("a follow-up that the model answers from the conversation says that no source was checked", async () => {
      edge.script = { turns: [SEARCH, FETCH, FINISH], report: ["Oolong is a tea that is partly oxidised. [Source 1]"] };
      const page = await open(backend);
      await ask(page, "What is oolong?");
      await ended(page);
      edge.script = { turns: [FINISH], report: ["It is a partly oxidised tea."] };
      edge.prompts.length = 0;
      await ask(page, "Say that in fewer words.");
      const turn = page.locator(".turn").nth(1);
      await turn.locator(".outcome", { hasText: "From the conversation, no source checked" }).waitFor();
      expect(JSON.stringify(edge.prompts[0])).toContain("partly oxidised");
    });

    test("a model that refuses the key is told as one friendly sentence", async () => {
      edge.failing = 401;
      try {
        const page = await open(backend);
        await ask(page, "What is oolong?");
        const turn = await ended(page);
        expect(await turn.locator(".outcome").innerText()).toContain("Failed");
        expect((await turn.locator(".fault").innerText()).trim()).not.toBe("");
      } finally {
        edge.failing = 0;
      }
    });
  });

  test("without a key the offline mock answers, and the page says what it is", async () => {
    const backend = await Backend.start({});
    try {
      const page = await open(backend);
      await page.getByRole("note", { name: "About this server" }).getByText("Offline mock model.").waitFor();
      await page.getByRole("button", { name: "Compare Raptor RAG vs HyDE" }).click();
      const turn = await ended(page);
      expect(await turn.locator(".outcome").innerText()).toBe("Answered");
      expect(await turn.locator(".chip.matched").count()).toBeGreaterThan(3);
      await turn.locator(".chip").first().click();
      await page.locator(".panel .passage").first().waitFor();
      expect(await accessibilityFaults(page)).toEqual([]);
    } finally {
      await seen?.close();
      await backend.stop();
    }
  });

  test("a server with a token lets the page in that has it", async () => {
    const backend = await Backend.start({ ...edge.settings, CHAT_TOKEN: "open-sesame-open-sesame" });
    edge.script = { turns: [SEARCH, FETCH, FINISH], report: ["Oolong is a tea that is partly oxidised. [Source 1]"] };
    try {
      const page = await open(backend);
      await page.getByRole("textbox", { name: "Token" }).fill("open-sesame-open-sesame");
      await page.getByRole("textbox", { name: "Token" }).press("Enter");
      await page.getByText("No files yet.").waitFor();
      await ask(page, "What is oolong?");
      await ended(page);
    } finally {
      await seen?.close();
      await backend.stop();
    }
  });
});
