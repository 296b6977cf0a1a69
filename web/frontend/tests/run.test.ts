import { expect, test } from "vitest";

import { type ChatEvent, readEvent } from "../src/contract";
import {
  answerText,
  applyEvent,
  asMarkdown,
  closed,
  headingOf,
  isUnchecked,
  messagesFor,
  MOST_HISTORY,
  newTurn,
  outcomeLabel,
  statusSentence,
  stepWords,
  type Turn,
  UNCHECKED_DRAFT,
} from "../src/run";

const event = (json: object): ChatEvent => {
  const read = readEvent(JSON.stringify(json));
  if (!read) throw new Error("no event");
  return read;
};
const run = (...events: object[]): Turn =>
  events.map(event).reduce(applyEvent, newTurn("t", "Why?", "2026-11-30T12:00:00Z"));
const call = { type: "tool_call", id: "c1", name: "search_web", arguments: { query: "tea" } };
const done = { type: "done", outcome: "answered", summary: "Because.", sources: [], checks: [], counts: {} };

test("a tool call is running until its observation comes", () => {
  expect(run(call).steps).toMatchObject([{ id: "c1", state: "running" }]);
  const seen = {
    type: "observation",
    id: "c1",
    name: "search_web",
    ok: true,
    content: "5 results",
    items: [{ title: "T", url: "https://a.example", status: "" }],
  };
  expect(run(call, seen).steps).toMatchObject([
    { id: "c1", state: "ok", content: "5 results", arguments: { query: "tea" }, items: [{ title: "T" }] },
  ]);
  expect(run(call, { ...seen, ok: false }).steps).toMatchObject([{ state: "failed" }]);
});

test("a notice is shown until the run goes on, and kept", () => {
  const waiting = run(call, { type: "notice", content: "Waiting 2 s." });
  expect(waiting.notice).toBe("Waiting 2 s.");
  for (const next of [call, { type: "text", content: "Be" }])
    expect(applyEvent(waiting, event(next))).toMatchObject({ notice: "", notices: ["Waiting 2 s."] });
});

test("an observation without its call is shown all the same", () => {
  expect(run({ type: "observation", id: "c9", name: "fetch_page", ok: true, content: "1 page" }).steps).toMatchObject([
    { id: "c9", state: "ok" },
  ]);
});

test("text is appended, and the final summary takes its place", () => {
  const draft = run({ type: "text", content: "Be" }, { type: "text", content: "cos." });
  expect(answerText(draft)).toBe("Becos.");
  expect(answerText(applyEvent(draft, event(done)))).toBe("Because.");
});

test("an empty final summary takes the draft's place too", () => {
  expect(answerText(run({ type: "text", content: "Wrong." }, { ...done, outcome: "abstained", summary: "" }))).toBe("");
});

test("nothing changes a turn after its end", () => {
  const turn = run(done);
  expect(applyEvent(turn, event({ type: "text", content: "more" }))).toBe(turn);
  expect(closed(turn, "broken", "x")).toBe(turn);
});

test("a run that breaks off keeps what arrived and ends its open steps", () => {
  const turn = closed(run(call, { type: "text", content: "Be" }), "broken", "gone");
  expect(turn).toMatchObject({ status: "broken", draft: "Be", error: "gone", steps: [{ state: "unfinished" }] });
});

test.each<[string, unknown]>([
  ["no JSON", "{"],
  ["an unknown type", { type: "weather" }],
  ["no object", []],
  ["no type", {}],
  ["null", null],
])("an event that is %s is passed over", (_, json) => {
  expect(readEvent(typeof json === "string" ? json : JSON.stringify(json))).toBeNull();
});

test("fields that are missing or of another type become empty ones", () => {
  expect(
    event({
      type: "done",
      outcome: "wonderful",
      summary: 4,
      sources: [{}, null, { number: 2, passages: [{}, 5] }],
      checks: [{ verdict: "odd" }],
      counts: [],
    }),
  ).toMatchObject({
    result: {
      outcome: "failed",
      summary: "",
      sources: [{ number: 2, passages: [] }],
      checks: [],
      counts: {},
      warnings: [],
    },
  });
});

test.each<[object, string]>([
  [{}, "Answered"],
  [{ no_sources_used: true }, "From the conversation, no source checked"],
  [{ outcome: "partial", stop_reason: "max_wall_clock_time" }, "Partial answer: time was up"],
  [{ outcome: "abstained" }, "No answer found"],
  [{ outcome: "failed", stop_reason: "provider_error" }, "Failed: the language model could not be reached"],
])("how a run ended: %j", (more, words) => {
  const label = outcomeLabel(run({ ...done, ...more }));
  expect([label?.label, label?.detail].filter(Boolean).join(": ")).toBe(words);
});

