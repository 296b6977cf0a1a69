import { expect, test } from "vitest";

import { readEvent } from "../src/contract";
import { applyEvent, newTurn, type Turn } from "../src/run";
import { MOST_CHARACTERS, MOST_CONVERSATIONS, MOST_TURNS, Shelf } from "../src/storage";

/** A Storage in memory that takes values of so many characters, and so many in all. */
class Memory implements Storage {
  readonly items = new Map<string, string>();
  constructor(
    private readonly quota = Infinity,
    private readonly total = Infinity,
  ) {}
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
    const others = [...this.items].reduce((sum, [name, one]) => sum + (name === key ? 0 : one.length), 0);
    if (value.length > this.quota || others + value.length > this.total)
      throw new DOMException("full", "QuotaExceededError");
    this.items.set(key, value);
  }
  copy(): Memory {
    const copy = new Memory(this.quota, this.total);
    for (const [key, value] of this.items) copy.items.set(key, value);
    return copy;
  }
}

/** A tab of the browser: its page can be left and come back, and the browser can make a second one of it. */
class Tab {
  turns: readonly Turn[];
  private shelf: Shelf;
  constructor(
    private readonly storage: Storage | null,
    private readonly session = new Memory(),
  ) {
    this.shelf = new Shelf(storage, session);
    this.turns = this.shelf.load();
  }
  get ids(): string[] {
    return this.turns.map(({ id }) => id);
  }
  ask(...ids: string[]): this {
    this.turns = [...this.turns, ...ids.map((id) => finished(id))];
    expect(this.shelf.save(this.turns)).toBe(true);
    return this;
  }
  clear(): this {
    this.turns = [];
    this.shelf.save([]);
    return this;
  }
  reload(): this {
    this.shelf.leave(this.turns);
    this.shelf = new Shelf(this.storage, this.session);
    this.turns = this.shelf.load();
    return this;
  }
  duplicate(): Tab {
    return new Tab(this.storage, this.session.copy());
  }
}

const saveTurns = (turns: readonly Turn[], storage: Storage | null) => new Shelf(storage, new Memory()).save(turns);
const loadTurns = (storage: Storage | null): Turn[] => new Shelf(storage, new Memory()).load();

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

test("a new tab begins where the last one is, and each keeps its own turns from there on", () => {
  const storage = new Memory();
  const first = new Tab(storage).ask("a");
  const second = new Tab(storage);
  expect(second.ids).toEqual(["a"]);
  second.ask("b");
  first.ask("c");
  second.ask("d");
  expect([first.reload().ids, second.reload().ids]).toEqual([
    ["a", "c"],
    ["a", "b", "d"],
  ]);
  expect(new Tab(storage).ids).toEqual(["a", "b", "d"]);
});

test("a tab that the browser makes of another one has a conversation of its own", () => {
  const storage = new Memory();
  const first = new Tab(storage).ask("a").reload();
  const second = first.duplicate();
  expect(second.ids).toEqual(["a"]);
  second.ask("b");
  first.ask("c");
  expect([first.reload().ids, second.reload().ids]).toEqual([
    ["a", "c"],
    ["a", "b"],
  ]);
});

test("a new conversation in one tab leaves the others theirs, also one that was only looked at", () => {
  const storage = new Memory();
  const first = new Tab(storage).ask("a");
  const [looking, writing] = [new Tab(storage), new Tab(storage).ask("b")];
  first.clear();
  expect(looking.reload().ids).toEqual(["a"]);
  expect(looking.reload().ids).toEqual(["a"]);
  expect(writing.reload().ids).toEqual(["a", "b"]);
  expect(first.reload().ids).toEqual([]);
  expect(looking.ask("d").reload().ids).toEqual(["a", "d"]);
});

test("a conversation begun anew is what a new tab begins with", () => {
  const storage = new Memory();
  new Tab(storage).ask("a");
  new Tab(storage).clear();
  expect(new Tab(storage).ids).toEqual([]);
});

test("the conversations of closed tabs are bounded, and a tab that is open keeps its own all the same", () => {
  const storage = new Memory();
  const open = new Tab(storage).ask("a");
  for (let i = 0; i < MOST_CONVERSATIONS + 3; i++) new Tab(storage).clear().ask(`t${i}`);
  expect(storage.length).toBe(MOST_CONVERSATIONS);
  expect(open.reload().ids).toEqual(["a"]);
  expect(open.ask("b").reload().ids).toEqual(["a", "b"]);
});

test("where the storage is full the conversation written longest ago makes room, before any turn of this one", () => {
  const storage = new Memory(Infinity, 6_000);
  const long = (id: string): Turn => finished(id, "x".repeat(1_000));
  const tabs = ["a", "b", "c", "d", "e"].map((id) => {
    const tab = new Shelf(storage, new Memory());
    expect(tab.save([long(id)])).toBe(true);
    return tab;
  });
  expect(tabs[4]?.save([long("e"), long("f"), long("g")])).toBe(true);
  expect(loadTurns(storage).map(({ id }) => id)).toEqual(["e", "f", "g"]);
  expect(storage.length).toBeLessThan(5);
});
