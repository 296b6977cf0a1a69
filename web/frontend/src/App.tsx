import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "react";

import { Composer } from "./Composer";
import { Conversation } from "./Conversation";
import { FilesPanel } from "./FilesPanel";
import { Icon } from "./icons";
import { statusSentence, type Turn } from "./run";
import { ServerBanner } from "./ServerBanner";
import { SourcePanel } from "./SourcePanel";
import { chooseTheme, shownTheme, storedTheme } from "./theme";
import { TokenDialog } from "./TokenDialog";
import { useChat } from "./useChat";
import { useEvidence } from "./useEvidence";
import { LARGEST_FILE, useFiles } from "./useFiles";
import { useMedia } from "./useMedia";
import { useServer } from "./useServer";

const NARROW = "(max-width: 899px)"; // the files become a drawer
const ONE_COLUMN = "(max-width: 1179px)"; // the evidence lies over the answer
const UNDO_FOR = 10_000;
const NO_WARNINGS: readonly string[] = [];

export function App() {
  const server = useServer();
  const chat = useChat(server.onUnauthorized);
  const largest = server.health?.upload_bytes || LARGEST_FILE;
  const files = useFiles(server.onUnauthorized, largest);
  const narrow = useMedia(NARROW);
  const oneColumn = useMedia(ONE_COLUMN);
  const [question, setQuestion] = useState("");
  const [drawer, setDrawer] = useState(false);
  const [atEnd, setAtEnd] = useState(true);
  const input = useRef<HTMLTextAreaElement>(null);
  const scroller = useRef<HTMLDivElement>(null);
  const filesHeading = useRef<HTMLHeadingElement>(null);
  const drawerButton = useRef<HTMLButtonElement>(null);
  const toInput = useRef(false); // where the focus goes when the drawer closes
  const evidence = useEvidence(chat.turns);
  const undo = useUndo(chat.clear, chat.restore);
  const dropping = useDrop(files.add);

  const drawerOpen = narrow && drawer;
  const panelOver = evidence.turn !== null && oneColumn;
  const covered = drawerOpen || panelOver;

  const ask = (text: string, instead?: string): void => {
    if (!text.trim() || chat.running) return;
    chat.ask(text.trim(), instead);
    setQuestion("");
    undo.forget();
    input.current?.focus();
  };
  const closeDrawer = (): void => setDrawer(false);
  const wasOpen = useRef(false);
  useLayoutEffect(() => {
    // After the drawing: what is covered cannot take the focus.
    if (drawerOpen) filesHeading.current?.focus();
    else if (wasOpen.current) (toInput.current ? input : drawerButton).current?.focus();
    wasOpen.current = drawerOpen;
    toInput.current = false;
  }, [drawerOpen]);
  useEscape(evidence.turn ? evidence.close : drawerOpen ? closeDrawer : null);

  const giveToken = (token: string): void => {
    server.giveToken(token);
    files.reload();
  };
  // The conversation is drawn anew only when it changes, so what it is given must stay the same object.
  const latestAsk = useRef(ask);
  latestAsk.current = ask;
  const askSteadily = useCallback((text: string, instead?: string) => latestAsk.current(text, instead), []);
  const said = useSaid(chat.turns.at(-1));

  return (
    <div className="app">
      <a className="skip" href="#question" inert={covered}>
        Skip to the question
      </a>
      <header className="bar" inert={covered}>
        {narrow && (
          <button
            type="button"
            className="round"
            ref={drawerButton}
            aria-expanded={drawerOpen}
            onClick={() => setDrawer(true)}
          >
            <Icon name="files" />
            <span className="unseen">Your files </span>
            {files.files.length > 0 && <span className="badge">{files.files.length}</span>}
          </button>
        )}
        <h1>
          M3 <span>research</span>
        </h1>
        <p className="model">{server.health && !server.health.mock ? server.health.model : ""}</p>
        {chat.turns.length > 0 && (
          <button type="button" className="quiet new" onClick={undo.clear}>
            <Icon name="plus" /> <span>New conversation</span>
          </button>
        )}
        <ThemeSwitch />
      </header>

      <div className={drawerOpen ? "files-place open" : "files-place"} inert={panelOver || (narrow && !drawer)}>
        <FilesPanel
          files={files}
          largest={largest}
          modal={drawerOpen}
          headingRef={filesHeading}
          onClose={closeDrawer}
          onAsk={(name) => {
            setQuestion(`What does ${name} say about `);
            toInput.current = drawerOpen;
            setDrawer(false);
            if (!drawerOpen) input.current?.focus();
          }}
        />
      </div>

      <main className="main" inert={covered}>
        <ServerBanner server={server} />
        <Conversation
          turns={chat.turns}
          running={chat.running}
          files={files.files}
          known={server.health?.warnings ?? NO_WARNINGS}
          selection={evidence.selection}
          scroller={scroller}
          onOpen={evidence.open}
          onAsk={askSteadily}
          onAtEnd={setAtEnd}
        />
        <div className="foot">
          {!atEnd && chat.running && (
            <button
              type="button"
              className="to-end"
              onClick={() => scroller.current?.scrollTo({ top: scroller.current.scrollHeight })}
            >
              <Icon name="down" /> Latest
            </button>
          )}
          {undo.possible && (
            <p className="undo" role="status">
              Conversation cleared.{" "}
              <button type="button" className="quiet" onClick={undo.undo}>
                Undo
              </button>
            </p>
          )}
          <Composer
            value={question}
            onChange={setQuestion}
            running={chat.running}
            stopping={chat.stopping}
            inputRef={input}
            onAsk={() => ask(question)}
            onStop={chat.stop}
          />
          <p className="small-print">Answers can be wrong. Check the citations.</p>
        </div>
      </main>

      {evidence.turn && evidence.selection && (
        <div className="panel-place">
          <SourcePanel
            turn={evidence.turn}
            selection={evidence.selection}
            modal={oneColumn}
            headingRef={evidence.headingRef}
            onSelect={evidence.select}
            onClose={evidence.close}
          />
        </div>
      )}
      {covered && <div className="scrim" onClick={panelOver ? evidence.close : closeDrawer} />}
      {dropping && <div className="dropping">Drop to add to your files</div>}
      <p className="unseen" role="status" aria-live="polite">
        {said}
      </p>
      {server.token !== "fine" && <TokenDialog refused={server.token === "refused"} onToken={giveToken} />}
    </div>
  );
}

