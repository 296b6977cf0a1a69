/**
 * The conversation of each tab in localStorage: versioned, bounded, and read as foreign data, since anything may have
 * written it.
 *
 * A tab writes under a name of its own, so that no tab overwrites another's turns; a new one begins with what was written
 * last. The name outlasts a reload in the tab's sessionStorage, and with it turns that this tab has only looked at. They
 * stand there only from the moment the page is left until it is there again: a browser that duplicates a tab copies that
 * storage too, and two tabs must not have one name.
 */

import { isRecord, list, readItem, readResult, readSource, text, words } from "./contract";
import { closed, type Status, type Step, type Turn } from "./run";

const KEY = "m3.conversation";
const NAME = "m3.tab";
const SEEN = "m3.tab.turns";
const VERSION = 1;
export const MOST_TURNS = 60;
/** Browsers give a site about 5 million characters; other settings of the page need next to nothing. */
export const MOST_CHARACTERS = 900_000;
/** Conversations that are kept, of tabs that are open or were closed; the one written longest ago goes first. */
export const MOST_CONVERSATIONS = 5;

/** The place where one tab keeps its conversation. */
export class Shelf {
  private readonly name: string;
  private readonly seen: string | null;
  private failed = false;

  constructor(
    private readonly storage: Storage | null = browserStorage("localStorage"),
    private readonly session: Storage | null = browserStorage("sessionStorage"),
  ) {
    const name = take(session, NAME) ?? "";
    this.seen = take(session, SEEN);
    this.name = /^[0-9a-f]{16}$/.test(name) ? name : randomId();
  }

  /** This tab's conversation, or for a new tab the one that was written last. Empty for none, a corrupt or foreign one. */
  load(): Turn[] {
    try {
      const { storage } = this;
      const own = this.seen ?? storage?.getItem(this.key) ?? null; // seen: what could not be stored under the key
      const last = own === null ? this.byAge(this.others()).at(-1) : undefined;
      const json: unknown = JSON.parse(own ?? (last && storage?.getItem(last)) ?? "null");
      if (!isRecord(json) || json["version"] !== VERSION) return [];
      // A run belongs to the page that started it: one that was streaming then is not running now.
      return list(json["turns"], readTurn).map((turn) => closed(turn, "interrupted"));
    } catch {
      return [];
    }
  }

  /**
   * Store the conversation, its oldest turns left out where it is too long.
   *
   * Returns false where nothing could be stored (no storage, or a full one): the page then works on from memory.
   */
  save(turns: readonly Turn[]): boolean {
    this.failed = !this.put(turns);
    return !this.failed;
  }

  private put(turns: readonly Turn[]): boolean {
    if (!this.storage) return false;
    const kept = turns.slice(-MOST_TURNS).map(asJson);
    let size = kept.reduce((sum, one) => sum + one.length + 1, 0);
    for (; size > MOST_CHARACTERS; size -= (kept.shift()?.length ?? 0) + 1);
    try {
      this.makeRoom(MOST_CONVERSATIONS - 1);
      for (;;) {
        if (write(this.storage, this.key, asText(kept))) return kept.length > 0 || turns.length === 0;
        if (this.makeRoom(this.others().length - 1)) continue;
        if (kept.shift() === undefined) return false;
      }
    } catch {
      return false;
    }
  }

  /** The page is left: if it comes back in this tab, it has its name again, and turns that stand nowhere else. */
  leave(turns: readonly Turn[]): void {
    try {
      this.session?.setItem(NAME, this.name);
      // Only looked at, not to be stored, or given up for the room of other tabs.
      const elsewhere = !this.failed && (this.storage?.getItem(this.key) ?? null) !== null;
      if (!elsewhere && turns.length > 0) this.session?.setItem(SEEN, asText(turns.slice(-MOST_TURNS).map(asJson)));
    } catch {
      // no room or no storage: the tab then begins as a new one
    }
  }

