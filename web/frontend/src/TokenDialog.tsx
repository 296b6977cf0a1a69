import { useEffect, useRef, useState } from "react";

interface TokenProps {
  /** Whether a token was given before and was refused. */
  readonly refused: boolean;
  readonly onToken: (token: string) => void;
}

/** Asks for the access token of a server that wants one. */
export function TokenDialog({ refused, onToken }: TokenProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [token, setToken] = useState("");
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} className="token" aria-labelledby="token-title" onCancel={(event) => event.preventDefault()}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (token.trim()) onToken(token.trim());
        }}
      >
        <h2 id="token-title">Access token</h2>
        <p className="soft">This server asks for the token that its owner set. It is kept in this tab only.</p>
        {refused && <p className="fault">The server did not accept that token.</p>}
        <label htmlFor="token">Token</label>
        <input
          id="token"
          type="password"
          autoComplete="current-password"
          value={token}
          onChange={(event) => setToken(event.target.value)}
        />
        <button type="submit" className="primary" disabled={!token.trim()}>
          Continue
        </button>
      </form>
    </dialog>
  );
}
