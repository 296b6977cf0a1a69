/** The page against a server that plays its side of the contract: what no real backend can be made to do on demand. */

import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";

import { accessibilityFaults, openBrowser, type Visit, visit } from "./browser";
import { ContractServer, type Play } from "./contract_server";
import { CALLS, DONE, DRAFT, ENGLISH_QUESTION, READ, SOURCES } from "./story";

const PHONE = { viewport: { width: 360, height: 740 } };
const text = (content: string) => ({ type: "text", content });

let browser: Browser;
let server: ContractServer;
let seen: Visit | undefined;

beforeAll(async () => {
  browser = await openBrowser();
});
afterAll(() => browser.close());
beforeEach(async () => {
  server = await ContractServer.start();
});
afterEach(async () => {
  const faults = seen?.faults ?? [];
  await seen?.close();
  seen = undefined;
  await server.stop();
  expect(faults, "errors in the page").toEqual([]);
});

async function open(options: BrowserContextOptions = {}): Promise<Page> {
  seen = await visit(browser, server.url, options);
  return seen.page;
}

async function ask(page: Page, question = ENGLISH_QUESTION): Promise<Play> {
  await page.getByLabel("Your question").fill(question);
  await page.keyboard.press("Enter");
  return server.next();
}

/** Ask and play the whole story. */
async function answered(page: Page): Promise<void> {
  const play = await ask(page);
  play.send(...CALLS, READ, SOURCES, ...DRAFT.map(text), DONE);
  play.end();
  await page.locator(".turn[data-status=done]").waitFor();
}

const answer = (page: Page): Promise<string> =>
  page
    .locator(".prose")
    .last()
    .innerText()
    .then((words) => words.replaceAll("\u00a0", " "));

/** The answer is marked as a draft, and no citation of it looks like one that held. */
async function uncheckedDraft(page: Page, outcome: string): Promise<void> {
  await page.locator(".outcome", { hasText: outcome }).waitFor();
  await page.getByRole("note").getByText("Unchecked draft: it was not finished").waitFor();
  expect(await page.locator(".prose.draft").count()).toBe(1);
  for (const chip of await page.locator(".prose .chip").all()) {
    expect(await chip.innerText()).toMatch(/^\[\d+\?\]$/);
    expect(await chip.getAttribute("aria-label")).toContain("not checked");
    expect(await chip.getAttribute("class")).toContain("unchecked");
  }
}

