// @vitest-environment jsdom
import { cleanup, fireEvent, render } from "@testing-library/react";
import { afterEach, describe, expect, test, vi } from "vitest";

import { Answer, type AnswerProps } from "../src/Answer";
import {
  alignment,
  remarkCitations,
  statementsOf,
  tagNumbers,
  utf16Offset,
  withoutUnfinishedTag,
} from "../src/citations";
import { type Check, readCheck, readSource, type Source } from "../src/contract";

afterEach(cleanup);

const source = (number: number, more: object = {}): Source => {
  const read = readSource({ number, title: `Page ${number}`, url: `https://example.org/${number}`, ...more });
  if (!read) throw new Error("no source");
  return read;
};

/** A check of the sentence `of` where it stands in the summary, in code points as the server counts them. */
function check(summary: string, of: string, number: number | null, verdict: string): Check {
  const units = summary.indexOf(of);
  if (units < 0) throw new Error(`not in the summary: ${of}`);
  const start = [...summary.slice(0, units)].length;
  const read = readCheck({ claim: of, source: number, verdict, start, end: start + [...of].length });
  if (!read) throw new Error("no check");
  return read;
}

function show(text: string, more: Partial<AnswerProps> & { checks?: Check[] } = {}) {
  const onOpen = vi.fn();
  const props: AnswerProps = {
    turn: "t",
    text,
    writing: false,
    unchecked: false,
    statements: statementsOf(text, more.checks ?? []),
    sources: [source(1), source(2), source(3)],
    open: null,
    onOpen,
    ...more,
  };
  const { container } = render(<Answer {...props} />);
  const chips = [...container.querySelectorAll<HTMLButtonElement>(".chip")];
  const read = () => (container.textContent ?? "").replaceAll("\u00a0", " ").trim();
  return { container, chips, read, onOpen };
}

describe("tags", () => {
  test.each<[string, string]>([
    ["Tea is old [Source 1].", "Tea is old [1]."],
    ["Tea is old. [Source 1, 3]", "Tea is old. [1][3]"],
    ["Tea is old. [Sources 1 and 2]", "Tea is old. [1][2]"],
    ["Tea is old. [Source 1-3]", "Tea is old. [1][2][3]"],
    ["Tea is old. [Source 1][Source 2]", "Tea is old. [1][2]"],
    ["Tea is old【2】and new【Source 3†L3-4】", "Tea is old[2]and new[3]"],
    ["**Tea [Source 1] is** old", "Tea [1] is old"],
    ["Tea \\[Source 1\\] is old", "Tea [1] is old"],
    ["A source 1 and [an aside] stay", "A source 1 and [an aside] stay"],
    ["An array `a[1]` and `[Source 1]` in code", "An array a[1] and [Source 1] in code"],
  ])("%s", (markdown, text) => {
    expect(show(markdown).read()).toBe(text);
  });

  test("become chips in lists, headings and tables", () => {
    const { chips } = show("# Tea [Source 1]\n\n- old [Source 2]\n\n| a | b |\n|---|---|\n| c [Source 3] | d |");
    expect(chips.map((chip) => chip.textContent)).toEqual(["[1]", "[2]", "[3]"]);
  });

  test("a chip stays on the line of the word before it", () => {
    expect(show("Tea is old [Source 1].").container.textContent).toBe("Tea is old\u00a0[1].");
  });

  test.each([
    `[Source ${"1, ".repeat(100_000)}x`,
    "[Source 1 ".repeat(30_000),
    "【1 ".repeat(50_000),
    "[sources ".repeat(30_000),
  ])("are looked for in linear time: %.20s", (value) => {
    const node = { type: "text", value, position: { start: { offset: 0 }, end: { offset: value.length } } };
    const began = performance.now();
    remarkCitations({ statements: [], active: null, cursor: false })({ type: "root", children: [node] }, { value });
    expect(performance.now() - began).toBeLessThan(2_000);
  });

  test.each<[string, number[]]>([
    ["1", [1]],
    ["1, 3", [1, 3]],
    ["2-4", [2, 3, 4]],
    ["1-900", [1, 900]],
    ["3, 3", [3]],
  ])("numbers of %s", (inside, numbers) => {
    expect(tagNumbers(inside)).toEqual(numbers);
  });
});

