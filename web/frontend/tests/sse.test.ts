import { expect, test } from "vitest";

import { readEvents, SilentStreamError, type ServerEvent, SseParser } from "../src/sse";

function body(...chunks: (string | Uint8Array)[]): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  return new ReadableStream({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(typeof chunk === "string" ? encoder.encode(chunk) : chunk);
      controller.close();
    },
  });
}

async function all(stream: ReadableStream<Uint8Array>): Promise<ServerEvent[]> {
  const events: ServerEvent[] = [];
  for await (const event of readEvents(stream)) events.push(event);
  return events;
}

const message = (data: string): ServerEvent => ({ event: "message", data });

test.each<[string, string, ServerEvent[]]>([
  ["one event", "data: a\n\n", [message("a")]],
  ["line ends of CRLF", "data: a\r\n\r\ndata: b\r\n\r\n", [message("a"), message("b")]],
  ["line ends of CR", "data: a\r\rdata: b\r\r", [message("a"), message("b")]],
  ["mixed line ends", "data: a\r\n\ndata: b\n\rdata: c\r\r\n", [message("a"), message("b"), message("c")]],
  ["a comment between events", ": ping\n\ndata: a\n\n: ping\n\n", [message("a")]],
  ["a comment within an event", "data: a\n: ping\ndata: b\n\n", [message("a\nb")]],
  ["several data lines, joined by line feeds", "data: a\ndata:\ndata: b\n\n", [message("a\n\nb")]],
  ["one blank after the colon is no data, a second one is", "data:a\n\ndata:  b\n\n", [message("a"), message(" b")]],
  ["a field without a colon", "data\n\n", [message("")]],
  ["no blank line at the end", "data: a\n\ndata: b\n", [message("a"), message("b")]],
  ["no line end at all", "data: a\n\ndata: b", [message("a"), message("b")]],
  ["a byte order mark", "\ufeffdata: a\n\n", [message("a")]],
  ["an event with a type", "event: note\ndata: a\n\ndata: b\n\n", [{ event: "note", data: "a" }, message("b")]],
  ["an event without data is none", "event: note\n\nid: 4\nretry: 10\n\n", []],
  ["unknown fields", "data: a\nfoo: b\nDATA: c\n\n", [message("a")]],
  ["a colon in the data", 'data: {"a":"b: c"}\n\n', [message('{"a":"b: c"}')]],
  ["nothing", "", []],
  ["characters of two, three and four bytes", "data: é€😀\n\n", [message("é€😀")]],
])("reads %s", async (_, text, events) => {
  expect(await all(body(text))).toEqual(events);
});

test("gives the same events however the bytes are cut", async () => {
  const text = "\ufeff: hi\r\n\r\ndata: é€😀\r\ndata: 数字\r\n\r\ndata: b\r\rdata: 🇩🇪 c\n\n:x\ndata: e";
  const bytes = new TextEncoder().encode(text);
  const whole = await all(body(bytes));
  expect(whole.map(({ data }) => data)).toEqual(["é€😀\n数字", "b", "🇩🇪 c", "e"]);
  for (let cut = 1; cut < bytes.length; cut++)
    expect(await all(body(bytes.slice(0, cut), bytes.slice(cut))), `cut at ${cut}`).toEqual(whole);
  expect(await all(body(...Array.from(bytes, (byte) => Uint8Array.of(byte)))), "byte by byte").toEqual(whole);
});

test("a CR at the end of a chunk is not a line end twice when its LF follows", () => {
  const parser = new SseParser();
  expect(parser.push("data: a\r")).toEqual([]);
  expect(parser.push("\ndata: b\r")).toEqual([]);
  expect(parser.push("\n\r")).toEqual([message("a\nb")]);
  expect(parser.push("\n")).toEqual([]);
});

test("events come as soon as their blank line has", async () => {
  let controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  const stream = new ReadableStream<Uint8Array>({
    start: (one) => {
      controller = one;
    },
  });
  const events = readEvents(stream);
  controller?.enqueue(new TextEncoder().encode("data: a\n\nda"));
  expect(await events.next()).toEqual({ done: false, value: message("a") });
  controller?.enqueue(new TextEncoder().encode("ta: b\n\n"));
  expect(await events.next()).toEqual({ done: false, value: message("b") });
});

test("a reader that leaves cancels the body", async () => {
  let cancelled = false;
  const stream = new ReadableStream<Uint8Array>({
    start: (controller) => controller.enqueue(new TextEncoder().encode("data: a\n\n")),
    cancel: () => {
      cancelled = true;
    },
  });
  for await (const _ of readEvents(stream)) break;
  expect(cancelled).toBe(true);
  expect(stream.locked).toBe(false);
});

test("a stream that falls silent is given up", async () => {
  const stream = new ReadableStream<Uint8Array>();
  await expect(readEvents(stream, { silence: 5 }).next()).rejects.toBeInstanceOf(SilentStreamError);
});

test("a fault of the connection reaches the reader", async () => {
  const stream = new ReadableStream<Uint8Array>({ start: (controller) => controller.error(new TypeError("network")) });
  await expect(readEvents(stream).next()).rejects.toThrow("network");
});

test("an event that never ends is given up before it fills the memory", () => {
  const parser = new SseParser();
  const piece = `data: ${"x".repeat(1_000_000)}\n`;
  expect(() => {
    for (let i = 0; i < 30; i++) parser.push(piece);
  }).toThrow("without an end");
});
