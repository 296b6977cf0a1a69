import { useId, useState } from "react";

import { Icon } from "./icons";
import type { Server } from "./useServer";

/** What the reader must know of the server: that it is away, or that no real model or no web search answers. */
export function ServerBanner({ server }: { server: Server }) {
  const { state, health } = server;
  if (state === "down")
    return (
      <div className="banner bad" role="status">
        <Icon name="warning" />
        <p>
          <b>The server could not be reached.</b> Your conversation is kept in this browser.
        </p>
        <button type="button" className="quiet" onClick={server.retry}>
          Try again
        </button>
      </div>
    );
  if (!health || (!health.mock && health.configured && health.warnings.length === 0)) return null;
  if (health.mock)
    return (
      <Warning headline="Offline mock model" details={health.warnings}>
        Sentences are copied from sources by a fixed rule; no language model answers.
      </Warning>
    );
  if (!health.configured) return <Warning headline="No language model is configured" details={health.warnings} />;
  return <Warning headline="Please note" details={health.warnings} />;
}

function Warning({ headline, children, details }: { headline: string; children?: string; details: readonly string[] }) {
  const list = useId();
  const [open, setOpen] = useState(!children);
  return (
    <div className="banner warn" role="note" aria-label="About this server">
      <Icon name="warning" />
      <div>
        <p>
          <b>{headline}.</b> {children}{" "}
          {details.length > 0 && (
            <button
              type="button"
              className="more"
              aria-expanded={open}
              aria-controls={list}
              onClick={() => setOpen(!open)}
            >
              {open ? "Less" : "More"}
            </button>
          )}
        </p>
        <ul id={list} hidden={!open}>
          {details.map((warning) => (
            <li key={warning}>{warning}</li>
          ))}
        </ul>
      </div>
    </div>
  );
}
