/**
 * From `[Source 2]` in a text to the numbered chips of the page, and from a sentence to its checks.
 *
 * The work is done on the Markdown tree, not on HTML: a plugin cuts text where a checked sentence begins or ends and
 * where a tag stands. Code is left alone.
 */

import type { Check, Verdict } from "./contract";

export const VERDICT_WORDS: Readonly<Record<Verdict, string>> = {
  matched: "matched to a passage",
  partly: "partly matched",
  not_found: "not found in the cited page",
  unchecked: "could not be checked",
  uncited: "no citation",
};

/** A mark beside the number where not all is well, so that colour is not the only sign. */
export const VERDICT_MARKS: Readonly<Record<Verdict, string>> = {
  matched: "",
  partly: "~",
  not_found: "!",
  unchecked: "?",
  uncited: "",
};

// Drafts hold what a model wrote; the final summary has `[Source 1, 3]` only.
const NUMBERS = String.raw`\d{1,4}(?:\s*(?:,|;|&|and\b|-|–)\s*(?:sources?\s*)?\d{1,4}){0,20}`;
export const TAG = new RegExp(
  String.raw`\[\s*sources?\s*:?#?\s*(${NUMBERS})\s*\]|【\s*(?:sources?\s*)?(${NUMBERS})(?:†[^】\n]{0,60})?\s*】`,
  "gi",
);
const LONGEST_RANGE = 10;

/** The numbers that a tag's inside names, each once: `1, 3` and `2-4` alike. */
export function tagNumbers(inside: string): number[] {
  const found: number[] = [];
  for (const [, first, last] of inside.matchAll(/(\d+)(?:\s*[-–]\s*(\d+))?/g)) {
    const low = Number(first);
    const high = Number(last ?? first);
    if (low <= high && high <= low + LONGEST_RANGE) for (let n = low; n <= high; n++) found.push(n);
    else found.push(low, high);
  }
  return [...new Set(found)];
}

/** A draft without the beginning of a tag or link that is still being written at its end. */
export function withoutUnfinishedTag(draft: string): string {
  return draft.replace(/[ \t]*[[【][^\]】\n]{0,40}$/, "");
}

// --- statements ------------------------------------------------------------------------------------------

/** A sentence of the summary with all its checks; offsets in UTF-16 units, as JavaScript counts. */
export interface Statement {
  readonly start: number;
  readonly end: number;
  readonly verdict: Verdict;
  readonly checks: readonly Check[];
}

const BEST: readonly Verdict[] = ["matched", "partly", "unchecked", "not_found", "uncited"];

/** The checks by the sentence they are about, in the order of the summary, each with the best verdict it got. */
export function statementsOf(summary: string, checks: readonly Check[]): Statement[] {
  const offset = utf16Offset(summary);
  const groups = new Map<string, Check[]>();
  for (const check of checks) {
    if (check.end <= check.start) continue;
    const key = `${check.start}-${check.end}`;
    groups.set(key, [...(groups.get(key) ?? []), check]);
  }
  const found = [...groups.values()].map((group) => ({
    start: offset(group[0]?.start ?? 0),
    end: offset(group[0]?.end ?? 0),
    verdict: BEST.find((verdict) => group.some((check) => check.verdict === verdict)) ?? "unchecked",
    checks: group,
  }));
  return found.sort((a, b) => a.start - b.start);
}

/** Turns an offset in code points (Python) into one in UTF-16 units (JavaScript). */
export function utf16Offset(string: string): (codePoints: number) => number {
  if (!/[\ud800-\udbff]/.test(string)) return (codePoints) => Math.min(codePoints, string.length);
  const units: number[] = [];
  let at = 0;
  for (const character of string) {
    units.push(at);
    at += character.length;
  }
  return (codePoints) => units[codePoints] ?? string.length;
}

/** The check of one tag: of its sentence and its source, else any of that source; undefined where nothing was checked. */
export function checkOf(statements: readonly Statement[], statement: number | null, source: number): Check | undefined {
  const here = statement === null ? undefined : statements[statement];
  return here?.checks.find((check) => check.source === source);
}

// --- the Markdown plugin ---------------------------------------------------------------------------------

interface Node {
  type: string;
  value?: string;
  children?: Node[];
  position?: { start: { offset?: number }; end: { offset?: number } };
  data?: { hName: string; hProperties: Record<string, unknown> };
}

export interface CitationOptions {
  readonly statements: readonly Statement[];
  /** The statement whose evidence is open. */
  readonly active: number | null;
  /** Show the writing mark at the end of the text. */
  readonly cursor: boolean;
}

/**
 * A remark plugin: tags become `<cite data-source data-statement data-place>`, sentences `<span data-statement>`; an
 * uncited sentence is followed by a `<cite>` without a source.
 */