function ThemeSwitch() {
  const [theme, setTheme] = useState(storedTheme);
  useMedia("(prefers-color-scheme: dark)"); // draw anew when the system changes
  const other = shownTheme(theme) === "dark" ? "light" : "dark";
  return (
    <button
      type="button"
      className="round"
      aria-label={`Switch to the ${other} theme`}
      title={`Switch to the ${other} theme`}
      onClick={() => {
        chooseTheme(other);
        setTheme(other);
      }}
    >
      <Icon name={other === "dark" ? "moon" : "sun"} />
    </button>
  );
}

/** "New conversation" without asking back: for some seconds it can be taken back. */
function useUndo(clear: () => readonly Turn[], restore: (turns: readonly Turn[]) => void) {
  const [before, setBefore] = useState<readonly Turn[] | null>(null);
  useEffect(() => {
    if (!before) return;
    const timer = setTimeout(() => setBefore(null), UNDO_FOR);
    return () => clearTimeout(timer);
  }, [before]);
  return {
    possible: before !== null,
    clear: () => {
      setBefore(clear());
      document.getElementById("question")?.focus();
    },
    undo: () => {
      if (before) restore(before);
      setBefore(null);
      document.getElementById("question")?.focus();
    },
    forget: () => setBefore(null),
  };
}

/** Files may be dropped anywhere on the page. True while some are held over it. */
function useDrop(add: (files: Iterable<File>) => void): boolean {
  const [over, setOver] = useState(false);
  useEffect(() => {
    const hasFiles = (event: DragEvent): boolean => event.dataTransfer?.types.includes("Files") ?? false;
    const onOver = (event: DragEvent): void => {
      if (!hasFiles(event)) return;
      event.preventDefault(); // without this the browser opens the file in place of the page
      setOver(true);
    };
    const onLeave = (event: DragEvent): void => {
      if (!event.relatedTarget) setOver(false);
    };
    const onDrop = (event: DragEvent): void => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setOver(false);
      add(Array.from(event.dataTransfer?.files ?? []));
    };
    document.addEventListener("dragover", onOver);
    document.addEventListener("dragleave", onLeave);
    document.addEventListener("drop", onDrop);
    return () => {
      document.removeEventListener("dragover", onOver);
      document.removeEventListener("dragleave", onLeave);
      document.removeEventListener("drop", onDrop);
    };
  }, [add]);
  return over;
}

function useEscape(close: (() => void) | null): void {
  const latest = useRef(close);
  latest.current = close;
  useEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (event.key !== "Escape" || !latest.current || event.defaultPrevented) return;
      event.preventDefault();
      latest.current();
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
}

/** What the screen reader is told of the last turn; nothing about a conversation that was only loaded. */
function useSaid(turn: Turn | undefined): string {
  const ran = useRef(false);
  if (turn?.status === "running") ran.current = true;
  return turn && ran.current ? statusSentence(turn) : "";
}
