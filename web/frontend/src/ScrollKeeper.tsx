import { Component, type ReactNode, type RefObject } from "react";

interface Props {
  readonly children: ReactNode;
  /** How many questions were asked. When it changes the end is shown, whatever was shown before. */
  readonly asked: number;
  /** Whether the last answer has words already. */
  readonly drafted: boolean;
  /** How many runs have ended. When it changes the words that are being read stay where they are. */
  readonly ended: number;
  readonly onAtEnd: (atEnd: boolean) => void;
  readonly scroller: RefObject<HTMLDivElement | null>;
}

interface Snapshot {
  readonly atEnd: boolean;
  readonly height: number;
  readonly anchor: HTMLElement | null;
  readonly top: number;
}

const NEAR = 48;
const LEAP = 0.75; // of the view, added at once: nobody has read that yet
const ABOVE_QUESTION = 20;
const BLOCKS = ".question, .steps, .prose > *, .prose li, .ending, .sources, .remarks";

/**
 * The scrolling part of the page. It follows what is written only while its end is in view, and does not run past what
 * came all at once. Otherwise, and when the final answer takes the draft's place, the first block in view keeps its
 * place on the screen.
 */
export class ScrollKeeper extends Component<Props> {
  override getSnapshotBeforeUpdate(): Snapshot {
    const box = this.props.scroller.current;
    if (!box) return { atEnd: true, height: 0, anchor: null, top: 0 };
    const anchor = firstInView(box);
    return { atEnd: isAtEnd(box), height: box.scrollHeight, anchor, top: anchor?.getBoundingClientRect().top ?? 0 };
  }

  override componentDidUpdate(before: Props, _state: unknown, { atEnd, height, anchor, top }: Snapshot): void {
    const box = this.props.scroller.current;
    if (!box) return;
    const justEnded = before.ended !== this.props.ended;
    const justAsked = before.asked !== this.props.asked;
    const follows = justAsked || (atEnd && !(justEnded && before.drafted));
    if (this.props.asked > 0 && follows) box.scrollTop = justAsked ? box.scrollHeight : ahead(box, height);
    else if (anchor?.isConnected) box.scrollTop += anchor.getBoundingClientRect().top - top;
    this.tell();
  }

  override componentDidMount(): void {
    const box = this.props.scroller.current;
    if (box && this.props.asked > 0) box.scrollTop = box.scrollHeight;
  }

  private readonly tell = (): void => {
    const box = this.props.scroller.current;
    if (box) this.props.onAtEnd(isAtEnd(box));
  };

  override render(): ReactNode {
    return (
      <div
        className="scroller"
        ref={this.props.scroller}
        onScroll={this.tell}
        role="region"
        aria-label="Conversation"
        tabIndex={0}
      >
        <div className="column">{this.props.children}</div>
      </div>
    );
  }
}

/** Where to scroll to see what has been added: the end, but no further than the question where that is a screenful. */
function ahead(box: HTMLElement, height: number): number {
  const isLeap = box.scrollHeight - height > box.clientHeight * LEAP;
  const question = [...box.querySelectorAll(".question")].at(-1);
  if (!isLeap || !question) return box.scrollHeight;
  const toQuestion = question.getBoundingClientRect().top - box.getBoundingClientRect().top - ABOVE_QUESTION;
  return Math.max(box.scrollTop, box.scrollTop + toQuestion);
}

function isAtEnd(box: HTMLElement): boolean {
  return box.scrollHeight - box.scrollTop - box.clientHeight < NEAR;
}

/** The first block whose top edge is in view, else the one that fills the view. */
function firstInView(box: HTMLElement): HTMLElement | null {
  const { top, bottom } = box.getBoundingClientRect();
  let filling: HTMLElement | null = null;
  for (const turn of box.querySelectorAll<HTMLElement>(".turn")) {
    const area = turn.getBoundingClientRect();
    if (area.bottom < top || area.top > bottom) continue;
    for (const block of turn.querySelectorAll<HTMLElement>(BLOCKS)) {
      const { top: begin, bottom: end } = block.getBoundingClientRect();
      if (begin >= top && begin < bottom) return block;
      if (begin < top && end > top) filling = block;
    }
  }
  return filling;
}
