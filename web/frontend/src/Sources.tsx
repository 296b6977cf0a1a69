import type { Selection } from "./Answer";
import type { Result, Source, Verdict } from "./contract";
import { count } from "./format";
import { Icon } from "./icons";
import { hostOf, sourcesOf, type Turn } from "./run";

const COUNTED: readonly (readonly [Verdict, string])[] = [
  ["matched", "matched"],
  ["partly", "partly"],
  ["not_found", "not found"],
  ["unchecked", "unchecked"],
  ["uncited", "uncited"],
];

type Counted = Readonly<Partial<Record<string, number>>>;

/** How many of each verdict, those that there are. */
function Tallies({ counts }: { counts: Counted }) {
  return (
    <span className="tallies">
      {COUNTED.map(([verdict, word]) => ({ verdict, word, n: counts[verdict] ?? 0 }))
        .filter(({ n }) => n > 0)
        .map(({ verdict, word, n }) => (
          <span key={verdict} className={`tally ${verdict}`}>
            <i aria-hidden="true" /> {n} {word}
          </span>
        ))}
    </span>
  );
}

/** The verdicts on the summary's statements, as a bar and in words. */
export function Counts({ result }: { result: Result }) {
  const total = result.counts["statements"] ?? 0;
  if (!total) return null;
  let left = 0;
  return (
    <span className="counts">
      <svg className="meter" viewBox="0 0 100 6" width="64" height="6" aria-hidden="true" preserveAspectRatio="none">
        {COUNTED.map(([verdict]) => {
          const share = ((result.counts[verdict] ?? 0) / total) * 100;
          const x = left;
          left += share;
          return (
            share > 0 && (
              <rect key={verdict} className={verdict} x={x} width={Math.max(0, share - 1)} height="6" rx="1.5" />
            )
          );
        })}
      </svg>
      <span>{count(total, "statement")}:</span> <Tallies counts={result.counts} />
    </span>
  );
}

interface CardsProps {
  readonly turn: Turn;
  readonly open: Selection | null;
  readonly onOpen: (selection: Selection, from: HTMLElement) => void;
}

/** The sources of an answer; while it is being written those read so far, closed, so that its words stay in view. */
export function SourceCards({ turn, open, onOpen }: CardsProps) {
  const sources = sourcesOf(turn);
  if (sources.length === 0) return null;
  const cards = (
    <ol>
      {sources.map((source) => (
        <li key={source.number}>
          <button
            type="button"
            className="card"
            id={`source-${turn.id}-${source.number}`}
            aria-expanded={open?.source === source.number && open.statement === null}
            onClick={(event) => onOpen({ turn: turn.id, statement: null, source: source.number }, event.currentTarget)}
          >
            <Card source={source} checked={turn.result !== null} />
          </button>
        </li>
      ))}
    </ol>
  );
  if (turn.status === "running")
    return (
      <details className="sources so-far">
        <summary>{count(sources.length, "source")} read so far</summary>
        {cards}
      </details>
    );
  const title = turn.result ? "Sources" : "Sources read";
  return (
    <section className="sources" aria-label={title}>
      <h3>{title}</h3>
      {cards}
    </section>
  );
}

function Card({ source, checked }: { source: Source; checked: boolean }) {
  const isChecked = checked && Object.values(source.verdicts).some((n) => n > 0);
  return (
    <>
      <span className="card-head">
        <span className="card-number">{source.number}</span>
        <span className="card-where">
          {source.kind === "file" && <Icon name="file" />}
          <span>{whereOf(source)}</span>
        </span>
      </span>
      <span className="card-title" dir="auto">
        {source.title || source.label || source.url}
      </span>
      {isChecked ? (
        <Tallies counts={source.verdicts} />
      ) : (
        <span className="soft">{checked ? "cited" : "not checked"}</span>
      )}
    </>
  );
}

/** Where a source is from, in few words: `report.pdf, p. 3`, `example.org`, or the address as it is. */
export function whereOf(source: Source): string {
  if (source.kind === "file") return source.label || source.title;
  return (source.domain || hostOf(source.url)).replace(/^www\./, "") || source.url;
}