  /** The page was only put aside, and is shown again. */
  comeBack(): void {
    take(this.session, NAME);
    take(this.session, SEEN);
  }

  private get key(): string {
    return `${KEY}.${this.name}`;
  }

  /** Under which keys conversations of other tabs are stored. */
  private others(): string[] {
    const { storage, key: own } = this;
    const keys = Array.from({ length: storage?.length ?? 0 }, (_, index) => storage?.key(index) ?? "");
    return keys.filter((key) => key.startsWith(KEY) && key !== own);
  }

  /** The same, the one written last at the end. */
  private byAge(keys: readonly string[]): string[] {
    const saved = new Map(keys.map((key) => [key, savedAt(this.storage?.getItem(key) ?? "")]));
    return keys.toSorted((a, b) => (saved.get(a) ?? 0) - (saved.get(b) ?? 0));
  }

  /** Leave at most so many conversations of other tabs. True where one was taken away. */
  private makeRoom(most: number): boolean {
    const others = this.others();
    const tooMany = others.length - Math.max(0, most);
    if (tooMany <= 0) return false;
    for (const key of this.byAge(others).slice(0, tooMany)) this.storage?.removeItem(key);
    return true;
  }
}

/** When a conversation was written (milliseconds), as it says itself near its beginning; 0 where it does not. */
function savedAt(value: string): number {
  return Number(/^\{"version":\d+,"saved":(\d{1,16}),/.exec(value.slice(0, 60))?.[1] ?? 0);
}

/** What the page left here, which nobody else may take. */
function take(session: Storage | null, key: string): string | null {
  try {
    const value = session?.getItem(key) ?? null;
    session?.removeItem(key);
    return value;
  } catch {
    return null;
  }
}

/** `crypto.randomUUID` exists in secure contexts only, which a LAN address over HTTP is not. */
export function randomId(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Turns never change once made, and only one of a conversation is new: the others are not written out again. */
const written = new WeakMap<Turn, string>();

function asJson(turn: Turn): string {
  const known = written.get(turn) ?? JSON.stringify(turn);
  written.set(turn, known);
  return known;
}

function asText(turns: readonly string[]): string {
  return `{"version":${VERSION},"saved":${Date.now()},"turns":[${turns.join(",")}]}`;
}

function write(storage: Storage, key: string, value: string): boolean {
  try {
    storage.setItem(key, value);
    return true;
  } catch {
    return false; // over the quota: the caller tries with less
  }
}

/** A storage of the browser, or null where it forbids it. */
export function browserStorage(kind: "localStorage" | "sessionStorage"): Storage | null {
  try {
    return globalThis[kind] ?? null;
  } catch {
    return null;
  }
}

const STATUSES: readonly Status[] = ["running", "done", "broken", "stopped", "interrupted", "refused"];
const STATES: readonly Step["state"][] = ["running", "ok", "failed", "unfinished"];

function readTurn(value: unknown): Turn | null {
  if (!isRecord(value) || !text(value["id"]) || !text(value["question"])) return null;
  return {
    id: text(value["id"]),
    question: text(value["question"]),
    asked_at: text(value["asked_at"]),
    status: STATUSES.find((one) => one === value["status"]) ?? "interrupted",
    steps: list(value["steps"], readStep),
    notice: text(value["notice"]),
    notices: words(value["notices"]),
    draft: text(value["draft"]),
    sources: list(value["sources"], readSource),
    error: text(value["error"]),
    result: isRecord(value["result"]) ? readResult(value["result"]) : null,
  };
}

function readStep(value: unknown): Step | null {
  if (!isRecord(value)) return null;
  return {
    id: text(value["id"]),
    name: text(value["name"]),
    arguments: isRecord(value["arguments"]) ? value["arguments"] : {},
    state: STATES.find((one) => one === value["state"]) ?? "unfinished",
    content: text(value["content"]),
    items: list(value["items"], readItem),
  };
}
