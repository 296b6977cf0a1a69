import { type RefObject, useId, useLayoutEffect } from "react";

import { Icon } from "./icons";

export const LONGEST_QUESTION = 16_000;
const TALLEST = 200;

interface ComposerProps {
  readonly value: string;
  readonly onChange: (value: string) => void;
  readonly running: boolean;
  /** The run was told to stop and ends with what it has; stopping again ends it at once. */
  readonly stopping: boolean;
  readonly inputRef: RefObject<HTMLTextAreaElement | null>;
  readonly onAsk: () => void;
  readonly onStop: () => void;
}

/** Where the question is written. Enter asks, Shift+Enter begins a new line. */
export function Composer({ value, onChange, running, stopping, inputRef, onAsk, onStop }: ComposerProps) {
  const stop = stopping ? "Stop at once" : "Stop";
  const hint = useId();
  useLayoutEffect(() => {
    const area = inputRef.current;
    if (!area) return;
    area.style.height = "auto";
    area.style.height = `${Math.min(area.scrollHeight, TALLEST)}px`;
  }, [value, inputRef]);
  return (
    <form
      className="composer"
      onSubmit={(event) => {
        event.preventDefault();
        onAsk();
      }}
    >
      <textarea
        ref={inputRef}
        id="question"
        rows={1}
        dir="auto"
        value={value}
        maxLength={LONGEST_QUESTION}
        placeholder="Ask a research question"
        aria-label="Your question"
        aria-describedby={hint}
        enterKeyHint="send"
        onChange={(event) => onChange(event.target.value)}
        onKeyDown={(event) => {
          // While an input method composes a character, Enter belongs to it.
          if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
          event.preventDefault();
          onAsk();
        }}
      />
      {running ? (
        <button type="button" className="send stop" aria-label={stop} title={stop} onClick={onStop}>
          <Icon name="stop" />
        </button>
      ) : (
        <button type="submit" className="send" aria-label="Ask" title="Ask" disabled={!value.trim()}>
          <Icon name="send" />
        </button>
      )}
      <p className="unseen" id={hint}>
        Enter asks, Shift and Enter begin a new line.
      </p>
    </form>
  );
}
