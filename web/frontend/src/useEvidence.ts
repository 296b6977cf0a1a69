import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";

import type { Selection } from "./Answer";
import type { Turn } from "./run";

/** Which evidence is open; opening moves the focus to it, closing moves it back to where it came from. */
export function useEvidence(turns: readonly Turn[]) {
  const [chosen, setChosen] = useState<{ selection: Selection; ofDraft: boolean } | null>(null);
  const headingRef = useRef<HTMLHeadingElement>(null);
  const from = useRef<HTMLElement | null>(null);
  const turn = turns.find((one) => one.id === chosen?.selection.turn);
  const selection = useMemo(() => {
    if (!chosen || !turn) return null;
    return chosen.ofDraft && turn.result ? inFinalNumbers(chosen.selection, turn) : chosen.selection;
  }, [chosen, turn]);

  const latest = useRef(turns);
  latest.current = turns;
  const select = useCallback((next: Selection) => {
    const ofDraft = !latest.current.find((one) => one.id === next.turn)?.result;
    setChosen({ selection: next, ofDraft });
  }, []);
  const open = useCallback(
    (next: Selection, element: HTMLElement) => {
      from.current = element;
      select(next);
    },
    [select],
  );
  const close = useCallback(() => setChosen(null), []);
  useLayoutEffect(() => {
    const element = from.current;
    if (chosen || !element) return;
    from.current = null;
    // The citation may have been drawn anew since, by the final answer.
    const back = element.isConnected ? element : document.getElementById(element.id);
    (back ?? document.getElementById("question"))?.focus();
  }, [chosen]);
  const isGone = chosen !== null && selection === null;
  useEffect(() => {
    if (isGone) close();
  }, [isGone, close]);
  useEffect(() => {
    if (!chosen) return;
    const heading = headingRef.current;
    // Whoever walks through the citations keeps the button that does it.
    if (!heading?.closest(".panel")?.contains(document.activeElement)) heading?.focus();
    document.querySelector(".statement.open")?.scrollIntoView({ block: "nearest" });
  }, [chosen]);
  return { selection, turn: selection ? (turn ?? null) : null, headingRef, open, close, select };
}

/** What was opened from a draft, in the numbers of the final answer; null where the answer does not cite it. */
function inFinalNumbers(selection: Selection, turn: Turn): Selection | null {
  const opened = turn.sources.find((source) => source.number === selection.source);
  const now = turn.result?.sources.find((source) => source.url === opened?.url);
  return now ? { turn: turn.id, statement: null, source: now.number } : null;
}
