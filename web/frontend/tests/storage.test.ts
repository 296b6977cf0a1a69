import { expect, test } from "vitest";

import { readEvent } from "../src/contract";
import { applyEvent, newTurn, type Turn } from "../src/run";
import { loadTurns, MOST_CHARACTERS, MOST_TURNS, saveTurns } from "../src/storage";

/** A Storage in memory that takes so many characters. */
class Memory implements Storage {
  readonly items = new Map<string, string>();
  constructor(private readonly quota = Infinity) {}
  get length(): number {
    return this.items.size;
  }
  clear(): void {
    this.items.clear();
  }
  getItem(key: string): string | null {
    return this.items.get(key) ?? null;
  }
  key(index: number): string | null {
    return [...this.items.keys()][index] ?? null;
  }
  removeItem(key: string): void {
    this.items.delete(key);
  }
  setItem(key: string, value: string): void {
    if (value.length > this.quota) throw new DOMException("full", "QuotaExceededError");
    this.items.set(key, value);
  }
}

const turn = (id: string, question = "Why?"): Turn => newTurn(id, question, "2026-11-30T12:00:00Z");
const finished = (id: string, question = "Why?"): Turn => ({ ...turn(id, question), status: "done" });
const key = (storage: Memory): string => storage.key(0) ?? "";

test("a conversation comes back as it was", () => {
  const storage = new Memory();
  const events = [
    { type: "tool_call", id: "c1", name: "search_web", arguments: { query: "tea" } },
    {
      type: "observation",
      id: "c1",
      name: "search_web",
      ok: true,
      content: "1 result",
      items: [{ title: "T", url: "https://a.example", status: "ok" }],
    },
    { type: "notice", content: "waiting" },
    { type: "text", content: "draft" },
    {
      type: "done",
      outcome: "answered",
      stop_reason: "agent_finished",
      summary: "Because [Source 1].",
      sources: [
        {
          number: 1,
          kind: "file",
          label: "a.pdf, p. 3",
          title: "A",
          url: "a",
          passages: [{ start: 0, end: 3, quote: "abc", page_number: 3, link: "" }],
          verdicts: { matched: 1 },
        },
      ],
      checks: [
        { claim: "Because", source: 1, verdict: "matched", start: 0, end: 19, missing: ["x"], better_source: 2 },
      ],
      counts: { statements: 1 },
      ledger: [{ kind: "fetch", target: "a", status: "ok", detail: "" }],
    },
  ];
  const turns = [
    events
      .map((json) => readEvent(JSON.stringify(json)))
      .reduce((now, event) => (event ? applyEvent(now, event) : now), turn("a")),
  ];
  expect(saveTurns(turns, storage)).toBe(true);
  expect(loadTurns(storage)).toEqual(turns);
});

test("a run that was streaming is interrupted after a reload", () => {
  const storage = new Memory();
  const running = {
    ...turn("a"),
    draft: "half",
    steps: [{ id: "c1", name: "search_web", arguments: {}, state: "running" as const, content: "", items: [] }],
  };
  saveTurns([running], storage);
  expect(loadTurns(storage)).toMatchObject([
    { status: "interrupted", draft: "half", steps: [{ state: "unfinished" }] },
  ]);
});

test.each<[string, string]>([
  ["no JSON", "{"],
  ["another version", '{"version":0,"turns":[]}'],
  ["a list", "[]"],
  ["null", "null"],
  ["turns that are none", '{"version":1,"turns":[null,3,{"id":4},{"id":"a"}]}'],
  ["turns that are no list", '{"version":1,"turns":{"a":1}}'],
])("storage that holds %s is an empty conversation", (_, value) => {
  const storage = new Memory();
  saveTurns([finished("a")], storage);
  storage.setItem(key(storage), value);
  expect(loadTurns(storage)).toEqual([]);
});

test("a turn with damaged parts keeps the whole ones", () => {
  const storage = new Memory();
  saveTurns([finished("a")], storage);
  storage.setItem(
    key(storage),
    '{"version":1,"turns":[{"id":"a","question":"Why?","status":"odd","steps":[{},7],"sources":"x","result":{"summary":"Because."}}]}',
  );
  expect(loadTurns(storage)).toMatchObject([
    { question: "Why?", status: "interrupted", sources: [], result: { summary: "Because.", outcome: "failed" } },
  ]);
});

test("the newest turns are kept when there are too many", () => {
  const storage = new Memory();
  saveTurns(
    Array.from({ length: MOST_TURNS + 5 }, (_, index) => finished(`t${index}`)),
    storage,
  );
  const kept = loadTurns(storage);
  expect(kept).toHaveLength(MOST_TURNS);
  expect(kept.at(-1)?.id).toBe(`t${MOST_TURNS + 4}`);
});

test("the newest turns are kept when they are too long", () => {
  const storage = new Memory();
  const long = "x".repeat(MOST_CHARACTERS / 4);
  expect(
    saveTurns(
      ["a", "b", "c", "d", "e"].map((id) => finished(id, long)),
      storage,
    ),
  ).toBe(true);
  expect(loadTurns(storage).map((one) => one.id)).toEqual(["c", "d", "e"]);
});

test("a full storage takes what fits", () => {
  const storage = new Memory(3_000);
  expect(
    saveTurns(
      ["a", "b", "c"].map((id) => finished(id, "x".repeat(1_000))),
      storage,
    ),
  ).toBe(true);
  expect(loadTurns(storage).map((one) => one.id)).toEqual(["b", "c"]);
});

test("no storage, or one that takes nothing, is told and does no harm", () => {
  expect(saveTurns([finished("a")], null)).toBe(false);
  expect(loadTurns(null)).toEqual([]);
  expect(saveTurns([finished("a")], new Memory(10))).toBe(false);
});
