/** The server's routes. Every fault becomes a RequestError whose message a reader can be shown. */

import {
  type ChatEvent,
  type Health,
  isRecord,
  readEvent,
  readFiles,
  readHealth,
  type StoredFile,
  text,
} from "./contract";
import type { Message } from "./run";
import { readEvents } from "./sse";

/** The server sends a keep-alive at least every 15 s; after this many milliseconds of silence it is gone. */
const SILENCE = 60_000;
const TOKEN_KEY = "m3.token";
const UNREACHABLE = "The server could not be reached. Is it still running?";

export class RequestError extends Error {
  constructor(
    message: string,
    /** The HTTP status; 0 where no answer came. */
    readonly status: number,
  ) {
    super(message);
  }
}

// --- the access token, for this tab only

let memoryToken = "";

export function accessToken(): string {
  try {
    return sessionStorage.getItem(TOKEN_KEY) ?? "";
  } catch {
    return memoryToken;
  }
}

export function setAccessToken(token: string): void {
  memoryToken = token;
  try {
    sessionStorage.setItem(TOKEN_KEY, token);
  } catch {
    // storage is forbidden here: the token lives as long as the page
  }
}

function headers(more: Record<string, string> = {}): Record<string, string> {
  const token = accessToken();
  return token ? { ...more, Authorization: `Bearer ${token}` } : more;
}

// --- requests

async function request(path: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, { ...init, credentials: "same-origin" });
  } catch (problem) {
    if (init.signal?.aborted) throw problem;
    throw new RequestError(UNREACHABLE, 0);
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

async function refusal(response: Response): Promise<RequestError> {
  const body: unknown = await response.json().catch(() => null);
  return new RequestError(sentence(body, response.status), response.status);
}

function sentence(body: unknown, status: number): string {
  const said = isRecord(body) ? text(body["error"]) : "";
  return said || `The server answered with status ${status}.`;
}

export async function health(): Promise<Health | null> {
  return readHealth(await (await request("/health")).json());
}

export async function listFiles(): Promise<StoredFile[]> {
  return readFiles(await (await request("/files", { headers: headers() })).json());
}

export async function deleteFile(name: string): Promise<void> {
  await request(`/files/${encodeURIComponent(name)}`, { method: "DELETE", headers: headers() });
}

/** Send one file; `onProgress` gets the share that has left, 0 to 1. Resolves with the name it is stored under. */
export function uploadFile(file: File, onProgress: (share: number) => void, signal: AbortSignal): Promise<string> {
  return new Promise((resolve, reject) => {
    const sending = new XMLHttpRequest(); // fetch cannot tell how much of a body has left
    sending.open("POST", "/upload");
    for (const [name, value] of Object.entries(headers())) sending.setRequestHeader(name, value);
    sending.responseType = "json";
    sending.upload.onprogress = (event) => onProgress(event.lengthComputable ? event.loaded / event.total : 0);
    sending.onload = () => {
      const body: unknown = sending.response;
      if (sending.status >= 200 && sending.status < 300) resolve((isRecord(body) && text(body["name"])) || file.name);
      else reject(new RequestError(sentence(body, sending.status), sending.status));
    };
    sending.onerror = () => reject(new RequestError(UNREACHABLE, 0));
    sending.onabort = () => reject(new DOMException("cancelled", "AbortError"));
    signal.addEventListener("abort", () => sending.abort());
    const form = new FormData();
    form.append("file", file, file.name);
    sending.send(form);
  });
}

/** Ask the server to end a run with what it has; its stream then goes on to the checked partial answer. */
export async function stopRun(run: string): Promise<void> {
  await request(`/chat/${encodeURIComponent(run)}`, { method: "DELETE", headers: headers() });
}

/**
 * Ask, and give out the run's events as they come. Ends after `done`, or where the stream ends. `onRun` is told under
 * which name the run can be stopped, once the server has begun it.
 */
export async function* ask(
  messages: readonly Message[],
  signal: AbortSignal,
  onRun: (run: string) => void = () => undefined,
): AsyncGenerator<ChatEvent> {
  const response = await request("/chat", {
    method: "POST",
    headers: headers({ "Content-Type": "application/json", Accept: "text/event-stream" }),
    body: JSON.stringify({ messages }),
    signal,
  });
  const run = response.headers.get("X-Run");
  if (run) onRun(run);
  if (!response.body) return;
  for await (const { event, data } of readEvents(response.body, { silence: SILENCE })) {
    const read = event === "message" ? readEvent(data) : null;
    if (!read) continue;
    yield read;
    if (read.type === "done") return;
  }
}