describe("a run", () => {
  test("shows each step while it runs, the draft as it is written, and the corrected answer in its place", async () => {
    const page = await open();
    const play = await ask(page);
    expect(play.messages).toEqual([{ role: "user", content: ENGLISH_QUESTION }]);
    await page.locator(".cursor").waitFor();

    play.send(CALLS[0]);
    await page.locator(".pill.running", { hasText: "Searching RAPTOR retrieval" }).waitFor();
    play.send(CALLS[1], CALLS[2]);
    await page.locator(".pill.ok", { hasText: "3 results" }).waitFor();
    await page.locator(".pill.running", { hasText: "Reading 3 pages" }).waitFor();
    play.send(READ, SOURCES, text(DRAFT[0] ?? ""));
    await page.locator(".pill.ok", { hasText: "Read example.org and 2 more" }).waitFor();
    await page.getByText("RAPTOR clusters the chunks").waitFor();
    await page.locator(".chip.draft", { hasText: "[2]" }).waitFor();
    play.send(text(DRAFT[1] ?? ""));
    await page.getByText("by 25 %").waitFor();
    expect(await page.locator(".cursor").count()).toBe(1);

    play.send(...DRAFT.slice(2).map(text), DONE);
    play.end();
    await page.locator(".turn[data-status=done]").waitFor();
    expect(await page.locator(".cursor").count()).toBe(0);
    expect(await answer(page)).toContain("by 20 %. [1]");
    expect(await answer(page)).not.toContain("25 %");
    expect(await page.locator(".chip").allInnerTexts()).toEqual(["[1]", "[1]", "[2~]", "[3!]", "no source"]);
    expect(await page.locator(".card").count()).toBe(3);
    expect(await page.locator(".outcome").innerText()).toBe("Answered");
    expect(await page.locator(".remarks summary").innerText()).toContain("10,265");
  });

  test("shows what was searched and read when a step is opened", async () => {
    const page = await open();
    await answered(page);
    await page.locator(".pill").first().click();
    await page.getByText("Query: “RAPTOR retrieval tree of summaries”").waitFor();
    await page.locator(".pill").nth(1).click();
    const items = page.locator(".step-detail li");
    expect(await items.allInnerTexts()).toEqual([
      "RAPTOR: a tree of summaries over long documents example.org",
      "HyDE: searching with a hypothetical document hyde.example",
      "A page behind a wall wall.example · blocked: the server answered 403",
    ]);
    const link = items.first().getByRole("link");
    expect(await link.getAttribute("rel")).toBe("noopener noreferrer nofollow");
  });

  test("the answer can be copied with its sources", async () => {
    const page = await open({ permissions: ["clipboard-read", "clipboard-write"] });
    await answered(page);
    await page.getByRole("button", { name: "Copy the answer" }).click();
    await page.getByText("Copied", { exact: true }).waitFor();
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    expect(copied).toContain("by 20 %. [1]");
    expect(copied).toContain("3. Field report. report.pdf, p. 3");
  });

  test("a follow-up carries the conversation with the final answer, not the draft", async () => {
    const page = await open();
    await answered(page);
    const play = await ask(page, "And in one sentence?");
    expect(play.messages.map(({ role }) => role)).toEqual(["user", "assistant", "user"]);
    expect(play.messages[1]?.content).toBe(DONE.summary.trim());
    play.send({ ...DONE, summary: "A tree of summaries.", no_sources_used: true, sources: [], checks: [], counts: {} });
    play.end();
    await page.getByText("From the conversation, no source checked", { exact: true }).waitFor();
  });

  test.each([
    [{ outcome: "partial", stop_reason: "max_wall_clock_time" }, "Partial answer: time was up"],
    [{ outcome: "abstained", stop_reason: "agent_finished" }, "No answer found"],
    [
      { outcome: "failed", stop_reason: "provider_error", summary: "" },
      "Failed: the language model could not be reached",
    ],
  ])("labels how it ended: %j", async (more, label) => {
    const page = await open();
    const play = await ask(page);
    if (more.outcome === "failed") play.send({ type: "error", message: "The model's server refused the key." });
    play.send({ ...DONE, ...more });
    play.end();
    expect(await page.locator(".outcome").innerText()).toBe(label);
    if (more.outcome === "failed") await page.locator(".fault", { hasText: "refused the key" }).waitFor();
  });

  test("stopping asks the server to end the run, and what stays is the checked part of the answer", async () => {
    const page = await open();
    const play = await ask(page);
    play.send(...CALLS, READ, SOURCES, text("It came from the moon. [Source 1] "));
    await page.getByText("from the moon").waitFor();
    await page.getByRole("button", { name: "Stop", exact: true }).click();
    await play.stopped;
    await page.locator(".notice", { hasText: "Stopping: what was read is being checked." }).waitFor();
    play.send({ ...DONE, outcome: "partial", stop_reason: "interrupted" });
    play.end();
    await page.locator(".outcome", { hasText: "Partial answer: the run was stopped" }).waitFor();
    expect(await answer(page)).not.toContain("moon");
    expect(await page.locator(".chip").allInnerTexts()).toEqual(["[1]", "[1]", "[2~]", "[3!]", "no source"]);
    expect(await page.locator(".unchecked-draft").count()).toBe(0);
  });

  test.each(["pressed twice", "not heard by the server"])(
    "a stop that is %s closes the connection, and the draft that stays is marked as unchecked",
    async (how) => {
      const page = await open();
      const play = await ask(page);
      if (how.startsWith("not")) play.stop = () => 404;
      play.send(CALLS[0], text("It came from the moon. [Source 1] It is old. [Source 2]"));
      await page.getByText("from the moon").waitFor();
      expect(await page.locator(".unchecked-draft").count()).toBe(0);
      await page.getByRole("button", { name: "Stop", exact: true }).click();
      await play.stopped;
      if (how === "pressed twice") await page.getByRole("button", { name: "Stop at once" }).click();
      await play.gone;
      await uncheckedDraft(page, "Stopped");
      await page.reload();
      await uncheckedDraft(page, "Stopped");
    },
  );

  test("a run that is stopped before the server has begun it ends at once", async () => {
    const page = await open();
    const play = await ask(page);
    await page.getByRole("button", { name: "Stop", exact: true }).click();
    await play.gone;
    expect(await page.locator(".outcome").innerText()).toBe("Stopped");
  });

  test("stopped at once, the answer is what had arrived, and the question can be asked again", async () => {
    const page = await open();
    const play = await ask(page);
    play.send(CALLS[0], text("Half an answ"));
    await page.getByText("Half an answ").waitFor();
    await page.getByRole("button", { name: "Stop", exact: true }).click();
    await page.getByRole("button", { name: "Stop at once" }).click();
    await play.gone;
    await page.locator(".outcome", { hasText: "Stopped" }).waitFor();
    expect(await answer(page)).toBe("Half an answ");
    expect(await page.locator(".pill.unfinished").count()).toBe(1);
    await page.getByRole("button", { name: "Ask again" }).click();
    expect((await server.next()).messages).toEqual([{ role: "user", content: ENGLISH_QUESTION }]);
    expect(await page.locator(".turn").count()).toBe(1);
  });

  test.each(["ended without done", "cut"])("a stream that is %s is shown as a broken connection", async (how) => {
    const page = await open();
    const play = await ask(page);
    play.send(text("Half an answ"));
    await page.getByText("Half an answ").waitFor();
    if (how === "cut") play.cut();
    else play.end();
    await page.locator(".fault", { hasText: "The connection broke" }).waitFor();
    expect(await answer(page)).toBe("Half an answ");
    await uncheckedDraft(page, "Connection lost");
  });

  test("bytes cut within characters, comments, unknown events and a missing last blank line do no harm", async () => {
    const page = await open();
    const play = await ask(page);
    const bytes = new TextEncoder().encode(
      `\ufeff: ping\r\n\r\ndata: {"type":"weather"}\r\rdata: {"type":\ndata: "text","content":"größer 😀"}\n\n:x\ndata: ${JSON.stringify({ ...DONE, summary: "größer 😀" })}`,
    );
    // Every byte in a chunk of its own would be gathered by the sockets; a few cuts at telling places are not.
    for (let at = 0; at < bytes.length; at += 37) play.raw(bytes.slice(at, at + 37));
    play.end();
    await page.locator(".turn[data-status=done]").waitFor();
    expect(await answer(page)).toBe("größer 😀");
  });

  test("a refusal before the run says why, and the question can be asked again", async () => {
    const page = await open();
    (await ask(page)).refuse(429, "Two runs are going on already. Try again when one has ended.");
    await page.locator(".fault", { hasText: "Two runs are going on already" }).waitFor();
    await page.getByRole("button", { name: "Ask again" }).click();
    await server.next();
  });

  test("a question is not sent twice, nor while an input method composes", async () => {
    const page = await open();
    const field = page.getByLabel("Your question");
    await field.fill("ka");
    await field.dispatchEvent("keydown", { key: "Enter", isComposing: true });
    expect(await page.locator(".turn").count()).toBe(0);
    await field.press("Shift+Enter");
    expect(await field.inputValue()).toBe("ka\n");
    await field.press("Enter");
    await server.next();
    await field.fill("second");
    await field.press("Enter");
    expect(await page.locator(".turn").count()).toBe(1);
    expect(await field.inputValue()).toBe("second");
  });
});

