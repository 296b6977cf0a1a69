"""The model of the loopback world: a fixed policy, so that what two agents send and spend can be compared.

It searches, reads the best pages it was shown, and answers with sentences that stand in its prompt, each with its
page. It says nothing of the quality of answers. It knows an agent by what it is sent: tool schemas (smolagents,
LangChain), a ReAct prompt in text (the plain loop), this project's prompts, smolagents' code prompt, gpt-researcher's.

Two ways of going wrong can be switched on, because real models have them: `careless` makes it cite, besides, one page
that it only saw as a search result and one that nobody showed it; and when its searches brought nothing it answers
from memory all the same.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.world.corpus import Corpus, sentences_in, words

QUESTION = (
    "How does SQLite write-ahead logging (WAL) differ from the rollback journal, what are its limitations, and how do "
    "I enable WAL mode from the Python sqlite3 module?"
)
FROM_MEMORY = "Write-ahead logging was added to SQLite in version 2.8 and needs at least 64 MB of shared memory."
URL = re.compile(r"https?://[\w.-]+:\d+/page/(\d+)")
UNSHOWN_PAGE = 9_999
_OWN_RESULT = re.compile(r"^(R\d+)\. .*\(page-(\d+)\.", re.M)
_OWN_SOURCE = re.compile(r"^(?=\[Source \d+\] )", re.M)


@dataclass(frozen=True)
class Walk:
    """What the model does: so many searches, then so many pages, at most `pages_a_step` where a tool takes several."""

    searches: int = 2
    reads: int = 3
    pages_a_step: int = 4
    careless: bool = False


@dataclass(frozen=True)
class Reply:
    """A completion: text, or calls as (tool, arguments)."""

    text: str | None
    calls: Sequence[tuple[str, Mapping[str, Any]]] = ()


def flat(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each message as text, its tool calls included: what prompt lengths and prefixes are counted on."""
    found = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, list):
            content = "\n".join(part.get("text", "") if isinstance(part, dict) else str(part) for part in content)
        calls = [call.get("function", {}) for call in message.get("tool_calls") or []]
        said = "".join(f"\n[call {call.get('name')} {call.get('arguments')}]" for call in calls)
        found.append(f"<{message.get('role', '')}>{content or ''}{said}")
    return found


