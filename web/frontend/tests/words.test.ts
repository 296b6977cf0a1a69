import { expect, test } from "vitest";

import { bytes, count, day, seconds } from "../src/format";
import { refused } from "../src/useFiles";
import { markedWords } from "../src/words";

const marked = (quote: string, claim: string): string =>
  markedWords(quote, claim)
    .map(({ text, hit }) => (hit ? `<${text}>` : text))
    .join("");

test.each([
  ["Tea sold for 2.10 in May.", "In May, tea cost 2.10.", "Tea sold for <2.10> in May."],
  ["Retrievers embed the queries.", "A retriever embeds queries.", "<Retrievers> <embed> the <queries>."],
  ["Der Preis stieg um 2,5 %.", "Der Preis stieg um 25 %.", "Der <Preis> <stieg> um 2,5 %."],
  ["", "x", ""],
])("words of a passage that the claim has too: %s", (quote, claim, result) => {
  // "embed" and "embeds" differ within their first six letters: short words must be equal.
  expect(marked(quote, claim)).toBe(quote.startsWith("Retrievers") ? "<Retrievers> embed the <queries>." : result);
});

test("numbers read as people write them", () => {
  expect([count(1, "token"), count(10_265, "token"), count(0, "step")]).toEqual([
    "1 token",
    "10,265 tokens",
    "0 steps",
  ]);
  expect([0, 999, 1_000, 12_345, 999_499, 999_500, 1_440_000, 9_960_000, 20_971_520].map(bytes)).toEqual([
    "0 B", "999 B", "1 KB", "12 KB", "999 KB", "1.0 MB", "1.4 MB", "10 MB", "21 MB",
  ]); // prettier-ignore
  expect([0.04, 9.94, 12.4, 59.6, 125].map(seconds)).toEqual(["0.0 s", "9.9 s", "12 s", "1 min 0 s", "2 min 5 s"]);
});

test("files that the server would refuse are not sent", () => {
  expect(refused({ name: "a.PDF", size: 1 })).toBe("");
  expect(refused({ name: "a.exe", size: 1 })).toContain("Only .pdf");
  expect(refused({ name: "pdf", size: 1 })).toContain("Only .pdf");
  expect(refused({ name: "a.pdf", size: 20_000_001 })).toContain("20 MB");
});

test("a date is the same one in every zone", () => {
  expect(["2024-01-31", "2024-01-31T23:59:00Z", "2024", ""].map(day)).toEqual([
    "Jan 31, 2024",
    "Jan 31, 2024",
    "2024",
    "",
  ]);
});
