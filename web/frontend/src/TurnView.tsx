import { memo, useId, useMemo, useState } from "react";

import { Answer, type Selection, webAddress, WebLink } from "./Answer";
import { statementsOf } from "./citations";
import type { Result } from "./contract";
import { count, seconds } from "./format";
import { Icon, type IconName } from "./icons";
import {
  answerText,
  asMarkdown,
  headingOf,
  hostOf,
  isUnchecked,
  outcomeLabel,
  sourcesOf,
  type Step,
  stepWords,
  type Turn,
  UNCHECKED_DRAFT,
} from "./run";
import { Counts, SourceCards } from "./Sources";

interface TurnProps {
  readonly turn: Turn;
  readonly open: Selection | null;
  readonly onOpen: (selection: Selection, from: HTMLElement) => void;
  /** Ask the same question again; null while that is not possible. */
  readonly onAgain: ((question: string, instead?: string) => void) | null;
  /** Warnings that the page shows anyway. */
  readonly known: readonly string[];
}

/** One question with what was done for it, its answer and the sources of the answer. */
export const TurnView = memo(function TurnView({ turn, open, onOpen, onAgain, known }: TurnProps) {
  const heading = useId();
  const question = headingOf(turn.question);
  const running = turn.status === "running";
  const unchecked = isUnchecked(turn);
  const result = turn.result;
  const statements = useMemo(() => (result ? statementsOf(result.summary, result.checks) : []), [result]);
  const text = answerText(turn);
  const sources = sourcesOf(turn);
  const notices = turn.notices.filter((one) => !isKnown(one, known));
  return (
    <article className="turn" aria-labelledby={heading} aria-busy={running} data-status={turn.status}>
      <h2 className="question" id={heading} dir="auto">
        {question.heading}
      </h2>
      {question.whole && (
        <details className="whole-question">
          <summary>The whole question</summary>
          <p dir="auto">{turn.question}</p>
        </details>
      )}
      {turn.steps.length > 0 && <Steps steps={turn.steps} />}
      {unchecked && (
        <p className="unchecked-draft" role="note">
          <Icon name="warning" />
          <span>{UNCHECKED_DRAFT}</span>
        </p>
      )}
      {(text || running) && (
        <Answer
          turn={turn.id}
          text={text}
          writing={running}
          unchecked={unchecked}
          statements={statements}
          sources={sources}
          open={open}
          onOpen={onOpen}
        />
      )}
      {running && turn.notice && !isKnown(turn.notice, known) && <p className="notice">{turn.notice}</p>}
      {turn.error && (
        <p className="fault">
          <Icon name="warning" />
          <span>{turn.error}</span>
        </p>
      )}
      {!running && <Ending turn={turn} onAgain={onAgain} />}
      <SourceCards turn={turn} open={open} onOpen={onOpen} />
      {result && <Remarks result={result} notices={notices} known={known} />}
    </article>
  );
});

// --- what was done --------------------------------------------------------------------------------------

const STEP_ICONS: Readonly<Record<string, IconName>> = {
  search_web: "search",
  fetch_page: "page",
  read_file: "file",
  extract_pdf_text: "file",
  list_uploaded_files: "files",
  extract: "lens",
};
const STATE_WORDS = { running: "running", ok: "done", failed: "failed", unfinished: "not finished" } as const;

function Steps({ steps }: { steps: readonly Step[] }) {
  const [open, setOpen] = useState<number | null>(null);
  const id = useId();
  const shown = open === null ? undefined : steps[open];
  return (
    <div className="steps">
      <ol aria-label="What was done">
        {steps.map((step, index) => {
          const { verb, object } = stepWords(step);
          return (
            <li key={`${step.id}-${index}`}>
              <button
                type="button"
                className={`pill ${step.state}`}
                aria-expanded={open === index}
                aria-controls={open === index ? id : undefined}
                onClick={() => setOpen(open === index ? null : index)}
              >
                {step.state === "running" ? (
                  <span className="spinner" />
                ) : (
                  <Icon name={step.state === "ok" ? (STEP_ICONS[step.name] ?? "check") : "warning"} />
                )}
                <span className="pill-words">
                  {verb} <b>{object}</b>
                </span>
                {step.content && step.state !== "running" && <span className="pill-result">{step.content}</span>}
                <span className="unseen">, {STATE_WORDS[step.state]}</span>
              </button>
            </li>
          );
        })}
      </ol>
      {shown && (
        <div className="step-detail" id={id}>
          <StepDetail step={shown} />
        </div>
      )}
    </div>
  );
}

