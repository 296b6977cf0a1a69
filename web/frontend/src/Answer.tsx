import { createContext, memo, useContext, useMemo } from "react";
import Markdown, { type Components } from "react-markdown";
import remarkGfm from "remark-gfm";

import {
  checkOf,
  remarkCitations,
  type Statement,
  VERDICT_MARKS,
  VERDICT_WORDS,
  withoutUnfinishedTag,
} from "./citations";
import type { Source, Verdict } from "./contract";

/** What is open in the side panel: a sentence's check against a source, or a source as a whole. */
export interface Selection {
  readonly turn: string;
  readonly statement: number | null;
  readonly source: number | null;
}

interface ChipContext {
  readonly turn: string;
  readonly unchecked: boolean;
  readonly statements: readonly Statement[];
  readonly sources: readonly Source[];
  readonly open: Selection | null;
  readonly onOpen: (selection: Selection, from: HTMLElement) => void;
}

const Chips = createContext<ChipContext | null>(null);

export interface AnswerProps {
  readonly turn: string;
  readonly text: string;
  readonly writing: boolean;
  /** The text is a draft whose citations nobody has checked or will check. */
  readonly unchecked: boolean;
  readonly statements: readonly Statement[];
  readonly sources: readonly Source[];
  readonly open: Selection | null;
  readonly onOpen: (selection: Selection, from: HTMLElement) => void;
}

/** The answer's Markdown with its citations. Raw HTML stays text, images become links, links lead to the web only. */
export const Answer = memo(function Answer(props: AnswerProps) {
  const { turn, text, writing, unchecked, statements, sources, open, onOpen } = props;
  const active = open?.statement ?? null;
  const plugins = useMemo(
    () => [remarkGfm, [remarkCitations, { statements, active, cursor: writing }]] as const,
    [statements, active, writing],
  );
  const chips = useMemo(
    () => ({ turn, unchecked, statements, sources, open, onOpen }),
    [turn, unchecked, statements, sources, open, onOpen],
  );
  return (
    <Chips value={chips}>
      <div className={unchecked ? "prose draft" : "prose"} dir="auto">
        <Markdown remarkPlugins={plugins as never} components={COMPONENTS} urlTransform={webAddress}>
          {writing ? withoutUnfinishedTag(text) : text}
        </Markdown>
      </div>
    </Chips>
  );
});

/** The address where it is an absolute one of the web; "" otherwise. */
export function webAddress(url: string): string {
  return /^https?:\/\//i.test(url) && URL.canParse(url) ? url : "";
}

export function WebLink({
  href,
  className,
  children,
}: {
  href: string;
  className?: string;
  children: React.ReactNode;
}) {
  return (
    <a href={href} className={className} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  );
}

function Chip(props: { "data-source"?: number; "data-statement"?: number; "data-place"?: number }) {
  const context = useContext(Chips);
  if (!context) return null;
  const source = props["data-source"] ?? null;
  const statement = props["data-statement"] ?? null;
  const check = source === null ? undefined : checkOf(context.statements, statement, source);
  const verdict: Verdict | "draft" = source === null ? "uncited" : (check?.verdict ?? "draft");
  const title = context.sources.find((one) => one.number === source)?.title;
  const said = verdict === "draft" ? "not checked" : VERDICT_WORDS[verdict];
  const { open } = context;
  const isOpen = open !== null && open.source === source && open.statement === statement;
  // While it is written a draft's citation is only a number; one that stays must not look like one that held.
  const mark = verdict === "draft" ? (context.unchecked ? VERDICT_MARKS.unchecked : "") : VERDICT_MARKS[verdict];
  const shown = source === null ? "no source" : `[${source}${mark}]`;
  return (
    <button
      type="button"
      id={`citation-${context.turn}-${props["data-place"]}`}
      className={verdict === "draft" && context.unchecked ? "chip draft unchecked" : `chip ${verdict}`}
      aria-label={source === null ? "no source: see why" : `${shown} ${said}${title ? `: ${title}` : ""}`}
      aria-expanded={isOpen}
      title={title ? `${title} (${said})` : said}
      onClick={(event) => context.onOpen({ turn: context.turn, statement, source }, event.currentTarget)}
    >
      {shown}
    </button>
  );
}

// The question is a second-level heading of the page; the answer's headings come under it.
const heading = (Tag: "h3" | "h4" | "h5" | "h6") =>
  function Heading({ children }: { children?: React.ReactNode }) {
    return <Tag>{children}</Tag>;
  };

const COMPONENTS = {
  cite: Chip,
  a: ({ href, children }: { href?: string; children?: React.ReactNode }) =>
    href ? <WebLink href={href}>{children}</WebLink> : <>{children}</>,
  // Loading an image would tell its server who reads this, and when.
  img: ({ alt }: { alt?: string }) => <span className="image">{alt || "image"}</span>,
  table: ({ children }: { children?: React.ReactNode }) => (
    <div className="wide" role="region" aria-label="Table" tabIndex={0}>
      <table>{children}</table>
    </div>
  ),
  pre: ({ children }: { children?: React.ReactNode }) => <pre tabIndex={0}>{children}</pre>,
  input: ({ checked }: { checked?: boolean }) => (
    <span aria-label={checked ? "done" : "open"}>{checked ? "☑" : "☐"} </span>
  ),
  h1: heading("h3"),
  h2: heading("h4"),
  h3: heading("h5"),
  h4: heading("h6"),
  h5: heading("h6"),
  h6: heading("h6"),
} as unknown as Components; // <cite> as our plugin makes it carries numbers, which the library's types do not know