export function remarkCitations({ statements, active, cursor }: CitationOptions) {
  return (tree: Node, file: { value: unknown }): void => {
    const markdown = String(file.value);
    const texts = textNodes(tree);
    const lastOf = new Map<number, Node>(); // where an uncited sentence gets its mark
    for (const [node] of texts) {
      const { start, end } = span(node);
      statements.forEach((one, index) => {
        if (one.verdict === "uncited" && start < one.end && end > one.start) lastOf.set(index, node);
      });
    }
    let place = 0;
    for (const [node, parent] of texts) {
      const pieces = cut(node, markdown, statements, lastOf).map((piece) => {
        if (piece.source !== undefined || piece.uncited) return chip(piece, place++);
        return piece.statement === null ? plain(piece.text) : sentence(piece.text, piece.statement);
      });
      parent.children?.splice(parent.children.indexOf(node), 1, ...pieces);
    }
    if (cursor)
      lastPlace(tree).push({
        type: "cursor",
        data: { hName: "span", hProperties: { className: ["cursor"] } },
        children: [],
      });
  };

  function sentence(value: string, index: number): Node {
    const verdict = statements[index]?.verdict ?? "unchecked";
    const className = ["statement", verdict, ...(index === active ? ["open"] : [])];
    return {
      type: "statement",
      data: { hName: "span", hProperties: { className, "data-statement": index } },
      children: [plain(value)],
    };
  }
}

interface Piece {
  readonly text: string;
  readonly statement: number | null;
  readonly source?: number;
  readonly uncited?: boolean;
}

function cut(node: Node, markdown: string, statements: readonly Statement[], lastOf: Map<number, Node>): Piece[] {
  const value = node.value ?? "";
  const { start, end } = span(node);
  const offsets = alignment(markdown.slice(start, end), value);
  const at = (index: number): number => start + (offsets[index] ?? end - start);
  const statementAt = (index: number): number | null => {
    const place = at(index);
    const found = statements.findIndex((one) => one.start <= place && place < one.end);
    return found < 0 ? null : found;
  };
  const pieces: Piece[] = [];
  const text = (from: number, to: number): void => {
    let begin = from;
    for (let i = from; i < to; i++) {
      if (i + 1 < to && statementAt(i + 1) === statementAt(begin)) continue;
      pieces.push({ text: value.slice(begin, i + 1), statement: statementAt(begin) });
      begin = i + 1;
    }
  };
  let done = 0;
  for (const tag of value.matchAll(TAG)) {
    const before = value.slice(done, tag.index);
    // A chip does not begin a line: the blank before it becomes one that does not break.
    const kept = before.replace(/[ \t\n]+$/, "");
    text(done, done + kept.length);
    if (kept !== before) pieces.push({ text: "\u00a0", statement: null });
    for (const source of tagNumbers(tag[1] ?? tag[2] ?? ""))
      pieces.push({ text: "", statement: statementAt(tag.index), source });
    done = tag.index + tag[0].length;
  }
  text(done, value.length);
  for (const [index, last] of lastOf) {
    if (last !== node) continue;
    const after = pieces.findLastIndex((piece) => piece.statement === index);
    pieces.splice(after + 1, 0, { text: "\u00a0", statement: null }, { text: "", statement: index, uncited: true });
  }
  return pieces;
}

/** For each character of a text node where it stands in the Markdown it came from (escapes and entities differ). */
export function alignment(raw: string, value: string): number[] {
  const offsets: number[] = [];
  let at = 0;
  for (let i = 0; i < value.length; i++) {
    while (at < raw.length && raw[at] !== value[i] && raw[at] !== "&") at++; // a backslash, or marks at a line's start
    offsets.push(Math.min(at, raw.length));
    const entity =
      raw[at] === "&" && !value.startsWith(raw.slice(at, at + 3), i)
        ? /^&#?\w{1,32};/.exec(raw.slice(at, at + 40))
        : null;
    at += entity ? entity[0].length : 1;
  }
  return offsets;
}

function textNodes(tree: Node): [Node, Node][] {
  const found: [Node, Node][] = [];
  const walk = (parent: Node): void => {
    for (const node of parent.children ?? []) {
      if (node.type === "text") found.push([node, parent]);
      else walk(node);
    }
  };
  walk(tree);
  return found;
}

function span(node: Node): { start: number; end: number } {
  return { start: node.position?.start.offset ?? 0, end: node.position?.end.offset ?? 0 };
}

const plain = (value: string): Node => ({ type: "text", value });

function chip(piece: Piece, place: number): Node {
  const hProperties = {
    "data-source": piece.source,
    "data-statement": piece.statement ?? undefined,
    "data-place": place,
  };
  return { type: "citation", data: { hName: "cite", hProperties }, children: [] };
}

/** The children among which the writing mark stands: after the last word, not on a line of its own. */
function lastPlace(tree: Node): Node[] {
  let node = tree;
  while (node.children) {
    const last = node.children.at(-1);
    if (!last?.children || last.type === "statement" || last.type === "citation") break;
    node = last;
  }
  node.children ??= [];
  return node.children;
}
