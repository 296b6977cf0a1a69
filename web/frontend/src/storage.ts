/** The conversation in localStorage: versioned, bounded, and read as foreign data, since anything may have written it. */

import { isRecord, list, readItem, readResult, readSource, text, words } from "./contract";
import { closed, type Status, type Step, type Turn } from "./run";

const KEY = "m3.conversation";
const VERSION = 1;
export const MOST_TURNS = 60;
/** Browsers give a site about 5 million characters; other settings of the page need next to nothing. */
export const MOST_CHARACTERS = 2_000_000;

/** The stored conversation, or an empty one for none, a corrupt one or one of another version. */
export function loadTurns(storage: Storage | null = browserStorage()): Turn[] {
  try {
    const json: unknown = JSON.parse(storage?.getItem(KEY) ?? "null");
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
export function saveTurns(turns: readonly Turn[], storage: Storage | null = browserStorage()): boolean {
  if (!storage) return false;
  const kept = turns.slice(-MOST_TURNS).map(asJson);
  let size = kept.reduce((sum, one) => sum + one.length + 1, 0);
  while (kept.length > 0) {
    if (size <= MOST_CHARACTERS && write(storage, `{"version":${VERSION},"turns":[${kept.join(",")}]}`)) return true;
    size -= (kept.shift()?.length ?? 0) + 1;
  }
  try {
    storage.removeItem(KEY);
    return turns.length === 0;
  } catch {
    return false;
  }
}

/** Turns never change once made, and only one of a conversation is new: the others are not written out again. */
const written = new WeakMap<Turn, string>();

function asJson(turn: Turn): string {
  const known = written.get(turn) ?? JSON.stringify(turn);
  written.set(turn, known);
  return known;
}

function write(storage: Storage, value: string): boolean {
  try {
    storage.setItem(KEY, value);
    return true;
  } catch {
    return false; // over the quota: the caller tries with less
  }
}

/** localStorage, or null where the browser forbids it. */
export function browserStorage(): Storage | null {
  try {
    return globalThis.localStorage ?? null;
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
