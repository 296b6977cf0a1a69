/** The real server as a process, and beside it, on loopback, a model that says what the test scripts and a small web. */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { type AddressInfo, createServer as createSocketServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

const ROOT = join(import.meta.dirname, "..", "..", "..");
const PYTHON = join(ROOT, ".venv", "bin", "python");
export const HAS_BACKEND = existsSync(PYTHON) && existsSync(join(ROOT, "web", "backend", "main.py"));

// --- the model and the web -------------------------------------------------------------------------------

/** One piece of a reply, or something to wait for before the next one. */
export type Piece = string | Promise<unknown>;

export interface Script {
  /** The turns of the loop, in order; the last one for ever. */
  readonly turns: readonly string[];
  /** The report in the pieces in which it is streamed. */
  readonly report: readonly Piece[];
}

export const action = (tool: string, args: object = {}): string =>
  `Thought: next\nAction: ${tool}\nAction Input: ${JSON.stringify(args)}`;

interface Prompt {
  readonly stream?: boolean;
  readonly messages: readonly { readonly role: string; readonly content: string }[];
}

/** A model, a search engine and pages on loopback. */
export class Edge {
  url = "";
  script: Script = { turns: [action("finish")], report: ["Nothing."] };
  /** Answers the model's calls with this status instead, while it is not 0. */
  failing = 0;
  /** The prompts that the model was given. */
  readonly prompts: Prompt[] = [];
  readonly pages = new Map<string, { readonly title: string; readonly text: string }>();
  private readonly server: Server = createServer((request, response) => void this.answer(request, response));

  static async start(): Promise<Edge> {
    const edge = new Edge();
    await new Promise<void>((resolve) => edge.server.listen(0, "127.0.0.1", resolve));
    edge.url = `http://127.0.0.1:${(edge.server.address() as AddressInfo).port}`;
    return edge;
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }

  /** The settings that lead a server here. */
  get settings(): Record<string, string> {
    return {
      LLM_PROVIDER: "openai",
      OPENAI_BASE_URL: `${this.url}/v1`,
      OPENAI_MODEL: "scripted-model",
      SEARCH_PROVIDER: "searxng",
      SEARXNG_BASE_URL: this.url,
      RESPECT_ROBOTS: "0",
      WAYBACK: "0",
      ALLOW_PRIVATE_HOSTS: this.url.slice("http://".length),
    };
  }

  private async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    const path = new URL(request.url ?? "/", this.url).pathname;
    const json = (status: number, body: unknown): void => {
      response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(body));
    };
    if (path === "/search") {
      const results = [...this.pages].map(([name, { title }]) => ({
        title,
        url: `${this.url}${name}`,
        content: title,
      }));
      return json(200, { query: "q", results });
    }
    if (path.endsWith("/chat/completions")) {
      if (this.failing)
        return json(this.failing, { error: { message: "the key is not valid", code: "invalid_api_key" } });
      return this.complete(JSON.parse(Buffer.concat(parts).toString()) as Prompt, response);
    }
    const page = this.pages.get(path);
    if (!page) return void response.writeHead(404, { "Content-Type": "text/plain" }).end("gone");
    const paragraphs = page.text.split("\n\n").map((paragraph) => `<p>${paragraph}</p>`);
    response.writeHead(200, { "Content-Type": "text/html; charset=utf-8" });
    response.end(
      `<!doctype html><html lang="en"><head><title>${page.title}</title></head><body><article><h1>${page.title}</h1>${paragraphs.join("")}</article></body></html>`,
    );
  }

  private async complete(prompt: Prompt, response: ServerResponse): Promise<void> {
    this.prompts.push(prompt);
    const isTurn = prompt.messages[0]?.content.includes("\nAction Input:");
    const taken = prompt.messages.filter(
      ({ role, content }) => role === "user" && content.includes("Observation:"),
    ).length;
    const { turns, report } = this.script;
    const pieces = isTurn ? [turns[Math.min(taken, turns.length - 1)] ?? ""] : report;
    const usage = { prompt_tokens: 100, completion_tokens: 10, total_tokens: 110 };
    const head = { id: "c1", model: "scripted-model", created: 1 };
    if (!prompt.stream) {
      const content = pieces.filter((piece) => typeof piece === "string").join("");
      const choices = [{ index: 0, finish_reason: "stop", message: { role: "assistant", content } }];
      response.writeHead(200, { "Content-Type": "application/json" });
      response.end(JSON.stringify({ ...head, object: "chat.completion", choices, usage }));
      return;
    }
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    const chunk = (delta: object, finish_reason: string | null): void => {
      const choices = [{ index: 0, delta, finish_reason }];
      response.write(`data: ${JSON.stringify({ ...head, object: "chat.completion.chunk", choices, usage })}\n\n`);
    };
    for (const piece of pieces) {
      if (typeof piece === "string") chunk({ content: piece }, null);
      else await piece;
    }
    chunk({}, "stop");
    response.end("data: [DONE]\n\n");
  }
}