describe("evidence", () => {
  test("a citation opens its exact passage with the verdict; Escape closes it and gives the focus back", async () => {
    const page = await open();
    await answered(page);
    const chip = page.locator(".chip.matched").first();
    await chip.click();
    const panel = page.getByRole("complementary", { name: "RAPTOR: a tree of summaries" });
    await panel.locator(".verdict", { hasText: "matched to a passage" }).waitFor();
    expect(await panel.locator(".passage blockquote").innerText()).toContain(
      "repeats the process until a tree of summaries",
    );
    expect(await panel.getByRole("link", { name: "Open the page at these words" }).getAttribute("href")).toContain(
      "#:~:text=RAPTOR%20clusters",
    );
    expect(await page.evaluate(() => document.activeElement?.id)).toBe("panel-title");
    expect(await page.locator(".statement.open").first().innerText()).toContain("RAPTOR");
    await page.keyboard.press("Escape");
    await panel.waitFor({ state: "detached" });
    expect(await page.evaluate(() => document.activeElement?.textContent)).toBe("[1]");
    expect(await page.evaluate(() => document.activeElement?.tagName)).toBe("BUTTON");
  });

  test("verdicts that are not good say why, what is missing and where it does stand", async () => {
    const page = await open();
    await answered(page);
    await page.locator(".chip.partly").click();
    await page.getByText("Not on the page: neighbours").waitFor();
    await page.locator(".chip.not_found").click();
    await page.getByText("The closest words on the page").waitFor();
    await page.locator(".panel").getByText("p. 3", { exact: true }).waitFor();
    await page.getByRole("button", { name: "See source 1" }).click();
    await page.getByRole("heading", { name: "RAPTOR: a tree of summaries" }).waitFor();
    await page.locator(".chip.uncited").click();
    await page.getByText("No source is cited").first().waitFor();
  });

  test("all citations can be walked through without the mouse", async () => {
    const page = await open();
    await answered(page);
    await page.locator(".chip").first().focus();
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "Next citation" }).focus();
    for (const place of [2, 3, 4, 5, 1]) {
      await page.keyboard.press("Enter");
      await page.getByText(`Citation ${place} of 5`).waitFor();
    }
    await page.getByRole("button", { name: "Previous citation" }).press("Enter");
    await page.getByText("Citation 5 of 5: no citation").waitFor();
  });

  test("a source opened from the draft stays open under its final number", async () => {
    const page = await open();
    const play = await ask(page);
    play.send(...CALLS, READ, SOURCES, ...DRAFT.map(text));
    await page.locator(".chip.draft", { hasText: "[2]" }).first().click();
    const panel = page.locator(".panel");
    await panel.getByText("The answer is checked against this source when it is complete.").waitFor();
    expect(await panel.locator(".panel-over").innerText()).toBe("Source 2");
    play.send(DONE);
    play.end();
    await panel.getByText("Source 1", { exact: true }).waitFor();
    await panel.getByRole("heading", { name: "RAPTOR: a tree of summaries" }).waitFor();
  });

  test("a source card shows all its passages and the sentences that cite it", async () => {
    const page = await open();
    await answered(page);
    await page.locator(".card").first().click();
    expect(await page.locator(".panel .passage").count()).toBe(2);
    await page.locator(".citing button").nth(1).click();
    await page.getByText("Citation 2 of 5").waitFor();
  });
});

