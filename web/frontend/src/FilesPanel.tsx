import { type RefObject, useId, useRef, useState } from "react";

import { bytes, when } from "./format";
import { Icon } from "./icons";
import { FILE_TYPES, type Files } from "./useFiles";

interface FilesProps {
  readonly files: Files;
  readonly largest: number;
  readonly modal: boolean;
  readonly headingRef: RefObject<HTMLHeadingElement | null>;
  readonly onClose: () => void;
  readonly onAsk: (name: string) => void;
}

/** The reader's own files: add, see, ask about, delete. */
export function FilesPanel({ files, largest, modal, headingRef, onClose, onAsk }: FilesProps) {
  const input = useRef<HTMLInputElement>(null);
  const hint = useId();
  const [doubted, setDoubted] = useState("");
  return (
    <aside
      className="files"
      role={modal ? "dialog" : "complementary"}
      aria-modal={modal || undefined}
      aria-labelledby="files-title"
    >
      <header className="panel-head">
        <h2 id="files-title" ref={headingRef} tabIndex={-1}>
          Your files
        </h2>
        {modal && (
          <button type="button" className="round" aria-label="Close the files" onClick={onClose}>
            <Icon name="close" />
          </button>
        )}
      </header>
      <div className="files-body" role="region" aria-labelledby="files-title" tabIndex={0}>
        <div className="drop">
          <button type="button" className="choose" aria-describedby={hint} onClick={() => input.current?.click()}>
            <Icon name="upload" /> Add files
          </button>
          <p className="soft" id={hint}>
            Or drop them anywhere. PDF, text, Markdown, CSV, HTML; up to {bytes(largest)}.
          </p>
          <input
            ref={input}
            type="file"
            multiple
            hidden
            accept={FILE_TYPES.join(",")}
            onChange={(event) => {
              files.add(Array.from(event.target.files ?? []));
              event.target.value = "";
            }}
          />
        </div>
        {files.error && (
          <p className="fault">
            <Icon name="warning" />
            <span>{files.error}</span>
            <button type="button" className="quiet" onClick={files.reload}>
              Try again
            </button>
          </p>
        )}
        {files.uploads.length > 0 && (
          <ul className="uploads" aria-label="Being uploaded">
            {files.uploads.map(({ id, name, share, error }) => (
              <li key={id} className={error ? "failed" : ""}>
                <span className="file-name">{name}</span>
                <button
                  type="button"
                  className="round small"
                  aria-label={error ? `Dismiss ${name}` : `Cancel ${name}`}
                  onClick={() => files.cancel(id)}
                >
                  <Icon name="close" />
                </button>
                {error ? (
                  <span className="file-facts bad">{error}</span>
                ) : (
                  <>
                    <progress aria-label={`Upload of ${name}`} max={1} value={share} />
                    <span className="file-facts">{share < 1 ? `${Math.floor(share * 100)} %` : "being read"}</span>
                  </>
                )}
              </li>
            ))}
          </ul>
        )}
        {files.files.length > 0 ? (
          <ul className="stored" aria-label="Uploaded files">
            {files.files.map(({ name, size, uploaded_at }) => (
              <li key={name}>
                <Icon name="file" />
                <span className="file-name" title={name}>
                  {name}
                </span>
                <span className="file-facts">{[bytes(size), when(uploaded_at)].filter(Boolean).join(" · ")}</span>
                {doubted === name ? (
                  <span className="file-sure">
                    <button
                      type="button"
                      className="danger"
                      autoFocus
                      onClick={() => {
                        setDoubted("");
                        headingRef.current?.focus();
                        void files.remove(name);
                      }}
                    >
                      Delete
                    </button>
                    <button type="button" className="quiet" onClick={() => setDoubted("")}>
                      Keep
                    </button>
                  </span>
                ) : (
                  <span className="file-tools">
                    <button
                      type="button"
                      className="round small"
                      aria-label={`Ask about ${name}`}
                      title="Ask about it"
                      onClick={() => onAsk(name)}
                    >
                      <Icon name="ask" />
                    </button>
                    <button
                      type="button"
                      className="round small"
                      aria-label={`Delete ${name}`}
                      title="Delete"
                      onClick={() => setDoubted(name)}
                    >
                      <Icon name="trash" />
                    </button>
                  </span>
                )}
              </li>
            ))}
          </ul>
        ) : (
          files.loaded &&
          files.uploads.length === 0 && (
            <p className="soft nothing">
              No files yet. What you add here can be asked about and is cited with its page.
            </p>
          )
        )}
        <p className="unseen" role="status">
          {files.said}
        </p>
      </div>
    </aside>
  );
}