describe("verdicts", () => {
  const summary = "Tea is old [Source 1]. Tea is **blue** [Source 2]. Tea is dear. 😀 Tea is hot [Source 1, 2].";
  const checks = [
    check(summary, "Tea is old [Source 1].", 1, "matched"),
    check(summary, "Tea is **blue** [Source 2].", 2, "not_found"),
    check(summary, "Tea is dear.", null, "uncited"),
    check(summary, "Tea is hot [Source 1, 2].", 1, "partly"),
    check(summary, "Tea is hot [Source 1, 2].", 2, "unchecked"),
  ];

  test("each chip bears the verdict of its own sentence and source", () => {
    const { chips } = show(summary, { checks });
    expect(chips.map((chip) => [chip.textContent, chip.className])).toEqual([
      ["[1]", "chip matched"],
      ["[2!]", "chip not_found"],
      ["no source", "chip uncited"],
      ["[1~]", "chip partly"],
      ["[2?]", "chip unchecked"],
    ]);
    expect(chips.map((chip) => chip.getAttribute("aria-label"))).toEqual([
      "[1] matched to a passage: Page 1",
      "[2!] not found in the cited page: Page 2",
      "no source: see why",
      "[1~] partly matched: Page 1",
      "[2?] could not be checked: Page 2",
    ]);
  });

  test("a click opens the sentence's check against that source", () => {
    const { chips, onOpen } = show(summary, { checks });
    for (const chip of chips) fireEvent.click(chip);
    expect(onOpen.mock.calls.map(([selection]) => selection as unknown)).toEqual([
      { turn: "t", statement: 0, source: 1 },
      { turn: "t", statement: 1, source: 2 },
      { turn: "t", statement: 2, source: null },
      { turn: "t", statement: 3, source: 1 },
      { turn: "t", statement: 3, source: 2 },
    ]);
    expect(onOpen.mock.calls[0]?.[1]).toBe(chips[0]);
  });

  test("the open sentence is marked, across its bold words", () => {
    const { container } = show(summary, { checks, open: { turn: "t", statement: 1, source: 2 } });
    const marked = [...container.querySelectorAll(".statement.open")].map((one) => one.textContent);
    expect(marked.join("").replaceAll("\u00a0", " ")).toBe("Tea is blue.");
    expect(container.querySelectorAll("[aria-expanded=true]")).toHaveLength(1);
  });

  test("a draft's chips say that nothing is checked yet", () => {
    const { chips } = show("Tea is old [Source 1].", { writing: true });
    expect(chips[0]?.className).toBe("chip draft");
    expect(chips[0]?.getAttribute("aria-label")).toBe("[1] not checked: Page 1");
  });

  test("escapes and entities do not shift what belongs to which sentence", () => {
    const text = "Tea \\* &amp; milk &lt; 3 cost 2\\_000. [Source 1] It is dear. [Source 2]";
    const { chips, read } = show(text, {
      checks: [
        check(text, "Tea \\* &amp; milk &lt; 3 cost 2\\_000. [Source 1]", 1, "matched"),
        check(text, "It is dear. [Source 2]", 2, "partly"),
      ],
    });
    expect(read()).toBe("Tea * & milk < 3 cost 2_000. [1] It is dear. [2~]");
    expect(chips.map((chip) => chip.className)).toEqual(["chip matched", "chip partly"]);
  });

  test("sentences of a quotation over several lines keep their own verdicts", () => {
    const text = "> Tea is old. [Source 1]\n> It is dear. [Source 2]";
    const { chips } = show(text, {
      checks: [
        check(text, "Tea is old. [Source 1]", 1, "matched"),
        check(text, "It is dear. [Source 2]", 2, "not_found"),
      ],
    });
    expect(chips.map((chip) => chip.className)).toEqual(["chip matched", "chip not_found"]);
  });

  test("offsets count code points", () => {
    const offset = utf16Offset("a😀b");
    expect([0, 1, 2, 3].map(offset)).toEqual([0, 1, 3, 4]);
    expect(utf16Offset("ab")(7)).toBe(2);
  });

  test("text is aligned with the Markdown it came from", () => {
    expect(alignment("a\\*b", "a*b")).toEqual([0, 2, 3]);
    expect(alignment("a &amp; b", "a & b")).toEqual([0, 1, 2, 7, 8]);
    expect(alignment("a & b", "a & b")).toEqual([0, 1, 2, 3, 4]);
    expect(alignment("a\n> b", "a\nb")).toEqual([0, 1, 4]);
  });
});

describe("foreign text", () => {
  test("raw HTML is text", () => {
    const { container, read } = show('Tea <img src="https://evil.example/x"> <script>alert(1)</script> <b>bold</b>');
    expect(container.querySelectorAll("img, script, b")).toHaveLength(0);
    expect(read()).toContain("<script>alert(1)</script>");
  });

  test("images are not loaded", () => {
    const { container, read } = show("![a map](https://evil.example/collect?d=1)");
    expect(container.innerHTML).not.toContain("evil.example");
    expect(read()).toBe("a map");
  });

  test.each([
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "data:text/html,x",
    "vbscript:x",
    "file:///etc/passwd",
    "/files/a",
    "//evil.example/x",
    "mailto:a@example.org",
    "https:",
  ])("a link to %s is only its words", (address) => {
    const { container, read } = show(`[here](<${address}>)`);
    expect(container.querySelector("a")).toBeNull();
    expect(read()).toBe("here");
  });

  test("a link to the web opens apart and tells the page nothing", () => {
    const link = show("[here](https://example.org/a?b=c)").container.querySelector("a");
    expect(link?.getAttribute("href")).toBe("https://example.org/a?b=c");
    expect(link?.getAttribute("rel")).toBe("noopener noreferrer nofollow");
    expect(link?.getAttribute("target")).toBe("_blank");
  });

  test("a source's title is text", () => {
    const { container } = show("Tea [Source 1].", {
      sources: [source(1, { title: '"><img src=x onerror=alert(1)>' })],
    });
    expect(container.querySelector("img")).toBeNull();
  });
});

describe("the writing mark", () => {
  test.each(["", "Tea", "Tea is\n\n- old\n- dear", "Tea\n\n> said", "```\ncode", "| a | b |\n|---|---|\n| c | d |"])(
    "stands once in %j while the answer is written, and not after",
    (text) => {
      expect(show(text, { writing: true }).container.querySelectorAll(".cursor")).toHaveLength(1);
      cleanup();
      expect(show(text).container.querySelectorAll(".cursor")).toHaveLength(0);
    },
  );

  test("stands after the last word, not on a line of its own", () => {
    const { container } = show("Tea is\n\n- old\n- dear", { writing: true });
    expect(container.querySelector("li:last-child > .cursor")).not.toBeNull();
  });

  test("a tag that is still being written is not shown", () => {
    expect(withoutUnfinishedTag("Tea is old [Sour")).toBe("Tea is old");
    expect(withoutUnfinishedTag("Tea is old [Source 1]")).toBe("Tea is old [Source 1]");
    expect(withoutUnfinishedTag("Tea is old [")).toBe("Tea is old");
    expect(withoutUnfinishedTag(`[${"x".repeat(80)}`)).toBe(`[${"x".repeat(80)}`);
  });
});
