/**
 * What the server sends, under the names of the wire. Every reader takes foreign JSON and gives back a whole record, with empty
 * values for what is missing, or null for what is no such thing. Reading twice changes nothing, so that the stored
 * conversation goes through the same readers.
 */

export type Verdict = "matched" | "partly" | "not_found" | "unchecked" | "uncited";
export type Outcome = "answered" | "partial" | "abstained" | "failed";

export interface Passage {
  readonly start: number;
  readonly end: number;
  readonly quote: string;
  readonly page_number: number | null;
  /** The page's address with a text fragment that opens it on these words; "" where there is none. */
  readonly link: string;
}

export interface Source {
  readonly number: number;
  readonly kind: "page" | "file";
  readonly title: string;
  readonly label: string;
  readonly url: string;
  readonly domain: string;
  readonly author: string;
  readonly published: string;
  readonly notes: readonly string[];
  readonly passages: readonly Passage[];
  readonly verdicts: Readonly<Partial<Record<Verdict, number>>>;
}

/** One sentence of the summary against one source; `source` is null where it cites none. */
export interface Check {
  readonly claim: string;
  readonly source: number | null;
  readonly verdict: Verdict;
  readonly why: string;
  readonly passages: readonly Passage[];
  /** Numbers, names and quotations of the sentence that stand nowhere on the page. */
  readonly missing: readonly string[];
  /** Another source that was read and does bear the sentence out. */
  readonly better_source: number | null;
  /** Where the sentence stands in the summary, in Unicode code points (as Python counts). */
  readonly start: number;
  readonly end: number;
}

export interface StepItem {
  readonly title: string;
  readonly url: string;
  readonly status: string;
}

export interface LedgerEntry {
  readonly kind: string;
  readonly target: string;
  readonly status: string;
  /** The status for people. */
  readonly words: string;
  readonly detail: string;
}

export interface Result {
  readonly outcome: Outcome;
  readonly stop_reason: string;
  readonly summary: string;
  readonly sources: readonly Source[];
  readonly checks: readonly Check[];
  readonly counts: Readonly<Record<string, number>>;
  readonly counts_line: string;
  readonly warnings: readonly string[];
  readonly iterations_used: number;
  readonly tokens_consumed: number;
  readonly elapsed_seconds: number;
  readonly llm_provider: string;
  readonly model: string;
  readonly search_provider: string;
  readonly no_sources_used: boolean;
  readonly ledger: readonly LedgerEntry[];
}

export type ChatEvent =
  | {
      readonly type: "tool_call";
      readonly id: string;
      readonly name: string;
      readonly arguments: Record<string, unknown>;
    }
  | {
      readonly type: "observation";
      readonly id: string;
      readonly name: string;
      readonly ok: boolean;
      readonly content: string;
      readonly items: readonly StepItem[];
    }
  | { readonly type: "notice"; readonly content: string }
  | { readonly type: "sources"; readonly sources: readonly Source[] }
  | { readonly type: "text"; readonly content: string }
  | { readonly type: "error"; readonly message: string }
  | { readonly type: "done"; readonly result: Result };

export interface Health {
  readonly version: string;
  readonly provider: string;
  readonly model: string;
  readonly configured: boolean;
  readonly mock: boolean;
  readonly searchProviders: readonly string[];
  readonly warnings: readonly string[];
  readonly token_required: boolean;
  /** The largest file that may be uploaded; 0 where the server does not say. */
  readonly upload_bytes: number;
}

export interface StoredFile {
  readonly name: string;
  readonly size: number;
  readonly type: string;
  readonly uploaded_at: string;
}

const VERDICTS: readonly Verdict[] = ["matched", "partly", "not_found", "unchecked", "uncited"];
const OUTCOMES: readonly Outcome[] = ["answered", "partial", "abstained", "failed"];

type Json = Record<string, unknown>;