function StepDetail({ step }: { step: Step }) {
  const query = stepWords(step).object;
  return (
    <>
      <p className="soft">
        {step.name === "search_web" ? <>Query: “{query}”. </> : null}
        {step.content || STATE_WORDS[step.state]}
      </p>
      {step.items.length > 0 && (
        <ul>
          {step.items.map((item, index) => {
            const href = webAddress(item.url);
            const title = item.title || item.url;
            const fine = item.status === "" || item.status === "ok";
            return (
              <li key={index} className={fine ? "" : "unread"}>
                {href ? <WebLink href={href}>{title}</WebLink> : <span>{title}</span>}{" "}
                <span className="soft">{[hostOf(item.url), fine ? "" : item.status].filter(Boolean).join(" · ")}</span>
              </li>
            );
          })}
        </ul>
      )}
    </>
  );
}

// --- how it ended ---------------------------------------------------------------------------------------

function Ending({ turn, onAgain }: { turn: Turn; onAgain: TurnProps["onAgain"] }) {
  const label = outcomeLabel(turn);
  const result = turn.result;
  const again = onAgain && (!result || result.outcome === "failed" || result.outcome === "partial");
  return (
    <div className="ending">
      {label && (
        <span className={`outcome ${label.tone}`}>
          {label.label}
          {label.detail && <span className="outcome-detail">: {label.detail}</span>}
        </span>
      )}
      {result && <Counts result={result} />}
      {again && (
        <button type="button" className="quiet" onClick={() => onAgain(turn.question, turn.id)}>
          <Icon name="again" /> Ask again
        </button>
      )}
      {result?.summary && <CopyButton turn={turn} />}
    </div>
  );
}

/** Copies the answer as Markdown with its list of sources. Browsers allow that to secure pages only. */
function CopyButton({ turn }: { turn: Turn }) {
  const [said, setSaid] = useState("");
  if (!navigator.clipboard) return null;
  const copy = (): void => {
    navigator.clipboard.writeText(asMarkdown(turn)).then(
      () => setSaid("Copied"),
      () => setSaid("Not copied: the browser forbids it"),
    );
  };
  return (
    <span className="copy">
      <button
        type="button"
        className="round small"
        aria-label="Copy the answer"
        title="Copy the answer with its sources"
        onClick={copy}
        onBlur={() => setSaid("")}
      >
        <Icon name={said === "Copied" ? "check" : "copy"} />
      </button>
      <span aria-live="polite">{said}</span>
    </span>
  );
}

/** Whether the page shows this anyway, above everything; what comes with a run may have been shortened. */
function isKnown(said: string, known: readonly string[]): boolean {
  return known.some((one) => one === said || (said.endsWith("…") && one.startsWith(said.slice(0, -1))));
}

/** Figures of the run, warnings and notices: there for who wants them. */
function Remarks({ result, notices, known }: { result: Result; notices: readonly string[]; known: readonly string[] }) {
  const warnings = result.warnings.filter((one) => !isKnown(one, known) && one !== "no sources used");
  const unread = result.ledger.filter((entry) => entry.kind === "fetch" && entry.status !== "ok");
  const figures = [
    result.llm_provider === "mock" ? "offline mock model" : result.model,
    count(result.iterations_used, "step"),
    count(result.tokens_consumed, "token"),
    seconds(result.elapsed_seconds),
  ].filter(Boolean);
  return (
    <div className="remarks">
      {warnings.length > 0 && (
        <ul className="warnings" aria-label="Warnings">
          {warnings.map((warning) => (
            <li key={warning}>{warning}</li>
          ))}
        </ul>
      )}
      <details>
        <summary>{figures.map((figure) => figure.replaceAll(" ", "\u00a0")).join(" · ")}</summary>
        {result.counts_line && <p>{result.counts_line}</p>}
        {unread.length > 0 && (
          <>
            <h3>Could not be read</h3>
            <ul>
              {unread.map((entry, index) => (
                <li key={index}>
                  {entry.target}: {[entry.words, entry.detail].filter(Boolean).join(", ")}
                </li>
              ))}
            </ul>
          </>
        )}
        {notices.length > 0 && (
          <>
            <h3>During the run</h3>
            <ul>
              {notices.map((notice, index) => (
                <li key={index}>{notice}</li>
              ))}
            </ul>
          </>
        )}
      </details>
    </div>
  );
}