describe("scrolling", () => {
  const long = Array.from({ length: 40 }, (_, index) =>
    text(`Paragraph ${index} of a long draft, which says little. [Source 1]\n\n`),
  );

  test("the draft gives way to the final answer without a jump for who reads in its middle", async () => {
    const page = await open();
    const play = await ask(page);
    play.send(SOURCES, ...long);
    await page.getByText("Paragraph 39").waitFor();
    const top = (paragraph: number) =>
      page
        .locator(".prose > p")
        .nth(paragraph)
        .evaluate((one) => one.getBoundingClientRect().top);
    await page
      .locator(".prose > p")
      .nth(20)
      .evaluate((one) => one.scrollIntoView({ block: "center" }));
    await page.locator(".to-end").waitFor();
    const before = await top(20);
    play.send(text("One more. [Source 1]\n\n"));
    await page.getByText("One more.").waitFor();
    expect(await top(20)).toBeCloseTo(before, 0);
    // The final answer is a different text above and below what is read.
    const summary = long.map(({ content }, index) =>
      index < 5
        ? content.replace(
            "says little.",
            "says little, and that twice, in more words than the draft had for it, so that the paragraph is longer.",
          )
        : content,
    );
    play.send({ ...DONE, summary: summary.join("") });
    play.end();
    await page.locator(".turn[data-status=done]").waitFor();
    expect(await top(20)).toBeCloseTo(before, 0);
  });

  test("follows the text while its end is in view, and again after the button for it", async () => {
    const page = await open();
    const play = await ask(page);
    const rest = () => page.locator(".scroller").evaluate((box) => box.scrollHeight - box.scrollTop - box.clientHeight);
    for (let at = 0; at < long.length; at += 4) {
      play.send(...long.slice(at, at + 4));
      await page.getByText(`Paragraph ${at + 3} `).waitFor();
      expect(await rest()).toBeLessThan(2);
    }
    await page.locator(".scroller").evaluate((box) => box.scrollTo(0, 100));
    await page.locator(".to-end").click();
    play.send(text("The end.\n\n"));
    await page.getByText("The end.").waitFor();
    await expect.poll(rest).toBeLessThan(2);
    // The last words stay where they are when the sources come in below them.
    const last = page.locator(".prose > p").last();
    const before = await last.evaluate((one) => one.getBoundingClientRect().bottom);
    play.send({ ...DONE, summary: [...long, text("The end.\n\n")].map(({ content }) => content).join("") });
    play.end();
    await page.locator(".turn[data-status=done]").waitFor();
    expect(await last.evaluate((one) => one.getBoundingClientRect().bottom)).toBeCloseTo(before, 0);
  });
});

