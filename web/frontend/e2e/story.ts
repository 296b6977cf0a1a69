/** One research run as the server tells it, from the first search to the checked answer. */

const passage = (quote: string, start: number, link = "") => ({
  start,
  end: start + quote.length,
  quote,
  score: 1,
  page_number: null,
  link,
});

const RAPTOR = "https://example.org/papers/raptor";
const QUOTE_TREE =
  "RAPTOR clusters the chunks of a text, lets a language model summarise each cluster, and repeats the process until a tree of summaries stands above the original chunks.";
const QUOTE_YEAR = "The gain on QuALITY was 20 % in absolute accuracy when RAPTOR was paired with GPT-4.";

export const CALLS = [
  { type: "tool_call", id: "c1", name: "search_web", arguments: { query: "RAPTOR retrieval tree of summaries" } },
  {
    type: "observation",
    id: "c1",
    name: "search_web",
    ok: true,
    content: "3 results",
    items: [
      { title: "RAPTOR: a tree of summaries over long documents", url: RAPTOR, status: "" },
      { title: "HyDE: searching with a hypothetical document", url: "https://hyde.example/notes", status: "" },
      { title: "A page behind a wall", url: "https://wall.example/paper", status: "" },
    ],
  },
  { type: "tool_call", id: "c2", name: "fetch_page", arguments: { results: ["R1", "R2", "R3"] } },
] as const;

export const READ = {
  type: "observation",
  id: "c2",
  name: "fetch_page",
  ok: true,
  content: "2 of 3 pages read",
  items: [
    { title: "RAPTOR: a tree of summaries over long documents", url: RAPTOR, status: "ok" },
    { title: "HyDE: searching with a hypothetical document", url: "https://hyde.example/notes", status: "ok" },
    { title: "A page behind a wall", url: "https://wall.example/paper", status: "blocked: the server answered 403" },
  ],
};

const raptor = {
  number: 1,
  kind: "page",
  title: "RAPTOR: a tree of summaries over long documents",
  url: RAPTOR,
  domain: "example.org",
  author: "Sarthi et al.",
  published: "2024-01-31",
  notes: [],
};
const hyde = {
  number: 2,
  kind: "page",
  title: "HyDE: searching with a hypothetical document",
  url: "https://hyde.example/notes",
  domain: "hyde.example",
  author: "",
  published: "2022-12-20",
  notes: [],
};
const report = {
  number: 3,
  kind: "file",
  label: "report.pdf, p. 3",
  title: "Field report",
  url: "report.pdf",
  domain: "",
  author: "",
  published: "",
  notes: [],
};

export const SOURCES = {
  type: "sources",
  sources: [
    { ...hyde, number: 1, passages: [], verdicts: {} },
    { ...raptor, number: 2, passages: [passage(QUOTE_TREE, 400)], verdicts: {} },
  ],
};

/** The draft says 25 % and numbers the sources as they were read; both are mended in the final summary. */
export const DRAFT = [
  "**RAPTOR** clusters the chunks of a text and summarises each cluster, until a tree stands above them. [Source 2] ",
  "With GPT-4 it raised the accuracy on QuALITY by 25 %. [Source 2]\n\n",
  "- HyDE writes a hypothetical answer and looks for its neighbours. [Source 1]\n",
  "- Our own field report agrees. [Source 1]\n",
  "- Both are popular.\n",
];

const SENTENCES = [
  [
    "**RAPTOR** clusters the chunks of a text and summarises each cluster, until a tree stands above them. [Source 1]",
    " ",
  ],
  ["With GPT-4 it raised the accuracy on QuALITY by 20 %. [Source 1]", "\n\n- "],
  ["HyDE writes a hypothetical answer and looks for its neighbours. [Source 2]", "\n- "],
  ["Our own field report agrees. [Source 3]", "\n- "],
  ["Both are popular.", "\n"],
] as const;

const at = (index: number): { start: number; end: number; claim: string } => {
  const start = SENTENCES.slice(0, index).reduce((sum, [text, gap]) => sum + text.length + gap.length, 0);
  const text = SENTENCES[index]?.[0] ?? "";
  return { start, end: start + text.length, claim: text.replaceAll("**", "").replace(/ \[Source \d\]/, "") };
};

export const DONE = {
  type: "done",
  outcome: "answered",
  stop_reason: "agent_finished",
  summary: SENTENCES.map((pair) => pair.join("")).join(""),
  sources: [
    {
      ...raptor,
      passages: [passage(QUOTE_TREE, 400, `${RAPTOR}#:~:text=RAPTOR%20clusters`), passage(QUOTE_YEAR, 900)],
      verdicts: { matched: 2, partly: 0, not_found: 0, unchecked: 0, uncited: 0 },
    },
    {
      ...hyde,
      passages: [passage("HyDE asks a model for a hypothetical document.", 10)],
      verdicts: { matched: 0, partly: 1, not_found: 0, unchecked: 0, uncited: 0 },
    },
    {
      ...report,
      passages: [{ ...passage("The field trial was postponed.", 2_000), page_number: 3 }],
      verdicts: { matched: 0, partly: 0, not_found: 1, unchecked: 0, uncited: 0 },
    },
  ],
  checks: [
    {
      ...at(0),
      source: 1,
      verdict: "matched",
      why: "",
      passages: [passage(QUOTE_TREE, 400, `${RAPTOR}#:~:text=RAPTOR%20clusters`)],
      coverage: 1,
      better_source: null,
      missing: [],
      flags: [],
    },
    {
      ...at(1),
      source: 1,
      verdict: "matched",
      why: "",
      passages: [passage(QUOTE_YEAR, 900)],
      coverage: 1,
      better_source: null,
      missing: [],
      flags: [],
    },
    {
      ...at(2),
      source: 2,
      verdict: "partly",
      why: "half of the words stand there",
      passages: [passage("HyDE asks a model for a hypothetical document.", 10)],
      coverage: 0.5,
      better_source: null,
      missing: ["neighbours"],
      flags: [],
    },
    {
      ...at(3),
      source: 3,
      verdict: "not_found",
      why: "too few words in common",
      passages: [{ ...passage("The field trial was postponed.", 2_000), page_number: 3 }],
      coverage: 0.1,
      better_source: 1,
      missing: [],
      flags: [],
    },
    {
      ...at(4),
      source: null,
      verdict: "uncited",
      why: "no source is cited",
      passages: [],
      coverage: 0,
      better_source: null,
      missing: [],
      flags: [],
    },
  ],
  counts: { statements: 5, cited: 4, matched: 2, partly: 1, not_found: 1, unchecked: 0, uncited: 1 },
  counts_line: "5 statements, 4 cited; 2 matched to a passage, 1 partly, 1 not found, 0 could not be checked",
  warnings: ["1 of 3 pages could not be read."],
  iterations_used: 3,
  tokens_consumed: 10265,
  elapsed_seconds: 12.4,
  llm_provider: "openai",
  model: "gpt-oss-120b",
  search_provider: "ddgs",
  no_sources_used: false,
  ledger: [
    { kind: "search", target: "RAPTOR retrieval tree of summaries", status: "ok", detail: "" },
    { kind: "fetch", target: "https://wall.example/paper", status: "blocked", detail: "the server answered 403" },
  ],
};

export const ENGLISH_QUESTION = "Compare Raptor RAG vs HyDE";