test.each<[object, string]>([
  [call, "Searching tea"],
  [{ ...call, name: "fetch_page", arguments: { url: "https://www.example.org/a" } }, "Reading example.org"],
  [{ ...call, name: "fetch_page", arguments: { results: ["R1", "R2"] } }, "Reading 2 pages"],
  [{ ...call, name: "extract_pdf_text", arguments: { name: "report.pdf", first_page: 3 } }, "Reading report.pdf"],
  [{ ...call, name: "list_uploaded_files", arguments: {} }, "Looking at your files"],
  [{ ...call, name: "extract", arguments: { source: 2, question: "x" } }, "Looking closer at source 2"],
  [{ ...call, name: "new_tool", arguments: {} }, "new tool"],
])("what is being done: %j", (json, words) => {
  const step = run(json).steps[0];
  const { verb, object } = step ? stepWords(step) : { verb: "", object: "" };
  expect(`${verb} ${object}`.trim()).toBe(words);
});

test("a screen reader hears each step and the end, not the words of the draft", () => {
  expect(statusSentence(run())).toBe("Working on the question.");
  expect(statusSentence(run(call))).toBe("Searching tea.");
  expect(statusSentence(run(call, { type: "text", content: "Be" }))).toBe(
    statusSentence(run(call, { type: "text", content: "Because" })),
  );
  expect(statusSentence(run({ ...done, counts_line: "1 statement, 1 cited" }))).toBe("Answered. 1 statement, 1 cited");
});

test("the copied answer is Markdown with bare numbers and its sources", () => {
  const sources = [
    { number: 1, title: "Tea", url: "https://a.example/tea", published: "2024-01-31" },
    { number: 2, kind: "file", title: "Report", url: "report.pdf", label: "report.pdf, p. 3" },
  ];
  expect(asMarkdown(run({ ...done, summary: "Tea is old [Source 1, 2].", sources }))).toBe(
    "# Why?\n\nTea is old [1][2].\n\n## Sources\n\n1. Tea. 2024-01-31. https://a.example/tea\n2. Report. report.pdf, p. 3\n",
  );
  expect(asMarkdown(run({ ...done, summary: "Short." }))).toBe("# Why?\n\nShort.\n");
});

test("a draft that nothing will check any more is one, and its copy says so", () => {
  const drafted = run({ type: "text", content: "Half [Source 1]" });
  for (const status of ["stopped", "broken", "interrupted"] as const) {
    const ended = closed(drafted, status);
    expect(isUnchecked(ended)).toBe(true);
    expect(asMarkdown(ended)).toBe(`# Why?\n\n> **${UNCHECKED_DRAFT}**\n\nHalf [1]\n`);
  }
  expect(isUnchecked(drafted)).toBe(false); // it is still being written
  expect(isUnchecked(applyEvent(drafted, event(done)))).toBe(false);
  expect(isUnchecked(closed(run(call), "stopped"))).toBe(false);
});

test.each([
  ["words", "And what of part number one? ".repeat(180)],
  ["lines", "And what of it?\n".repeat(300)],
  ["one word", "x".repeat(5_000)],
  ["surrogate pairs", "😀".repeat(2_500)],
])("a very long question has a short heading of one line, and stays whole: %s", (_, question) => {
  const { heading, whole } = headingOf(question);
  expect(heading.length).toBeLessThanOrEqual(201);
  expect(heading).not.toContain("\n");
  expect(heading).not.toMatch(/[\ud800-\udbff](?![\udc00-\udfff])/); // no half of a character
  expect(whole.startsWith(heading.slice(0, -1))).toBe(true);
  expect(whole).toBe(question.trim().replaceAll("\n", " "));
  const copied = asMarkdown({ ...run(done), question });
  expect(copied.split("\n")[0]).toBe(`# ${heading}`);
  expect(copied.split(whole)).toHaveLength(2);
});

test("an ordinary question is its own heading", () => {
  for (const question of ["Why?", "Two\nlines", "x ".repeat(100).trim()])
    expect(headingOf(question)).toEqual({ heading: question, whole: "" });
});

test("a long conversation is sent without its oldest turns", () => {
  const turns = Array.from({ length: 9 }, (_, index) => ({
    ...run(done),
    question: `${index}${"x".repeat(MOST_HISTORY / 4)}`,
  }));
  const sent = messagesFor(turns, "And?");
  expect(sent.map(({ content }) => content.slice(0, 4))).toEqual([
    "6xxx",
    "Beca",
    "7xxx",
    "Beca",
    "8xxx",
    "Beca",
    "And?",
  ]);
});

test("a follow-up carries the turns that brought an answer, the final one where there is one", () => {
  const turns = [
    run({ type: "text", content: "draft" }, done),
    closed(run(), "refused", "busy"),
    closed(run({ type: "text", content: "half" }), "stopped"),
  ];
  expect(messagesFor(turns, "And?")).toEqual([
    { role: "user", content: "Why?" },
    { role: "assistant", content: "Because." },
    { role: "user", content: "Why?" },
    { role: "assistant", content: "half" },
    { role: "user", content: "And?" },
  ]);
});