test("an answer that comes all at once is shown from its question on", async () => {
  const page = await open();
  await answered(page);
  const play = await ask(page, "And at length?");
  const paragraphs = Array.from({ length: 30 }, (_, index) => `Paragraph ${index} of a long answer. [Source 1]\n\n`);
  play.send({ ...DONE, summary: paragraphs.join("") });
  play.end();
  await page.locator(".turn:last-of-type[data-status=done]").waitFor();
  const [question, box] = [page.getByRole("heading", { name: "And at length?" }), page.locator(".scroller")];
  const top = async (one: typeof box) => one.evaluate((element) => element.getBoundingClientRect().top);
  expect((await top(question)) - (await top(box))).toBeGreaterThan(0);
  expect((await top(question)) - (await top(box))).toBeLessThan(60);
});

describe("what is kept", () => {
  test("the conversation survives a reload, with its evidence", async () => {
    const page = await open();
    await answered(page);
    await page.reload();
    expect(await answer(page)).toContain("by 20 %. [1]");
    await page.locator(".chip.partly").click();
    await page.getByText("Not on the page: neighbours").waitFor();
  });

  test("a run that was streaming is shown as interrupted, with what had arrived", async () => {
    const page = await open();
    const play = await ask(page);
    play.send(CALLS[0], text("Half an answ"));
    await page.getByText("Half an answ").waitFor();
    await page.reload();
    await play.gone;
    await uncheckedDraft(page, "Interrupted");
    expect(await answer(page)).toBe("Half an answ");
    expect(await page.locator(".cursor").count()).toBe(0);
  });

  test("a long conversation opens with its last turns, the earlier ones on demand", async () => {
    const page = await open();
    await page.evaluate(() => {
      const turns = Array.from({ length: 14 }, (_, index) => ({
        id: `t${index}`,
        question: `Question ${index}`,
        status: "done",
        result: { summary: "An answer of some length. ".repeat(40), outcome: "answered" },
      }));
      localStorage.setItem("m3.conversation", JSON.stringify({ version: 1, turns }));
    });
    await page.reload();
    await page.getByRole("heading", { name: "Question 13" }).waitFor();
    expect(await page.locator(".turn").count()).toBe(10);
    await page.locator(".scroller").evaluate((box) => box.scrollTo(0, 0));
    const oldest = page.getByRole("heading", { name: "Question 4" });
    const before = await oldest.evaluate((one) => one.getBoundingClientRect().top);
    await page.getByRole("button", { name: "4 earlier questions" }).click();
    expect(await page.locator(".turn").count()).toBe(14);
    expect(await oldest.evaluate((one) => one.getBoundingClientRect().top)).toBeCloseTo(before, 0);
    await page.getByRole("button", { name: "New conversation" }).click();
    await ask(page, "First");
    await page.getByRole("button", { name: "Stop" }).click();
    await ask(page, "Second");
    expect(await page.locator(".turn").count()).toBe(2);
  });

  test("each tab keeps its own conversation, and a new one begins where the last one is", async () => {
    const page = await open();
    await answered(page);
    const stored = () => page.evaluate(() => Object.values(localStorage).join());
    await expect.poll(stored).toContain('"status":"done"');
    const second = await page.context().newPage();
    await second.goto(server.url);
    const questions = (tab: Page) => tab.locator(".question").allInnerTexts();
    const asked = async (tab: Page, question: string) => {
      const play = await ask(tab, question);
      play.send({ ...DONE, summary: `About ${question}` });
      play.end();
      await tab.getByText(`About ${question}`).waitFor();
      await expect.poll(stored).toContain(`About ${question}`);
    };
    expect(await questions(second)).toEqual([ENGLISH_QUESTION]);
    await asked(second, "Second?");
    await asked(page, "First?");
    await asked(second, "Again?");
    for (const tab of [page, second, page]) await tab.reload();
    expect(await questions(page)).toEqual([ENGLISH_QUESTION, "First?"]);
    expect(await questions(second)).toEqual([ENGLISH_QUESTION, "Second?", "Again?"]);
    const third = await page.context().newPage();
    await third.goto(server.url);
    expect(await questions(third)).toHaveLength(3);
    await page.getByRole("button", { name: "New conversation" }).click();
    await page.reload();
    await page.getByRole("heading", { name: "What would you like to know?" }).waitFor();
    await second.reload();
    expect(await questions(second)).toEqual([ENGLISH_QUESTION, "Second?", "Again?"]);
  });

  test("a very long question has a short heading and can be read whole", async () => {
    const page = await open();
    const question = "And what is said about this part of it? ".repeat(120).trim();
    const play = await ask(page, question);
    expect(play.messages).toEqual([{ role: "user", content: question }]);
    play.send(DONE);
    play.end();
    await page.locator(".turn[data-status=done]").waitFor();
    const heading = await page.locator(".question").innerText();
    expect(heading.length).toBeLessThanOrEqual(201);
    expect(heading).toMatch(/^And what .*…$/);
    const whole = page.locator(".whole-question p");
    expect(await whole.isVisible()).toBe(false);
    await page.getByText("The whole question").click();
    expect(await whole.innerText()).toBe(question);
  });

  test("corrupt storage is an empty conversation", async () => {
    const page = await open();
    await answered(page);
    await page.reload(); // a page that has only read the conversation writes nothing when it is left
    await page.locator(".turn").waitFor();
    await page.evaluate(() => {
      for (const key of Object.keys(localStorage)) localStorage.setItem(key, '{"version":1,"turns":[{"id":');
    });
    await page.reload();
    await page.getByRole("heading", { name: "What would you like to know?" }).waitFor();
  });

  test("a new conversation can be taken back", async () => {
    const page = await open();
    await answered(page);
    await page.getByRole("button", { name: "New conversation" }).click();
    await page.getByRole("heading", { name: "What would you like to know?" }).waitFor();
    await page.getByRole("button", { name: "Undo" }).click();
    expect(await answer(page)).toContain("by 20 %. [1]");
  });

  test("the theme follows the system until one is chosen, and the choice stays", async () => {
    const page = await open({ colorScheme: "dark" });
    const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const dark = await background();
    await page.getByRole("button", { name: "Switch to the light theme" }).click();
    const light = await background();
    expect(light).not.toBe(dark);
    await page.reload();
    expect(await background()).toBe(light);
  });
});

