import { useCallback, useEffect, useState } from "react";

import { accessToken, health, setAccessToken } from "./api";
import type { Health } from "./contract";

export interface Server {
  readonly state: "loading" | "up" | "down";
  readonly health: Health | null;
  /** wanted: a token has to be given; refused: the one given is not accepted. */
  readonly token: "fine" | "wanted" | "refused";
  readonly giveToken: (token: string) => void;
  readonly onUnauthorized: () => void;
  readonly retry: () => void;
}

/** What the server says of itself, and whether it lets this page in. */
export function useServer(): Server {
  const [state, setState] = useState<Server["state"]>("loading");
  const [found, setFound] = useState<Health | null>(null);
  const [token, setToken] = useState<Server["token"]>("fine");

  const retry = useCallback(() => {
    setState("loading");
    health().then(
      (answer) => {
        setFound(answer);
        setState(answer ? "up" : "down");
        if (answer?.token_required && !accessToken()) setToken("wanted");
      },
      () => setState("down"),
    );
  }, []);
  useEffect(retry, [retry]);

  const onUnauthorized = useCallback(() => setToken(accessToken() ? "refused" : "wanted"), []);
  const giveToken = useCallback((given: string) => {
    setAccessToken(given);
    setToken("fine");
  }, []);
  return { state, health: found, token, giveToken, onUnauthorized, retry };
}
