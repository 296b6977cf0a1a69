import { memo, type RefObject, useState } from "react";

import type { Selection } from "./Answer";
import type { StoredFile } from "./contract";
import { Empty } from "./Empty";
import { count } from "./format";
import type { Turn } from "./run";
import { ScrollKeeper } from "./ScrollKeeper";
import { TurnView } from "./TurnView";

/** Turns that are drawn when the page opens; a long conversation takes seconds to draw as a whole. */
const AT_FIRST = 10;
const MORE = 20;

interface ConversationProps {
  readonly turns: readonly Turn[];
  readonly running: boolean;
  readonly files: readonly StoredFile[];
  readonly known: readonly string[];
  readonly selection: Selection | null;
  readonly scroller: RefObject<HTMLDivElement | null>;
  readonly onOpen: (selection: Selection, from: HTMLElement) => void;
  readonly onAsk: (question: string, instead?: string) => void;
  readonly onAtEnd: (atEnd: boolean) => void;
}

/** All questions and answers. Drawn anew only when one of them changes, not while a question is typed. */
export const Conversation = memo(function Conversation(props: ConversationProps) {
  const { turns, running, selection } = props;
  const [first, setFirst] = useState(turns.at(-AT_FIRST)?.id); // the oldest turn that is drawn
  const hidden = Math.max(
    0,
    turns.findIndex((turn) => turn.id === first),
  );
  const last = turns.at(-1);
  const ended = turns.filter((turn) => turn.status !== "running").length;
  return (
    <ScrollKeeper
      scroller={props.scroller}
      asked={turns.length}
      ended={ended}
      drafted={!!last?.draft}
      onAtEnd={props.onAtEnd}
    >
      {turns.length === 0 && <Empty files={props.files} onAsk={props.onAsk} />}
      {hidden > 0 && (
        <button type="button" className="quiet earlier" onClick={() => setFirst(turns[Math.max(0, hidden - MORE)]?.id)}>
          {count(hidden, "earlier question")}
        </button>
      )}
      {turns.slice(hidden).map((turn) => (
        <TurnView
          key={turn.id}
          turn={turn}
          open={selection?.turn === turn.id ? selection : null}
          onOpen={props.onOpen}
          onAgain={turn === last && !running ? props.onAsk : null}
          known={props.known}
        />
      ))}
    </ScrollKeeper>
  );
});
