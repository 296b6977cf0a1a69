import { type RefObject, useMemo } from "react";

import { type Selection, webAddress, WebLink } from "./Answer";
import { statementsOf, VERDICT_WORDS } from "./citations";
import type { Check, Passage, Source } from "./contract";
import { day } from "./format";
import { Icon } from "./icons";
import { sourcesOf, type Turn } from "./run";
import { whereOf } from "./Sources";
import { markedWords } from "./words";

interface PanelProps {
  readonly turn: Turn;
  readonly selection: Selection;
  /** Whether the panel lies over the page, which then cannot be reached. */
  readonly modal: boolean;
  readonly headingRef: RefObject<HTMLHeadingElement | null>;
  readonly onSelect: (selection: Selection) => void;
  readonly onClose: () => void;
}

/** The evidence of one citation: what the answer says, the verdict, and the passage's own words. */
export function SourcePanel({ turn, selection, modal, headingRef, onSelect, onClose }: PanelProps) {
  const statements = useMemo(
    () => (turn.result ? statementsOf(turn.result.summary, turn.result.checks) : []),
    [turn.result],
  );
  const source = sourcesOf(turn).find((one) => one.number === selection.source);
  const statement = selection.statement === null ? undefined : statements[selection.statement];
  const check = statement?.checks.find((one) => one.source === selection.source);
  const places = statements.flatMap((one, index) =>
    one.checks.map((each): Selection => ({ turn: turn.id, statement: index, source: each.source })),
  );
  const here = places.findIndex((one) => one.statement === selection.statement && one.source === selection.source);
  const step = (by: 1 | -1): void => onSelect(places.at((here + by) % places.length) ?? selection); // round and round
  const title = source
    ? source.title || source.label || source.url
    : check && check.source === null
      ? "No source is cited"
      : "Unknown source";
  return (
    <aside
      className="panel"
      role={modal ? "dialog" : "complementary"}
      aria-modal={modal || undefined}
      aria-labelledby="panel-title"
    >
      <header className="panel-head">
        <div>
          <p className="panel-over">{source ? `Source ${source.number}` : "Evidence"}</p>
          <h2 dir="auto" id="panel-title" ref={headingRef} tabIndex={-1}>
            {title}
          </h2>
        </div>
        <button type="button" className="round" aria-label="Close the evidence" onClick={onClose}>
          <Icon name="close" />
        </button>
      </header>
      <div className="panel-body" role="region" aria-labelledby="panel-title" tabIndex={0}>
        {source && <About source={source} />}
        {check ? (
          <Evidence check={check} source={source} turn={turn.id} onSelect={onSelect} sources={sourcesOf(turn)} />
        ) : (
          source && <WholeSource source={source} turn={turn} onSelect={onSelect} />
        )}
        {!source && !check && <p className="soft">Nothing that was read has this number.</p>}
        {turn.result && <p className="method">Matched by wording, numbers and names, not by meaning.</p>}
      </div>
      {here >= 0 && places.length > 1 && (
        <nav className="panel-foot" aria-label="Citations of this answer">
          <button type="button" className="round" aria-label="Previous citation" onClick={() => step(-1)}>
            <Icon name="left" />
          </button>
          <span aria-live="polite">
            Citation {here + 1} of {places.length}
            {check && <span className="unseen">: {VERDICT_WORDS[check.verdict]}</span>}
          </span>
          <button type="button" className="round" aria-label="Next citation" onClick={() => step(1)}>
            <Icon name="right" />
          </button>
        </nav>
      )}
    </aside>
  );
}

function About({ source }: { source: Source }) {
  const href = webAddress(source.url);
  const facts = [whereOf(source), source.author, day(source.published)].filter(Boolean);
  return (
    <div className="about">
      <p className="soft">{facts.join(" · ")}</p>
      {source.notes.map((note) => (
        <p key={note} className="soft">
          {note}
        </p>
      ))}
      {href && (
        <p>
          <WebLink href={href} className="out">
            Open the page <Icon name="out" />
          </WebLink>
        </p>
      )}
    </div>
  );
}