// --- the chat's server -----------------------------------------------------------------------------------

export class Backend {
  private constructor(
    readonly url: string,
    private readonly process: ChildProcess,
    private readonly folder: string,
  ) {}

  /** Start the server with these settings and none of this machine's. */
  static async start(settings: Record<string, string>): Promise<Backend> {
    const folder = await mkdtemp(join(tmpdir(), "m3-chat-"));
    const port = await freePort();
    const child = spawn(PYTHON, ["-m", "web.backend.main", "--port", String(port)], {
      cwd: folder, // where no .env lies
      env: {
        PATH: process.env["PATH"],
        HOME: folder,
        PYTHONPATH: ROOT,
        PYTHONUNBUFFERED: "1",
        MEMORY_BACKEND: "none",
        CHAT_UPLOAD_DIR: join(folder, "uploads"),
        ...settings,
      },
      stdio: ["ignore", "pipe", "pipe"],
    });
    let said = "";
    child.stderr.on("data", (data: Buffer) => (said += data.toString()));
    const ready = new Promise<void>((resolve, reject) => {
      child.stdout.on("data", (data: Buffer) => data.toString().includes("http://") && resolve());
      child.on("exit", () => reject(new Error(`the server ended: ${said}`)));
    });
    await ready;
    return new Backend(`http://127.0.0.1:${port}`, child, folder);
  }

  async stop(): Promise<void> {
    if (this.process.exitCode === null) {
      const ended = once(this.process, "exit");
      this.process.kill("SIGTERM");
      await ended;
    }
    await rm(this.folder, { recursive: true });
  }
}

async function freePort(): Promise<number> {
  const probe = createSocketServer();
  await new Promise<void>((resolve) => probe.listen(0, "127.0.0.1", resolve));
  const { port } = probe.address() as AddressInfo;
  await new Promise((resolve) => probe.close(resolve));
  return port;
}

// --- a file to upload ------------------------------------------------------------------------------------

/** A PDF with these lines on its pages. */
export function pdf(pages: readonly (readonly string[])[]): Buffer {
  const kids = pages.map((_, index) => `${4 + 2 * index} 0 R`).join(" ");
  const objects = [
    "<< /Type /Catalog /Pages 2 0 R >>",
    `<< /Type /Pages /Count ${pages.length} /Kids [${kids}] >>`,
    "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
  ];
  pages.forEach((lines, index) => {
    const shown = lines.map((line) => `(${line.replaceAll(/[\\()]/g, "\\$&")}) Tj 0 -14 Td\n`).join("");
    const stream = `BT /F1 11 Tf 72 760 Td\n${shown}ET`;
    objects.push(
      `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents ${5 + 2 * index} 0 R /Resources << /Font << /F1 3 0 R >> >> >>`,
      `<< /Length ${stream.length} >>\nstream\n${stream}\nendstream`,
    );
  });
  let out = "%PDF-1.4\n";
  const offsets = objects.map((body, index) => {
    const offset = out.length;
    out += `${index + 1} 0 obj\n${body}\nendobj\n`;
    return offset;
  });
  const start = out.length;
  out += `xref\n0 ${objects.length + 1}\n0000000000 65535 f \n`;
  out += offsets.map((offset) => `${String(offset).padStart(10, "0")} 00000 n \n`).join("");
  out += `trailer\n<< /Size ${objects.length + 1} /Root 1 0 R >>\nstartxref\n${start}\n%%EOF\n`;
  return Buffer.from(out, "latin1");
}