describe("files", () => {
  const pdf = (name: string) => ({ name, mimeType: "application/pdf", buffer: Buffer.from("%PDF-1.4") });

  test("are listed on start, added with their progress, asked about and deleted after a second thought", async () => {
    server.files.set("notes.md", { name: "notes.md", size: 1234, type: "md", uploaded_at: "2026-11-30T12:00:00Z" });
    const page = await open();
    const stored = page.getByRole("list", { name: "Uploaded files" });
    await stored.getByText("notes.md").waitFor();
    let release: (value?: unknown) => void = () => undefined;
    server.uploadGate = new Promise((resolve) => (release = resolve));
    await page.locator("input[type=file]").setInputFiles([pdf("Größe (1).pdf")]);
    await page.getByRole("progressbar", { name: "Upload of Größe (1).pdf" }).waitFor();
    release();
    await stored.getByText("Größe (1).pdf").waitFor();

    await page.getByRole("button", { name: "Ask about Größe (1).pdf" }).click();
    expect(await page.getByLabel("Your question").inputValue()).toContain("Größe (1).pdf");

    await page.getByRole("button", { name: "Delete Größe (1).pdf" }).click();
    await page.getByRole("button", { name: "Keep" }).click();
    expect(server.files.size).toBe(2);
    await page.getByRole("button", { name: "Delete Größe (1).pdf" }).click();
    await page.getByRole("button", { name: "Delete", exact: true }).click();
    await stored.getByText("Größe (1).pdf").waitFor({ state: "detached" });
    expect([...server.files.keys()]).toEqual(["notes.md"]);
  });

  test("that cannot be read are refused with the reason, by the page or by the server", async () => {
    const page = await open();
    await page.locator("input[type=file]").setInputFiles([pdf("tool.exe"), pdf("broken.pdf"), pdf("fine.pdf")]);
    const uploads = page.getByRole("list", { name: "Being uploaded" });
    await uploads.getByText("Only .pdf, .txt, .md, .csv, .html files can be read.").waitFor();
    await uploads.getByText("broken.pdf is not a PDF.").waitFor();
    await page.getByRole("list", { name: "Uploaded files" }).getByText("fine.pdf").waitFor();
    await page.getByRole("button", { name: "Dismiss tool.exe" }).click();
    await page.getByRole("button", { name: "Dismiss broken.pdf" }).click();
    await uploads.waitFor({ state: "detached" });
  });

  test("can be dropped anywhere on the page", async () => {
    const page = await open();
    const transfer = await page.evaluateHandle(() => {
      const data = new DataTransfer();
      data.items.add(new File(["a,b\n1,2\n"], "table.csv", { type: "text/csv" }));
      return data;
    });
    await page.locator(".scroller").dispatchEvent("dragover", { dataTransfer: transfer });
    await page.getByText("Drop to add to your files").waitFor();
    await page.locator(".scroller").dispatchEvent("drop", { dataTransfer: transfer });
    await page.getByRole("list", { name: "Uploaded files" }).getByText("table.csv").waitFor();
    expect(await page.getByText("Drop to add to your files").count()).toBe(0);
  });
});

