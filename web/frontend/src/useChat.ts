import { useCallback, useEffect, useReducer, useRef, useState } from "react";

import { ask, RequestError, stopRun } from "./api";
import type { ChatEvent } from "./contract";
import { applyEvent, BROKEN, closed, type Message, messagesFor, newTurn, type Status, STOPPING, type Turn } from "./run";
import { SilentStreamError } from "./sse";
import { randomId, Shelf } from "./storage";

/**
 * Events are gathered this many milliseconds before the page is drawn anew, since a stream may bring hundreds a second.
 * The draft is parsed as a whole each time, so a long one is drawn less often.
 */
const gatherFor = (drafted: number): number => 40 + drafted / 80;
const SAVE_EVERY = 500;
/** A run that was told to stop writes and checks what it has; after this many milliseconds nobody waits for it. */
const STOP_PATIENCE = 15_000;

type Action =
  | { readonly do: "ask"; readonly turn: Turn; readonly instead: string | undefined }
  | { readonly do: "events"; readonly id: string; readonly events: readonly ChatEvent[] }
  | { readonly do: "close"; readonly id: string; readonly status: Status; readonly error?: string }
  | { readonly do: "set"; readonly turns: readonly Turn[] };

function reduce(turns: readonly Turn[], action: Action): readonly Turn[] {
  const only = (id: string, change: (turn: Turn) => Turn) =>
    turns.map((turn) => (turn.id === id ? change(turn) : turn));
  switch (action.do) {
    case "ask":
      return [...turns.filter((turn) => turn.id !== action.instead), action.turn];
    case "events":
      return only(action.id, (turn) => action.events.reduce(applyEvent, turn));
    case "close":
      return only(action.id, (turn) => closed(turn, action.status, action.error ?? turn.error));
    case "set":
      return action.turns;
  }
}

export interface Chat {
  readonly turns: readonly Turn[];
  readonly running: boolean;
  /** Ask a question, in place of the turn `instead` where one is asked again. */
  readonly ask: (question: string, instead?: string) => void;
  /** End the run with what it has; the second time, at once and with nothing checked. */
  readonly stop: () => void;
  /** Whether the run has been told to stop. */
  readonly stopping: boolean;
  /** Begin anew; gives back what was there, for `restore`. */
  readonly clear: () => readonly Turn[];
  readonly restore: (turns: readonly Turn[]) => void;
}

/** The run that is going on: how its stream is cut, under which name the server can be told to stop it. */
interface Going {
  readonly cut: AbortController;
  readonly turn: string;
  name: string;
  stopping: boolean;
}

/** The conversation and the one run that may be going on in it. `onUnauthorized`: the server wants another token. */
export function useChat(onUnauthorized: () => void): Chat {
  const [turns, dispatch] = useReducer(reduce, undefined, () => tabsShelf().load());
  const run = useRef<Going | null>(null);
  const [stopping, setStopping] = useState(false);
  const running = turns.some((turn) => turn.status === "running");
  const latest = useRef(turns);
  latest.current = turns;
  useSaved(turns);

  const start = useCallback(
    (question: string, instead?: string) => {
      if (run.current) return;
      const turn = newTurn(randomId(), question, new Date().toISOString());
      const going: Going = { cut: new AbortController(), turn: turn.id, name: "", stopping: false };
      run.current = going;
      setStopping(false);
      const messages = messagesFor(
        latest.current.filter((one) => one.id !== instead),
        question,
      );
      dispatch({ do: "ask", turn, instead });
      const gathered = gatherer((events) => dispatch({ do: "events", id: turn.id, events }));
      void follow(messages, going, gathered.push)
        .then((end) => {
          gathered.flush();
          dispatch({ do: "close", id: turn.id, ...end });
          if (end.unauthorized) onUnauthorized();
        })
        .finally(() => {
          if (run.current === going) run.current = null;
        });
    },
    [onUnauthorized],
  );

  const stop = useCallback(() => {
    const going = run.current;
    if (!going) return;
    // A run that the server has not begun has nothing to be checked, and who presses again does not want to wait.
    if (going.stopping || !going.name) return going.cut.abort();
    going.stopping = true;
    setStopping(true);
    dispatch({ do: "events", id: going.turn, events: [{ type: "notice", content: STOPPING }] });
    const patience = setTimeout(() => going.cut.abort(), STOP_PATIENCE);
    going.cut.signal.addEventListener("abort", () => clearTimeout(patience));
    stopRun(going.name).catch(() => {
      if (run.current === going) going.cut.abort(); // it has not heard: the closed connection tells it too
    });
  }, []);
  const clear = useCallback(() => {
    const before = latest.current.map((turn) => closed(turn, "stopped"));
    run.current?.cut.abort();
    run.current = null;
    dispatch({ do: "set", turns: [] });
    return before;
  }, []);
  const restore = useCallback((before: readonly Turn[]) => dispatch({ do: "set", turns: before }), []);
  return { turns, running, stopping: running && stopping, ask: start, stop, clear, restore };
}

