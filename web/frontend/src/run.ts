/** One question and what became of it: the state of a run as its events come in, and the words for it. */

import { TAG, tagNumbers } from "./citations";
import { type ChatEvent, type Outcome, type Result, type Source, type StepItem, text } from "./contract";

/** running; done: the server ended it; broken: the stream ended without `done`; stopped: by the reader; interrupted:
 * the page was left; refused: the server did not start it. */
export type Status = "running" | "done" | "broken" | "stopped" | "interrupted" | "refused";

export interface Step {
  readonly id: string;
  readonly name: string;
  readonly arguments: Readonly<Record<string, unknown>>;
  readonly state: "running" | "ok" | "failed" | "unfinished";
  readonly content: string;
  readonly items: readonly StepItem[];
}

export interface Turn {
  readonly id: string;
  readonly question: string;
  readonly asked_at: string;
  readonly status: Status;
  readonly steps: readonly Step[];
  /** What the run waits for or does now; "" once it has gone on. */
  readonly notice: string;
  readonly notices: readonly string[];
  readonly draft: string;
  readonly sources: readonly Source[];
  readonly error: string;
  readonly result: Result | null;
}

export const BROKEN = "The connection broke before the answer was finished. What had arrived is kept.";
export const STOPPING = "Stopping: what was read is being checked.";
export const UNCHECKED_DRAFT = "Unchecked draft: it was not finished, and no citation in it was checked.";
const MOST_NOTICES = 20;

export function newTurn(id: string, question: string, asked_at: string): Turn {
  return {
    id,
    question,
    asked_at,
    status: "running",
    steps: [],
    notice: "",
    notices: [],
    draft: "",
    sources: [],
    error: "",
    result: null,
  };
}

/** The turn after one event. Events after the end change nothing. */
export function applyEvent(turn: Turn, event: ChatEvent): Turn {
  if (turn.status !== "running") return turn;
  switch (event.type) {
    case "tool_call": {
      const { id, name, arguments: args } = event;
      return {
        ...turn,
        notice: "",
        steps: [...turn.steps, { id, name, arguments: args, state: "running", content: "", items: [] }],
      };
    }
    case "observation": {
      const state = event.ok ? "ok" : "failed";
      const known = turn.steps.some((step) => step.id === event.id);
      const seen = { id: event.id, name: event.name, state, content: event.content, items: event.items } as const;
      if (!known) return { ...turn, steps: [...turn.steps, { ...seen, arguments: {} }] };
      return { ...turn, steps: turn.steps.map((step) => (step.id === event.id ? { ...step, ...seen } : step)) };
    }
    case "notice":
      if (!event.content) return turn;
      if (turn.notices.at(-1) === event.content) return { ...turn, notice: event.content };
      return { ...turn, notice: event.content, notices: [...turn.notices, event.content].slice(-MOST_NOTICES) };
    case "sources":
      return { ...turn, sources: event.sources };
    case "text":
      return { ...turn, notice: "", draft: turn.draft + event.content };
    case "error":
      return { ...turn, error: event.message };
    case "done":
      return { ...closed(turn, "done"), result: event.result };
  }
}

/** The turn ended in another way than by `done`. What had arrived stays. */
export function closed(turn: Turn, status: Status, error = turn.error): Turn {
  if (turn.status !== "running") return turn;
  const steps = turn.steps.map((step) => (step.state === "running" ? { ...step, state: "unfinished" as const } : step));
  return { ...turn, status, error, steps };
}

/** What stands as the answer now: the final summary, or the draft as far as it has come. */
export function answerText(turn: Turn): string {
  return turn.result ? turn.result.summary : turn.draft;
}

/** Whether what stands as the answer is a draft that nothing will check any more. */
export function isUnchecked(turn: Turn): boolean {
  return turn.status !== "running" && !turn.result && turn.draft.trim() !== "";
}

export function sourcesOf(turn: Turn): readonly Source[] {
  return turn.result ? turn.result.sources : turn.sources;
}

const HEADING_CHARACTERS = 200;

/** A question as a heading, and the whole of it on one line where the heading holds only its beginning. */
export function headingOf(question: string): { readonly heading: string; readonly whole: string } {
  const line = question.replace(/\s+/g, " ").trim();
  if (line.length <= HEADING_CHARACTERS) return { heading: question, whole: "" };
  const cut = line.lastIndexOf(" ", HEADING_CHARACTERS - 1);
  const end = cut > HEADING_CHARACTERS / 2 ? cut : HEADING_CHARACTERS - 1;
  return { heading: `${line.slice(0, end).replace(/[\ud800-\udbff]$|[ ,;:]+$/, "")}…`, whole: line };
}

export interface Message {
  readonly role: "user" | "assistant";
  readonly content: string;
}

/** Characters of the conversation that are sent along; the server cuts them to the model's budget, and refuses more. */
export const MOST_HISTORY = 120_000;

/** The conversation so far as the server wants it, oldest first, ending with `question`; its oldest turns may be cut. */
export function messagesFor(turns: readonly Turn[], question: string): Message[] {
  const messages: Message[] = [{ role: "user", content: question }];
  let size = question.length;
  for (const turn of turns.toReversed()) {
    const answer = answerText(turn).trim();
    if (!answer) continue;
    size += turn.question.length + answer.length;
    if (size > MOST_HISTORY) break;
    messages.unshift({ role: "user", content: turn.question }, { role: "assistant", content: answer });
  }
  return messages;
}