describe("the server", () => {
  test("an offline mock model is announced above everything", async () => {
    server.health = {
      llm: { provider: "mock", model: "mock-extractive", configured: true, mock: true },
      warnings: ["OFFLINE SAMPLE CORPUS: the web is not searched."],
    };
    const page = await open();
    const note = page.getByRole("note", { name: "About this server" });
    await note.getByText("Offline mock model.").waitFor();
    await note.getByRole("button", { name: "More" }).click();
    await note.getByText("the web is not searched").waitFor();
  });

  test("a server that is away is announced, and found again", async () => {
    const page = await open();
    await page.getByLabel("Your question").waitFor();
    const context = page.context();
    await context.setOffline(true);
    await page.getByLabel("Your question").fill("Why?");
    await page.keyboard.press("Enter");
    await page.locator(".fault", { hasText: "The server could not be reached" }).waitFor();
    await context.setOffline(false);
    await page.getByRole("button", { name: "Ask again" }).click();
    expect((await server.next()).messages).toEqual([{ role: "user", content: "Why?" }]);
  });

  test("a token is asked for once, refused when wrong, sent with every request and forgotten with the tab", async () => {
    server.token = "open sesame";
    server.files.set("notes.md", { name: "notes.md", size: 1, type: "md", uploaded_at: "" });
    const page = await open();
    const dialog = page.getByRole("dialog", { name: "Access token" });
    await dialog.getByLabel("Token").fill("wrong");
    await dialog.getByLabel("Token").press("Enter");
    await dialog.getByText("The server did not accept that token.").waitFor();
    await dialog.getByLabel("Token").fill("open sesame");
    await dialog.getByLabel("Token").press("Enter");
    await page.getByText("notes.md", { exact: true }).waitFor();
    expect((await ask(page)).headers.authorization).toBe("Bearer open sesame");
    expect(await page.evaluate(() => JSON.stringify(localStorage))).not.toContain("sesame");
    await page.reload();
    await page.getByText("notes.md", { exact: true }).waitFor();
    expect(await dialog.count()).toBe(0);
  });
});