export function isRecord(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

export function number(value: unknown): number {
  return typeof value === "number" && Number.isFinite(value) ? value : 0;
}

export function list<T>(value: unknown, read: (item: unknown) => T | null): T[] {
  return Array.isArray(value) ? value.map(read).filter((item): item is T => item !== null) : [];
}

export const words = (value: unknown): string[] => list(value, (item) => (typeof item === "string" ? item : null));

/** One event of the stream from its data, or null for what is not JSON or of a type that this page does not know. */
export function readEvent(data: string): ChatEvent | null {
  let json: unknown;
  try {
    json = JSON.parse(data);
  } catch {
    return null; // the tail of a stream that was cut off
  }
  if (!isRecord(json)) return null;
  switch (json["type"]) {
    case "tool_call":
      return {
        type: "tool_call",
        id: text(json["id"]),
        name: text(json["name"]),
        arguments: isRecord(json["arguments"]) ? json["arguments"] : {},
      };
    case "observation":
      return {
        type: "observation",
        id: text(json["id"]),
        name: text(json["name"]),
        ok: json["ok"] !== false,
        content: text(json["content"]),
        items: list(json["items"], readItem),
      };
    case "notice":
      return { type: "notice", content: text(json["content"]) };
    case "sources":
      return { type: "sources", sources: list(json["sources"], readSource) };
    case "text":
      return { type: "text", content: text(json["content"]) };
    case "error":
      return { type: "error", message: text(json["message"]) || "Something went wrong." };
    case "done":
      return { type: "done", result: readResult(json) };
    default:
      return null;
  }
}

export function readItem(value: unknown): StepItem | null {
  if (!isRecord(value)) return null;
  return { title: text(value["title"]), url: text(value["url"]), status: text(value["status"]) };
}

export function readPassage(value: unknown): Passage | null {
  if (!isRecord(value) || !text(value["quote"])) return null;
  const page = value["page_number"];
  return {
    start: number(value["start"]),
    end: number(value["end"]),
    quote: text(value["quote"]),
    page_number: typeof page === "number" ? page : null,
    link: text(value["link"]),
  };
}

export function readSource(value: unknown): Source | null {
  if (!isRecord(value) || !Number.isInteger(value["number"])) return null;
  const verdicts = isRecord(value["verdicts"]) ? value["verdicts"] : {};
  return {
    number: number(value["number"]),
    kind: value["kind"] === "file" ? "file" : "page",
    title: text(value["title"]),
    label: text(value["label"]),
    url: text(value["url"]),
    domain: text(value["domain"]),
    author: text(value["author"]),
    published: text(value["published"]),
    notes: words(value["notes"]),
    passages: list(value["passages"], readPassage),
    verdicts: Object.fromEntries(VERDICTS.map((verdict) => [verdict, number(verdicts[verdict])])),
  };
}

export function readCheck(value: unknown): Check | null {
  if (!isRecord(value)) return null;
  const verdict = VERDICTS.find((one) => one === value["verdict"]);
  if (!verdict) return null;
  return {
    claim: text(value["claim"]),
    source: typeof value["source"] === "number" ? value["source"] : null,
    verdict,
    why: text(value["why"]),
    passages: list(value["passages"], readPassage),
    missing: words(value["missing"]),
    better_source: typeof value["better_source"] === "number" ? value["better_source"] : null,
    start: number(value["start"]),
    end: number(value["end"]),
  };
}

function readLedger(value: unknown): LedgerEntry | null {
  if (!isRecord(value)) return null;
  const [kind, target, status, detail] = ["kind", "target", "status", "detail"].map((name) => text(value[name]));
  const words = text(value["words"]) || (status ?? "");
  return { kind: kind ?? "", target: target ?? "", status: status ?? "", words, detail: detail ?? "" };
}

export function readResult(json: Json): Result {
  const counts = isRecord(json["counts"]) ? json["counts"] : {};
  return {
    outcome: OUTCOMES.find((one) => one === json["outcome"]) ?? "failed",
    stop_reason: text(json["stop_reason"]),
    summary: text(json["summary"]),
    sources: list(json["sources"], readSource),
    checks: list(json["checks"], readCheck),
    counts: Object.fromEntries(Object.entries(counts).map(([name, count]) => [name, number(count)])),
    counts_line: text(json["counts_line"]),
    warnings: words(json["warnings"]),
    iterations_used: number(json["iterations_used"]),
    tokens_consumed: number(json["tokens_consumed"]),
    elapsed_seconds: number(json["elapsed_seconds"]),
    llm_provider: text(json["llm_provider"]),
    model: text(json["model"]),
    search_provider: text(json["search_provider"]),
    no_sources_used: json["no_sources_used"] === true,
    ledger: list(json["ledger"], readLedger),
  };
}

export function readHealth(json: unknown): Health | null {
  if (!isRecord(json)) return null;
  const llm = isRecord(json["llm"]) ? json["llm"] : {};
  const search = isRecord(json["search"]) ? json["search"] : {};
  return {
    version: text(json["version"]),
    provider: text(llm["provider"]),
    model: text(llm["model"]),
    configured: llm["configured"] !== false,
    mock: llm["mock"] === true,
    searchProviders: words(search["providers"]),
    warnings: words(json["warnings"]),
    token_required: json["token_required"] === true,
    upload_bytes: number(isRecord(json["limits"]) ? json["limits"]["upload_bytes"] : 0),
  };
}

export function readFiles(json: unknown): StoredFile[] {
  return list(isRecord(json) ? json["files"] : null, (value) => {
    if (!isRecord(value) || !text(value["name"])) return null;
    return {
      name: text(value["name"]),
      size: number(value["size"]),
      type: text(value["type"]),
      uploaded_at: text(value["uploaded_at"]),
    };
  });
}