/** The answer with its sources, as Markdown to paste elsewhere: `[1]` for citations, a numbered list at the end. */
export function asMarkdown(turn: Turn): string {
  const sources = sourcesOf(turn).map((source) => {
    const where = source.kind === "file" ? source.label || source.url : source.url;
    return `${source.number}. ${[source.title, source.published, where].filter(Boolean).join(". ")}`;
  });
  const text = answerText(turn).replace(TAG, (_, plain?: string, bracketed?: string) =>
    tagNumbers(plain ?? bracketed ?? "")
      .map((number) => `[${number}]`)
      .join(""),
  );
  const { heading, whole } = headingOf(turn.question);
  const warning = isUnchecked(turn) ? `> **${UNCHECKED_DRAFT}**` : "";
  const cited = sources.length > 0 ? `## Sources\n\n${sources.join("\n")}` : "";
  return [`# ${heading}`, whole && `**Question:** ${whole}`, warning, text.trim(), cited]
    .filter(Boolean)
    .join("\n\n")
    .concat("\n");
}

// --- words ----------------------------------------------------------------------------------------------

const STOP_REASONS: Readonly<Record<string, string>> = {
  max_iterations: "the step limit was reached",
  max_tokens: "the token limit was reached",
  max_wall_clock_time: "time was up",
  max_cost: "the cost limit was reached",
  interrupted: "the run was stopped",
  provider_error: "the language model could not be reached",
  search_error: "no search engine answered",
  no_progress: "the model made no progress",
};

const OUTCOMES: Readonly<Record<Outcome, string>> = {
  answered: "Answered",
  partial: "Partial answer",
  abstained: "No answer found",
  failed: "Failed",
};

/** How the turn ended, in a few words, and how it should look. */
export function outcomeLabel(
  turn: Turn,
): { tone: "good" | "plain" | "warn" | "bad"; label: string; detail: string } | null {
  const { result, status } = turn;
  if (result) {
    const detail = STOP_REASONS[result.stop_reason] ?? "";
    if (result.no_sources_used && result.outcome === "answered")
      return { tone: "plain", label: "From the conversation, no source checked", detail };
    const tone = ({ answered: "good", partial: "warn", abstained: "warn", failed: "bad" } as const)[result.outcome];
    return { tone, label: OUTCOMES[result.outcome], detail };
  }
  if (status === "stopped")
    return { tone: "plain", label: "Stopped", detail: turn.draft ? "the draft was not checked" : "" };
  if (status === "interrupted")
    return { tone: "warn", label: "Interrupted", detail: "the page was left while the answer was being written" };
  if (status === "broken") return { tone: "bad", label: "Connection lost", detail: "" };
  if (status === "refused") return { tone: "bad", label: "Not started", detail: "" };
  return null;
}

export interface StepWords {
  /** What is being done, for the time it runs and after it. */
  readonly verb: string;
  /** What with: a query, a host, a file. */
  readonly object: string;
}

export function stepWords(step: Step): StepWords {
  const running = step.state === "running";
  const read = running ? "Reading" : step.state === "ok" ? "Read" : "Tried to read";
  const args = step.arguments;
  const first = Object.values(args).map(text).find(Boolean) ?? "";
  switch (step.name) {
    case "search_web":
      return { verb: running ? "Searching" : "Searched", object: text(args["query"]) || first };
    case "fetch_page":
      return { verb: read, object: pagesRead(step) };
    case "read_file":
    case "extract_pdf_text":
      return { verb: read, object: first || step.items[0]?.title || "a file" };
    case "list_uploaded_files":
      return { verb: running ? "Looking at" : "Looked at", object: "your files" };
    case "extract": {
      const number = args["source"];
      const source = typeof number === "number" || typeof number === "string" ? `source ${number}` : "a source";
      return { verb: running ? "Looking closer at" : "Looked closer at", object: source };
    }
    default:
      return { verb: step.name.replaceAll("_", " "), object: first };
  }
}

function pagesRead(step: Step): string {
  const hosts = [...new Set(step.items.map((item) => hostOf(item.url) || item.title).filter(Boolean))];
  if (hosts.length > 0) return hosts.length > 2 ? `${hosts[0]} and ${hosts.length - 1} more` : hosts.join(" and ");
  const { url, urls, results } = step.arguments;
  const asked = [url, urls, results].flat().filter((one): one is string => typeof one === "string");
  if (asked.length === 1) return hostOf(asked[0] ?? "") || "a page";
  return asked.length > 1 ? `${asked.length} pages` : "pages";
}

export function hostOf(url: string): string {
  return URL.canParse(url) ? new URL(url).hostname.replace(/^www\./, "") : "";
}

/** One sentence for the screen reader about what happens now; "" where there is nothing to say. */
export function statusSentence(turn: Turn): string {
  if (turn.status !== "running") {
    const label = outcomeLabel(turn);
    const counts = turn.result?.counts_line ? ` ${turn.result.counts_line}` : "";
    return label ? `${label.label}.${turn.error ? ` ${turn.error}` : ""}${counts}` : "";
  }
  if (turn.draft) return "The answer is being written.";
  const last = turn.steps.at(-1);
  if (!last) return "Working on the question.";
  const { verb, object } = stepWords(last);
  return last.state === "running" ? `${verb} ${object}.` : `${verb} ${object}: ${last.content || last.state}.`;
}