class Policy:
    """Answers the body of a chat completion request."""

    def __init__(self, corpus: Corpus, question: str, base: str) -> None:
        self.corpus, self.question, self.base = corpus, question, base
        asked = set(words(question))
        scored = [
            (-score - 8 * len(asked & set(words(corpus.pages[number].title))), number)
            for score, number in corpus.search(question, len(corpus.pages))
        ]
        self._rank = {number: place for place, (_, number) in enumerate(sorted(scored))}
        telling = list(dict.fromkeys(words(question)))
        half = max(3, (len(telling) + 1) // 2)
        self.queries = [" ".join(telling[: half + 2]), " ".join(telling[half - 1 :] or telling), " ".join(telling)]

    def reply(self, body: Mapping[str, Any], walk: Walk) -> Reply:
        messages = body.get("messages") or []
        parts = flat(messages)
        if tools := [tool.get("function", tool) for tool in body.get("tools") or []]:
            return self._with_tools(messages, parts, tools, walk)
        return Reply(self._in_text(parts, walk))

    # --- what a prompt holds

    def _urls(self, text: str) -> list[str]:
        return list(dict.fromkeys(match[0] for match in URL.finditer(text)))

    def _place(self, url: str) -> int:
        match = URL.search(url)
        return self._rank.get(int(match[1]), 10_000) if match else 10_000

    def _shown(self, parts: Sequence[str]) -> list[str]:
        """The addresses a prompt shows, the page that a good reader would open first in front."""
        return sorted(self._urls("\n".join(p for p in parts if not p.startswith("<system>"))), key=self._place)

    def _telling(self, sentences: Sequence[str], most: int) -> list[str]:
        """The sentences that share most words with the question."""
        asked = set(words(self.question))
        shared = [(-len(asked & set(words(sentence))), at, sentence) for at, sentence in enumerate(sentences)]
        return [sentence for common, _, sentence in sorted(shared) if common <= -2][:most]

    # --- answers

    def _answer(self, text: str, cited: Sequence[str], shown: Sequence[str], walk: Walk) -> str:
        """Sentences of the cited pages that stand in the prompt, each with its address, and the list of sources."""
        squashed = re.sub(r"[\W_]+", "", text.lower())
        rows: list[tuple[str, str]] = []
        for url in cited:
            match = URL.search(url)
            number = int(match[1]) if match else -1
            if not 0 <= number < len(self.corpus.pages):
                continue
            known = self._telling(self.corpus.sentences(number), 60)
            kept = [s for s in known if re.sub(r"[\W_]+", "", s.lower())[:60] in squashed][:2]
            rows += [(sentence, url) for sentence in kept] or [(f"{self.corpus.pages[number].title} covers this.", url)]
        if not rows:
            return FROM_MEMORY
        if walk.careless:
            rows += [(FROM_MEMORY, url) for url in [u for u in shown if u not in cited][:1]]
            rows.append((FROM_MEMORY, f"{self.base}/page/{UNSHOWN_PAGE}"))
        numbers = {url: at for at, url in enumerate(dict.fromkeys(url for _, url in rows), 1)}
        body = "\n\n".join(f"{sentence} [{numbers[url]}]({url})" for sentence, url in rows)
        return f"## Answer\n\n{body}\n\n### Sources\n\n" + "\n".join(f"[{at}] {url}" for url, at in numbers.items())

    # --- agents with tool schemas

    def _with_tools(
        self,
        messages: Sequence[Mapping[str, Any]],
        parts: Sequence[str],
        tools: Sequence[Mapping[str, Any]],
        walk: Walk,
    ) -> Reply:
        fields = {tool["name"]: (tool.get("parameters") or {}).get("properties") or {} for tool in tools}
        search = next(name for name in fields if "search" in name.lower() and "query" in fields[name])
        read = next(name for name in fields if "url" in fields[name] and name != search)
        final = next((name for name in fields if name.lower() == "final_answer"), None)
        calls = _earlier_calls(messages, fields)
        searched = sum(name == search for name, _ in calls)
        if searched < walk.searches:
            return Reply(None, [(search, {"query": self.queries[searched]})])
        shown = self._shown(parts)
        asked = self._urls(" ".join(arguments for name, arguments in calls if name == read))
        todo = [url for url in shown if url not in asked]
        if len(asked) < walk.reads and todo:
            return Reply(None, [(read, {"url": todo[0]})])
        answer = self._answer("\n".join(parts), [url for url in shown if url in asked], shown, walk)
        return Reply(None, [(final, {next(iter(fields[final])): answer})]) if final else Reply(answer)

    # --- agents without

    def _in_text(self, parts: Sequence[str], walk: Walk) -> str:
        text, system = "\n".join(parts), parts[0] if parts else ""
        if "You correct single sentences" in system:
            found = re.findall(r"^id (\d+)$", text, re.M)
            return json.dumps([{"id": int(number), "action": "keep"} for number in found])
        if "Write the report now." in parts[-1]:
            return self._own_report(parts[-1], walk)
        if "\n- fetch {" in system and "\n- finish " in system:
            return self._own_turn(parts, walk)
        if "Action Input:" in system:
            return self._plain_turn(parts, walk)
        if "final_answer(" in system:
            return self._code_turn(parts, walk)
        return self._for_gpt_researcher(text, walk)

    def _own_turn(self, parts: Sequence[str], walk: Walk) -> str:
        """A turn of this project's loop, which names results R1, R2 … instead of showing addresses."""

        def turn(thought: str, action: str, arguments: Mapping[str, Any]) -> str:
            return f"Thought: {thought}\nAction: {action}\nAction Input: {json.dumps(arguments)}"

        said = "\n".join(part for part in parts if part.startswith("<assistant>"))
        searched = said.count("Action: search\n")
        if searched < walk.searches:
            return turn("I need sources for this.", "search", {"query": self.queries[searched]})
        read = set(re.findall(r'"(R\d+)"', said))
        results = {name: int(number) for name, number in _OWN_RESULT.findall("\n".join(parts))}
        best = sorted(results, key=lambda name: self._rank.get(results[name], 10_000))
        todo = [name for name in best if name not in read][: min(walk.pages_a_step, walk.reads - len(read))]
        if todo:
            return turn("These pages look relevant.", "fetch", {"results": todo})
        return turn("I have what I need.", "finish", {})

    def _own_report(self, prompt: str, walk: Walk) -> str:
        lines: list[str] = []
        read: set[int] = set()
        for block in _OWN_SOURCE.split(prompt.partition("The passages:")[2].rpartition("\n\nQuestion:")[0]):
            head, _, passages = block.partition("\n")
            if not (tag := re.match(r"\[Source \d+\]", head)):
                continue
            read.update(int(number) for number in re.findall(r"\bpage-(\d+)\.", head))
            lines += [f"{sentence} {tag[0]}" for sentence in self._telling(sentences_in(passages), 2)]
        if walk.careless:
            unread = next(number for number in self._rank if number not in read)
            lines.append(f"{FROM_MEMORY} [the manual](http://page-{unread}.docs.example:80/page/{unread}) [Source 9]")
            lines.append(f"It is {FROM_MEMORY.lower()} [1]({self.base}/page/{UNSHOWN_PAGE})")
        return "\n\n".join(lines) or FROM_MEMORY

    def _plain_turn(self, parts: Sequence[str], walk: Walk) -> str:
        said = "\n".join(part for part in parts if part.startswith("<assistant>"))
        searched = said.count("Action: web_search")
        if searched < walk.searches:
            query = json.dumps({"query": self.queries[searched]})
            return f"Thought: I need sources for this.\nAction: web_search\nAction Input: {query}"
        shown, asked = self._shown(parts), self._urls(said)
        todo = [url for url in shown if url not in asked]
        if len(asked) < walk.reads and todo:
            return f"Thought: This looks relevant.\nAction: read_page\nAction Input: {json.dumps({'url': todo[0]})}"
        answer = self._answer("\n".join(parts), [url for url in shown if url in asked], shown, walk)
        return f"Thought: I have what I need.\nFinal Answer: {answer}"

    def _code_turn(self, parts: Sequence[str], walk: Walk) -> str:
        """A turn of smolagents' CodeAgent, whose history repeats each call: distinct ones are counted."""
        opening, closing = ("<code>", "</code>") if "<code>" in parts[0] else ("```py", "```")
        said = "\n".join(part for part in parts if part.startswith("<assistant>"))
        searched = len({re.sub(r"\W+", " ", query) for query in re.findall(r"web_search\(([^)]*)\)", said)})
        if searched < walk.searches:
            return f"Thought: I search.\n{opening}\nprint(web_search(query={self.queries[searched]!r}))\n{closing}"
        shown, asked = self._shown(parts), self._urls(said)
        todo = [url for url in shown if url not in asked]
        if len(asked) < walk.reads and todo:
            return f"Thought: I read.\n{opening}\nprint(visit_webpage(url={todo[0]!r}))\n{closing}"
        answer = self._answer("\n".join(parts), [url for url in shown if url in asked], shown, walk)
        return f"Thought: I can answer.\n{opening}\nfinal_answer({answer!r})\n{closing}"

    def _for_gpt_researcher(self, text: str, walk: Walk) -> str:
        low = text.lower()
        if "agent_role_prompt" in low:
            return json.dumps({"server": "Software Agent", "agent_role_prompt": "You research software documentation."})
        if re.search(r"write \d+ (google )?search quer", low) or "list of strings in the following format" in low:
            return json.dumps(self.queries[: walk.searches])
        shown = self._shown(["<user>" + text])
        return self._answer(text, shown[: 2 * walk.reads], shown[2 * walk.reads :], walk)


def _earlier_calls(messages: Sequence[Mapping[str, Any]], tools: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The calls in a conversation as (tool, arguments). smolagents replays its calls as text, `Calling tools:`."""
    found: list[tuple[str, str]] = []
    for message in messages:
        calls = [call.get("function", {}) for call in message.get("tool_calls") or []]
        found += [(str(call.get("name")), str(call.get("arguments"))) for call in calls]
        text = "" if calls else flat([message])[0]
        if "Calling tools:" in text:
            names = Counter(re.findall(r"['\"]name['\"]: ['\"](\w+)['\"]", text))
            found += [(name, text) for name in names.elements() if name in tools]
    return found