describe("for everybody", () => {
  test.each([
    ["wide, light", { colorScheme: "light" as const }],
    ["wide, dark", { colorScheme: "dark" as const }],
    ["360 pixels, light", { ...PHONE, colorScheme: "light" as const }],
    ["360 pixels, dark", { ...PHONE, colorScheme: "dark" as const }],
  ])("no serious finding of axe in any state: %s", async (_, options) => {
    server.health = {
      llm: { provider: "mock", model: "m", configured: true, mock: true },
      warnings: ["The web is not searched."],
    };
    server.files.set("notes.md", { name: "notes.md", size: 1234, type: "md", uploaded_at: "2026-11-30T12:00:00Z" });
    const page = await open(options);
    const found: Record<string, string[]> = {};
    const look = async (state: string) => {
      const faults = await accessibilityFaults(page);
      if (faults.length > 0) found[state] = faults;
    };
    await page.getByRole("note", { name: "About this server" }).waitFor();
    await look("empty");
    if ("viewport" in options) {
      await page.getByRole("button", { name: "Your files" }).click();
      await page.getByRole("dialog", { name: "Your files" }).waitFor();
      await look("drawer open");
      await page.keyboard.press("Escape");
    }
    const play = await ask(page);
    play.send(...CALLS, { type: "notice", content: "Waiting 2 s." });
    await page.locator(".notice").waitFor();
    await look("searching");
    play.send(READ, SOURCES, ...DRAFT.map(text));
    await page.getByText("Both are popular").waitFor();
    await look("streaming");
    play.send(DONE);
    play.end();
    await page.locator(".turn[data-status=done]").waitFor();
    await page.locator(".remarks summary").click();
    await page.locator(".pill").nth(1).click();
    await look("done");
    for (const verdict of ["matched", "partly", "not_found", "uncited"]) {
      await page.locator(`.chip.${verdict}`).first().click();
      await look(`panel open: ${verdict}`);
      await page.keyboard.press("Escape");
    }
    await page.locator(".card").first().click();
    await look("panel open: a source");
    await page.keyboard.press("Escape");
    const second = await ask(page, "Second");
    second.send(text("Half an answ"));
    await page.getByText("Half an answ").waitFor();
    second.cut();
    await page.locator(".fault").waitFor();
    await look("broken");
    expect(found).toEqual({});
  });

  test("at 360 pixels nothing is wider than the screen", async () => {
    const page = await open(PHONE);
    const play = await ask(page, `${"very".repeat(60)} long?`);
    const wide = `| a | b | c | d |\n|---|---|---|---|\n| ${"one two ".repeat(9)} | ${"x".repeat(90)} | c | d |\n\n\`\`\`\n${"code ".repeat(60)}\n\`\`\`\n\nhttps://example.org/${"path/".repeat(30)}`;
    play.send(...CALLS, READ, { ...DONE, summary: `${DONE.summary}\n\n${wide}` });
    play.end();
    await page.locator(".turn[data-status=done]").waitFor();
    const tooWide = await page.evaluate(() =>
      [...document.querySelectorAll<HTMLElement>(".turn, .turn > *, .prose > *, .bar, .composer")]
        .filter((one) => one.getBoundingClientRect().right > innerWidth + 1 || one.getBoundingClientRect().left < 0)
        .map((one) => one.className || one.tagName),
    );
    expect(tooWide).toEqual([]);
    expect(await page.locator(".scroller").evaluate((box) => box.scrollWidth <= box.clientWidth)).toBe(true);
    // Phones make the whole page smaller for what is cut off but still reaches beyond the edge.
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(360);
  });

  test("at 360 pixels the files are a drawer: opened it has the focus, closed the button has it again", async () => {
    server.files.set("notes.md", { name: "notes.md", size: 1, type: "md", uploaded_at: "" });
    const page = await open(PHONE);
    const files = page.getByRole("dialog", { name: "Your files" });
    expect(await files.count()).toBe(0);
    await page.getByRole("button", { name: "Your files" }).press("Enter");
    await files.waitFor();
    expect(await page.evaluate(() => document.activeElement?.id)).toBe("files-title");
    // Nothing behind it can be reached.
    for (let i = 0; i < 8; i++) {
      await page.keyboard.press("Tab");
      expect(
        await page.evaluate(
          () => document.activeElement === document.body || !!document.activeElement?.closest(".files"),
        ),
      ).toBe(true);
    }
    await page.keyboard.press("Escape");
    await files.waitFor({ state: "detached" });
    const focused = () => page.evaluate(() => document.activeElement?.id || document.activeElement?.className);
    expect(await focused()).toBe("round");
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "Ask about notes.md" }).click();
    expect(await focused()).toBe("question");
  });

  test("at 360 pixels the evidence covers the page and gives the focus back to its citation", async () => {
    const page = await open(PHONE);
    await answered(page);
    await page.locator(".chip.partly").click();
    const panel = page.getByRole("dialog", { name: "HyDE: searching" });
    await panel.waitFor();
    await page.getByRole("button", { name: "Close the evidence" }).click();
    await panel.waitFor({ state: "detached" });
    expect(await page.evaluate(() => document.activeElement?.textContent)).toBe("[2~]");
  });

  test("a screen reader is told of the steps and the end, not of each word", async () => {
    const page = await open();
    const status = page.locator("p[role=status][aria-live=polite]");
    const play = await ask(page);
    play.send(CALLS[0]);
    await expect.poll(() => status.textContent()).toBe("Searching RAPTOR retrieval tree of summaries.");
    play.send(CALLS[1], text("Half"));
    await expect.poll(() => status.textContent()).toBe("The answer is being written.");
    expect(await page.locator(".turn").getAttribute("aria-busy")).toBe("true");
    play.send(DONE);
    play.end();
    await expect.poll(() => status.textContent()).toContain("Answered. 5 statements, 4 cited");
    expect(await page.locator(".turn").getAttribute("aria-busy")).toBe("false");
  });

  test("nothing moves for who asks for less motion", async () => {
    const page = await open({ reducedMotion: "reduce" });
    await ask(page);
    await page.locator(".cursor").waitFor();
    expect(await page.evaluate(() => document.getAnimations().length)).toBe(0);
  });
});
