/** A server that plays the backend's side of the contract, told by the test what to send and when. */

import { readFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { extname, join } from "node:path";

export const DIST = join(import.meta.dirname, "..", "dist");
const CSP =
  "default-src 'self'; script-src 'self'; style-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
const TYPES: Record<string, string> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript",
  ".css": "text/css",
  ".svg": "image/svg+xml",
};

/** One run as the test plays it. */
export class Play {
  /** Resolves when the page has closed the connection. */
  readonly gone: Promise<void>;
  /** Resolves when the page has asked to stop the run; how the server then answers that. */
  readonly stopped: Promise<void>;
  stop: () => number = () => 204;

  constructor(
    readonly messages: { role: string; content: string }[],
    readonly headers: IncomingMessage["headers"],
    private readonly response: ServerResponse,
    private readonly run: string,
  ) {
    this.gone = new Promise((resolve) => response.on("close", () => resolve()));
    this.stopped = new Promise((resolve) => (this.heard = resolve));
  }

  private heard: () => void = () => undefined;

  /** The page asks to stop: the status of the answer. */
  askedToStop(): number {
    const status = this.stop();
    this.heard();
    return status;
  }

  send(...events: object[]): void {
    for (const event of events) this.raw(`data: ${JSON.stringify(event)}\r\n\r\n`);
  }

  raw(bytes: string | Uint8Array): void {
    if (!this.response.headersSent)
      this.response.writeHead(200, { "Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-store", "X-Run": this.run });
    this.response.write(bytes);
  }

  end(): void {
    this.response.end();
  }

  /** The connection breaks, without an end. */
  cut(): void {
    this.response.destroy();
  }

  refuse(status: number, error: string): void {
    this.response.writeHead(status, { "Content-Type": "application/json" });
    this.response.end(JSON.stringify({ error }));
  }
}

export class ContractServer {
  url = "";
  token = "";
  readonly files = new Map<string, { name: string; size: number; type: string; uploaded_at: string }>();
  /** Uploads wait for this before they are answered. */
  uploadGate: Promise<unknown> = Promise.resolve();
  health: Record<string, unknown> = {};
  private readonly plays: Play[] = [];
  private readonly runs = new Map<string, Play>();
  private readonly waiting: ((play: Play) => void)[] = [];
  private readonly server: Server = createServer((request, response) => void this.answer(request, response));

  static async start(): Promise<ContractServer> {
    const one = new ContractServer();
    await new Promise<void>((resolve) => one.server.listen(0, "127.0.0.1", resolve));
    one.url = `http://127.0.0.1:${(one.server.address() as AddressInfo).port}`;
    return one;
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }

  /** The next run that the page asks for. */
  next(): Promise<Play> {
    const play = this.plays.shift();
    return play ? Promise.resolve(play) : new Promise((resolve) => this.waiting.push(resolve));
  }

  private async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = new URL(request.url ?? "/", "http://localhost").pathname;
    const json = (status: number, body: unknown): void => {
      response.writeHead(status, { "Content-Type": "application/json" });
      response.end(JSON.stringify(body));
    };
    if (path === "/health")
      return json(200, {
        status: "ok",
        version: "0.1.0",
        llm: { provider: "openai", model: "gpt-oss-120b", configured: true, mock: false },
        search: { providers: ["ddgs"] },
        warnings: [],
        token_required: this.token !== "",
        limits: {},
        ...this.health,
      });
    if (request.method === "GET" && path !== "/files") return this.page(path, response);
    if (this.token && request.headers.authorization !== `Bearer ${this.token}`)
      return json(401, { error: "A token is needed." });
    const body = await whole(request);
    if (path === "/chat") {
      const { messages } = JSON.parse(body.toString()) as { messages: Play["messages"] };
      const run = `run-${this.runs.size}`;
      const play = new Play(messages, request.headers, response, run);
      this.runs.set(run, play);
      const waiter = this.waiting.shift();
      if (waiter) waiter(play);
      else this.plays.push(play);
    } else if (path.startsWith("/chat/") && request.method === "DELETE") {
      response.writeHead(this.runs.get(path.slice("/chat/".length))?.askedToStop() ?? 404).end();
    } else if (path === "/files") {
      json(200, { files: [...this.files.values()] });
    } else if (path === "/upload") {
      await this.uploadGate;
      const name = /filename="([^"]*)"/.exec(body.toString("latin1"))?.[1] ?? "file";
      if (name.startsWith("broken")) return json(422, { error: `${name} is not a PDF.` });
      const stored = {
        name: Buffer.from(name, "latin1").toString(),
        size: body.length,
        type: extname(name).slice(1),
        uploaded_at: "2026-11-30T12:00:00Z",
      };
      this.files.set(stored.name, stored);
      json(201, stored);
    } else if (path.startsWith("/files/") && request.method === "DELETE") {
      const known = this.files.delete(decodeURIComponent(path.slice("/files/".length)));
      response.writeHead(known ? 204 : 404).end();
    } else {
      json(404, { error: "Not found." });
    }
  }

  private async page(path: string, response: ServerResponse): Promise<void> {
    const file = path === "/" ? "index.html" : path.slice(1);
    try {
      const body = await readFile(join(DIST, file));
      response.writeHead(200, {
        "Content-Type": TYPES[extname(file)] ?? "application/octet-stream",
        "Content-Security-Policy": CSP,
        "X-Content-Type-Options": "nosniff",
      });
      response.end(body);
    } catch {
      response.writeHead(404).end();
    }
  }
}

async function whole(request: IncomingMessage): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const part of request) parts.push(part as Buffer);
  return Buffer.concat(parts);
}