interface EvidenceProps {
  readonly check: Check;
  readonly source: Source | undefined;
  readonly sources: readonly Source[];
  readonly turn: string;
  readonly onSelect: (selection: Selection) => void;
}

function Evidence({ check, source, sources, turn, onSelect }: EvidenceProps) {
  const better = check.better_source === null ? undefined : sources.find((one) => one.number === check.better_source);
  return (
    <>
      <section>
        <h3>The answer says</h3>
        <blockquote className="claim" dir="auto">
          {check.claim}
        </blockquote>
        <p className={`verdict ${check.verdict}`}>
          <i aria-hidden="true" /> {VERDICT_WORDS[check.verdict]}
        </p>
        {check.why && <p className="soft why">{sentenceCase(check.why)}</p>}
        {check.missing.length > 0 && (
          <p className="soft">
            Not on the page:{" "}
            {check.missing.map((word, index) => (
              <span key={word}>
                {index > 0 && ", "}
                <b>{word}</b>
              </span>
            ))}
          </p>
        )}
        {better && (
          <button
            type="button"
            className="quiet"
            onClick={() => onSelect({ turn, statement: null, source: better.number })}
          >
            See source {better.number}
          </button>
        )}
      </section>
      {source && check.passages.length > 0 && (
        <section>
          <h3>{check.verdict === "not_found" ? "The closest words on the page" : "The page says"}</h3>
          {check.passages.map((passage) => (
            <PassageView key={passage.start} passage={passage} claim={check.claim} />
          ))}
        </section>
      )}
    </>
  );
}

function WholeSource({
  source,
  turn,
  onSelect,
}: {
  source: Source;
  turn: Turn;
  onSelect: (selection: Selection) => void;
}) {
  const statements = turn.result ? statementsOf(turn.result.summary, turn.result.checks) : [];
  const citing = statements.flatMap((one, index) => {
    const check = one.checks.find((each) => each.source === source.number);
    return check ? [{ index, check }] : [];
  });
  return (
    <>
      {!turn.result && (
        <p className="soft">
          {turn.status === "running"
            ? "The answer is checked against this source when it is complete."
            : "The draft was not checked against this source."}
        </p>
      )}
      {source.passages.length > 0 && (
        <section>
          <h3>{turn.result ? "Passages behind the answer" : "Passages read"}</h3>
          {source.passages.map((passage) => (
            <PassageView key={passage.start} passage={passage} claim="" />
          ))}
        </section>
      )}
      {citing.length > 0 && (
        <section>
          <h3>Cited by</h3>
          <ul className="citing">
            {citing.map(({ index, check }) => (
              <li key={index}>
                <button
                  type="button"
                  onClick={() => onSelect({ turn: turn.id, statement: index, source: source.number })}
                >
                  <span className={`verdict ${check.verdict}`}>
                    <i aria-hidden="true" /> {VERDICT_WORDS[check.verdict]}
                  </span>
                  {check.claim}
                </button>
              </li>
            ))}
          </ul>
        </section>
      )}
    </>
  );
}

function PassageView({ passage, claim }: { passage: Passage; claim: string }) {
  const link = webAddress(passage.link);
  return (
    <figure className="passage">
      <blockquote dir="auto">
        {markedWords(passage.quote, claim).map(({ text, hit }, index) =>
          hit ? <mark key={index}>{text}</mark> : text,
        )}
      </blockquote>
      {(link || passage.page_number !== null) && (
        <figcaption>
          {passage.page_number !== null && <span>p. {passage.page_number}</span>}
          {link && (
            <WebLink href={link} className="out">
              Open the page at these words <Icon name="out" />
            </WebLink>
          )}
        </figcaption>
      )}
    </figure>
  );
}

const sentenceCase = (words: string): string => words.charAt(0).toUpperCase() + words.slice(1);