interface End {
  readonly status: Status;
  readonly error?: string;
  readonly unauthorized?: boolean;
}

/** Read one run to its end. Says how the turn is to be closed where no `done` has closed it. */
async function follow(
  messages: readonly Message[],
  going: Going,
  onEvent: (event: ChatEvent) => void,
): Promise<End> {
  const { signal } = going.cut;
  try {
    for await (const event of ask(messages, signal, (name) => (going.name = name))) onEvent(event);
    return { status: "broken", error: BROKEN };
  } catch (problem) {
    if (signal.aborted) return { status: "stopped" };
    if (problem instanceof RequestError)
      return { status: "refused", error: problem.message, unauthorized: problem.status === 401 };
    if (problem instanceof SilentStreamError || problem instanceof TypeError)
      return { status: "broken", error: BROKEN };
    return { status: "broken", error: problem instanceof Error ? `${BROKEN} (${problem.message})` : BROKEN };
  }
}

function gatherer(send: (events: readonly ChatEvent[]) => void): {
  push: (event: ChatEvent) => void;
  flush: () => void;
} {
  let waiting: ChatEvent[] = [];
  let timer: ReturnType<typeof setTimeout> | undefined;
  let drafted = 0;
  const flush = (): void => {
    clearTimeout(timer);
    timer = undefined;
    if (waiting.length > 0) send(waiting);
    waiting = [];
  };
  return {
    push(event) {
      waiting.push(event);
      if (event.type === "text") drafted += event.content.length;
      timer ??= setTimeout(flush, gatherFor(drafted));
    },
    flush,
  };
}

let shelf: Shelf | undefined;

/** Where this tab keeps its conversation; one for the whole life of the page, since its name is taken when it is made. */
const tabsShelf = (): Shelf => (shelf ??= new Shelf());

/** Keep the stored conversation up to date: twice a second while it changes, and when the page is left. */
function useSaved(turns: readonly Turn[]): void {
  const loaded = useRef(turns);
  const latest = useRef(turns);
  latest.current = turns;
  const unsaved = useRef<readonly Turn[] | null>(null);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const save = useCallback(() => {
    clearTimeout(timer.current);
    timer.current = undefined;
    if (unsaved.current) tabsShelf().save(unsaved.current);
    unsaved.current = null;
  }, []);
  useEffect(() => {
    // Looking at a conversation changes nothing: another tab may be writing it.
    if (turns === loaded.current) return;
    unsaved.current = turns;
    timer.current ??= setTimeout(save, SAVE_EVERY);
  }, [turns, save]);
  useEffect(() => {
    const leave = (): void => {
      save();
      tabsShelf().leave(latest.current);
    };
    const back = (): void => tabsShelf().comeBack();
    window.addEventListener("pagehide", leave);
    window.addEventListener("pageshow", back);
    document.addEventListener("visibilitychange", save);
    return () => {
      window.removeEventListener("pagehide", leave);
      window.removeEventListener("pageshow", back);
      document.removeEventListener("visibilitychange", save);
    };
  }, [save]);
}
