/** Reading a `text/event-stream` from a fetch body, after the HTML standard's section on server-sent events. */

export interface ServerEvent {
  /** The event's type; "message" where the stream names none. */
  readonly event: string;
  readonly data: string;
}

/** Characters of one unfinished event that are kept before the stream is given up as broken. */
const MOST_CHARACTERS = 16_000_000;

/** Turns text, cut anywhere, into events. Line ends are CRLF, LF or CR; comments and unknown fields are skipped. */
export class SseParser {
  private buffer = "";
  private scanned = 0;
  private skipLineFeed = false;
  private event = "";
  private data: string[] = [];
  private held = 0;

  push(text: string): ServerEvent[] {
    const events: ServerEvent[] = [];
    this.buffer += text;
    let start = 0;
    let at = this.scanned;
    for (; at < this.buffer.length; at++) {
      const character = this.buffer[at];
      if (this.skipLineFeed) {
        this.skipLineFeed = false;
        if (character === "\n" && at === start) {
          start = at + 1;
          continue;
        }
      }
      if (character !== "\n" && character !== "\r") continue;
      this.line(this.buffer.slice(start, at), events);
      start = at + 1;
      // A CR may be the first half of a CRLF whose LF comes with the next chunk.
      this.skipLineFeed = character === "\r";
    }
    this.buffer = this.buffer.slice(start);
    this.scanned = this.buffer.length;
    if (this.buffer.length + this.held > MOST_CHARACTERS) throw new Error("the stream sent an event without an end");
    return events;
  }

  /**
   * What a stream that has ended still held. The standard drops an event without its closing blank line; here it is
   * given out, since whoever reads it parses it as JSON, which a cut event is not.
   */
  end(): ServerEvent[] {
    const events: ServerEvent[] = [];
    if (this.buffer) this.line(this.buffer, events);
    this.buffer = "";
    this.scanned = 0;
    this.line("", events);
    return events;
  }

  private line(line: string, events: ServerEvent[]): void {
    if (line === "") {
      if (this.data.length > 0) events.push({ event: this.event || "message", data: this.data.join("\n") });
      this.event = "";
      this.data = [];
      this.held = 0;
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (field === "data") {
      this.data.push(value);
      this.held += value.length;
    } else if (field === "event") {
      this.event = value;
    }
  }
}

/** The server has sent nothing, not even a keep-alive, for too long. */
export class SilentStreamError extends Error {}

/**
 * The events of a response body as they come, in the order of the stream.
 *
 * silence: milliseconds without a byte after which the stream counts as dead (a laptop that slept leaves such
 * connections behind); rejects with SilentStreamError then. The body is cancelled when the reader leaves early.
 */
export async function* readEvents(
  body: ReadableStream<Uint8Array>,
  { silence = Infinity }: { silence?: number } = {},
): AsyncGenerator<ServerEvent> {
  const reader = body.getReader();
  const decoder = new TextDecoder("utf-8"); // drops a byte order mark, keeps halves of characters between chunks
  const parser = new SseParser();
  let ended = false;
  try {
    while (true) {
      const { done, value } = await within(reader.read(), silence);
      if (done) break;
      yield* parser.push(decoder.decode(value, { stream: true }));
    }
    ended = true;
    yield* parser.push(decoder.decode());
    yield* parser.end();
  } finally {
    if (!ended) void reader.cancel().catch(() => undefined); // the connection may be gone already
    reader.releaseLock();
  }
}

async function within<T>(promise: Promise<T>, milliseconds: number): Promise<T> {
  if (milliseconds === Infinity) return promise;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const silent = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new SilentStreamError("the server sent nothing for too long")), milliseconds);
  });
  try {
    return await Promise.race([promise, silent]);
  } finally {
    clearTimeout(timer);
  }
}
