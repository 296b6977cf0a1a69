"""The text before it is understood: normalised, freed of reasoning blocks, and its line labels found."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

from m3.patterns import lazy_pattern

Kind = Literal["thought", "action", "input", "observation", "final", "other"]

# --- normalisation

_INVISIBLE = lazy_pattern("[\u200b\u2060\ufeff\u00ad\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# Joiners shape Persian, Indic scripts and emoji; beside ASCII they are noise.
_JOINER = lazy_pattern("(?<![^\x00-\x7f])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f])")
_SPACES = dict.fromkeys([0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000], " ")
_TABLE = {**_SPACES, 0x2010: "-", 0x2011: "-", 0x2028: "\n", 0x2029: "\n", 0x85: "\n", 0x0B: "\n", 0x0C: "\n", 0x00: ""}
_END_TOKEN = lazy_pattern(
    r"(?:<\|(?:im_end|eot_id|eom_id|end|endoftext|return|end_of_text|end_of_sentence)\|>|</s>|<eos>|<end_of_turn>|\[/INST\])\Z",
    re.I,
)


def normalise(text: str) -> str:
    """One form of spaces, hyphens, line ends; no invisible characters; no end-of-turn tokens."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").translate(_TABLE)
    text = _JOINER.sub("", _INVISIBLE.sub("", text))
    if "｜" in text:  # DeepSeek writes its tokens with full-width bars and a low block for the space
        text = re.sub(r"<｜([^<>｜\n]{0,40})｜", lambda m: f"<|{m[1].replace('▁', '_')}|", text)
        text = re.sub(r"</｜([^<>｜\n]{0,40})｜", lambda m: f"</|{m[1].replace('▁', '_')}|", text)
    end = len(text)
    while end:
        tail = text[max(0, end - 40) : end].rstrip()
        token = _END_TOKEN.search(tail)
        if token is None:
            break
        end -= min(end, 40) - token.start()
    return text[:end].strip()


# --- reasoning blocks

_THINK_NAMES = r"think(?:ing)?|reason(?:ing)?|analysis|reflection|scratchpad|seed:think|antml:thinking|monologue"
_OPEN = lazy_pattern(
    rf"^[ \t]{{0,20}}(?:thought:[ \t]{{0,8}})?(?:<\|?(?:{_THINK_NAMES})\|?>"
    r"|\[THINK\]|◁think▷|<\|begin_of_thought\|>)",
    re.I | re.M,
)
_CLOSE = lazy_pattern(rf"</\|?(?:{_THINK_NAMES})\|?>|\[/THINK\]|◁/think▷|<\|end_of_thought\|>", re.I)


class Body(NamedTuple):
    """A text without its reasoning. reasoning: what was taken out; open: the last block was not closed."""

    text: str
    reasoning: str = ""
    open: bool = False


def split_reasoning(text: str) -> Body:
    """Take reasoning blocks out. A tag counts at the start of a line only, so that one inside an argument stays; a
    closing tag without its opening ends the reasoning that began with the text."""
    kept: list[str] = []
    thoughts: list[str] = []
    at = 0
    first = _CLOSE.search(text)
    opening = _OPEN.search(text)
    if first and (opening is None or opening.start() > first.start()) and not _inside_braces(text, first):
        thoughts.append(text[: first.start()])
        at = first.end()
        opening = _OPEN.search(text, at)
    while opening:
        kept.append(text[at : opening.start()])
        closing = _CLOSE.search(text, opening.end())
        if closing is None:
            thoughts.append(text[opening.end() :])
            return Body("\n".join(kept).strip(), "\n".join(thoughts).strip(), open=True)
        thoughts.append(text[opening.end() : closing.start()])
        at = closing.end()
        opening = _OPEN.search(text, at)
    kept.append(text[at:])
    joined = kept[0] if len(kept) == 1 else "\n".join(kept)
    return Body(joined.strip(), "\n".join(thoughts).strip())


def _inside_braces(text: str, tag: re.Match[str]) -> bool:
    """A tag that stands between a brace and its line's closing brace is part of an argument."""
    start = text.rfind("\n", 0, tag.start()) + 1
    end = text.find("\n", tag.end())
    before, after = text[start : tag.start()], text[tag.end() : len(text) if end < 0 else end]
    return ("{" in before or "(" in before) and ("}" in after or ")" in after)


# --- labels

# Field names of the ReAct format, their synonyms in public bug reports, and their translations. Compared without
# case, spaces, hyphens, underscores and digits.
_LABELS: dict[Kind, str] = {
    "thought": "thought|thoughts|think|thinking|reasoning|reason|gedanke|gedanken|überlegung|pensée|réflexion|"
    "pensamiento|pensamento|pensiero|мысль|размышление|思考|想法|思路|考え|생각|gedachte|myśl|düşünce|الفكرة|विचार",
    "action": "action|next action|act|tool|tool name|tool call|tool to use|function|function name|function call|"
    "action name|aktion|handlung|werkzeug|outil|acción|herramienta|ação|ferramenta|azione|strumento|действие|"
    "инструмент|行动|行動|动作|動作|操作|工具|アクション|ツール|행동|도구|actie|akcja|eylem|الإجراء|कार्य",
    "input": "action input|action inputs|input|tool input|function input|arguments|args|parameters|params|action args|"
    "action arguments|action parameters|action params|tool args|tool arguments|tool parameters|function arguments|"
    "input json|json input|aktionseingabe|eingabe|aktion eingabe|aktions eingabe|handlungseingabe|aktionsparameter|"
    "entrée|entrée d'action|entrée de l'action|paramètres|entrada|entrada de acción|entrada de la acción|parámetros|"
    "entrada da ação|parâmetros|input azione|input dell'azione|input dell azione|ввод|ввод действия|входные данные|"
    "входные данные действия|параметры|аргументы|输入|输入参数|行动输入|动作输入|操作输入|工具输入|参数|輸入|行動輸入|"
    "動作輸入|参數|アクション入力|アクションの入力|行動入力|行動の入力|入力|ツール入力|행동 입력|입력|액션 입력|"
    "actie invoer|invoer|dane wejściowe|wejście akcji|eylem girdisi|girdi",
    "observation": "observation|observations|obs|tool output|tool result|tool response|function result|beobachtung|"
    "observación|observação|osservazione|наблюдение|观察|观察结果|觀察|観察|観察結果|관찰|observatie|obserwacja|gözlem",
    "final": "final answer|answer|final response|final result|endgültige antwort|finale antwort|antwort|réponse finale|"
    "réponse|respuesta final|respuesta|resposta final|resposta|risposta finale|risposta|окончательный ответ|"
    "финальный ответ|итоговый ответ|ответ|最终答案|最终回答|答案|回答|最終答案|最終回答|最終的な答え|答え|"
    "최종 답변|최종 답|답변|eindantwoord|ostateczna odpowiedź|odpowiedź|son cevap|nihai cevap",
    "other": "question|user|human|query from user|frage|问题|問題|pregunta|вопрос",
}


@lru_cache(maxsize=4_096)
def _plain(label: str) -> str:
    return re.sub(r"[\W\d_]+", "", unicodedata.normalize("NFC", label).casefold())


_KINDS: dict[str, Kind] = {_plain(word): kind for kind, words in _LABELS.items() for word in words.split("|")}
# Words that also begin ordinary lines; they never end a value.
_WEAK = {
    _plain(word) for word in "act|tool|function|input|arguments|args|parameters|params|reason|obs|answer".split("|")
}

# Decoration may stand around a label: Markdown, quotation bars, list numbers, an angle bracket, an emoji. The label
# begins with a letter and the decoration holds none, so the match never backtracks far. A broken bar is no decoration:
# it is what stands before a label that a page imitated (m3/untrusted.py).
_LABEL = lazy_pattern(
    r"^[^\w\n{}\"'“”:：¦]{0,16}(?:\d{1,2}[.)][^\w\n{}\"'“”:：¦]{0,8})?"
    r"_{0,3}(?P<label>[^\W\d_][^\n{}\[\]()<>\"“”:：=*`#]{0,40}?)"
    r"[^\w\n{}\"'“”:：=\[(]{0,6}(?:[(\[#]?\d{1,3}[)\]]?[^\w\n{}\"'“”:：=\[(]{0,6})?"
    r"(?P<separator>[:：﹕]|=>|->|→|=(?!=))[ \t]*",
    re.M,
)


class Mark(NamedTuple):
    """A label at the start of a line. Its value begins at `end`."""

    kind: Kind
    start: int
    end: int
    strong: bool


def marks(text: str, at: int = 0) -> Iterator[Mark]:
    """The labels of a text in order, from `at` on."""
    for match in _LABEL.finditer(text, at):
        word = _plain(match["label"])
        kind = _KINDS.get(word)
        if kind is not None and (word not in _WEAK or match["separator"] in ":：﹕"):
            yield Mark(kind, match.start(), match.end(), word not in _WEAK)


# --- labels written in other ways, brought into the usual form

_XML_LABEL = lazy_pattern(
    r"<(?P<close>/?)(?P<label>thoughts?|action(?:[ _-]?name)?|(?:action|tool)[ _-]?input|final[ _-]?answer|observation)"
    r"[ \t]{0,4}>",
    re.I,
)
_HEADING = lazy_pattern(
    r"^[ \t]{0,8}(?=[#*_])(?:#{1,6}[ \t]{0,4}(?:\*{1,3}|_{2})?|\*{1,3}|_{2})(?:\d{1,2}[.)][ \t]{0,4})?"
    r"(?P<label>[^\W\d_][\w '-]{0,40}?)[ \t]{0,4}(?:\d{1,3}[ \t]{0,4})?(?:\*{1,3}|_{2})?[ \t]{0,8}$",
    re.M,
)
_NO_COLON = lazy_pattern(
    r"^[ \t>*-]{0,8}(?P<label>Action)\*{0,2}[ \t]{1,4}(?=[\w.]{1,40}[ \t]*\n)"
    r"|^[ \t>*-]{0,8}(?P<input>Action[ _]?Input)\*{0,2}[ \t]{1,4}(?=[{\"`\[])",
    re.M,
)
_BREAKS = lazy_pattern(r"<br[ ]?/?>\s?|\\n(?=[ \t]{0,8}(?:\*{2})?(?:Thought|Action|Observation|Final Answer))", re.I)
_QUOTED = lazy_pattern(r"\A[\"'“](?=\s{0,4}\*{0,2}(?:Thought|Action))|[\"'”]\Z")
_INLINE = lazy_pattern(
    r"(?<=\S)[ \t]{1,8}(?:\*{2})?(?P<label>Action)(?:\*{2})?[ \t]?:(?:\*{2})?[ \t]{0,8}"
    r"(?P<name>[^\n:{}]{1,60}?)[\s,;.|*]{1,12}Action[ _]?Input(?:\*{2})?[ \t]?:"
)


def rewritten(text: str) -> str | None:
    """The text with its XML labels, headings without a colon or labels inside a line made plain, or None."""

    def tag(match: re.Match[str]) -> str:
        return "\n" if match["close"] else f"\n{match['label']}: "

    def heading(match: re.Match[str]) -> str:
        return f"{match['label']}:" if _plain(match["label"]) in _KINDS else match[0]

    def bare(match: re.Match[str]) -> str:
        return f"{match['label'] or match['input']}: "

    for sign, pattern, by in (("<", _XML_LABEL, tag), ("", _HEADING, heading), ("ction", _NO_COLON, bare)):
        changed = pattern.sub(by, text) if sign in text else text
        if changed != text and any(mark.kind in ("action", "final") for mark in marks(changed)):
            return changed
    for pattern, by_text in ((_BREAKS, "\n"), (_QUOTED, "")):
        changed = pattern.sub(by_text, text) if "Action" in text else text
        if changed != text and any(mark.kind in ("action", "final") for mark in marks(changed)):
            return changed
    inline = _INLINE.search(text) if "Action" in text else None
    if inline:
        rest = text[inline.end() :]
        return f"{text[: inline.start()]}\nAction: {inline['name']}\nAction Input: {rest.lstrip()}"
    return None


_TOKENS = lazy_pattern(r"<\|[^<>|\n]{0,40}\|?>|</?\w{1,20}\|>")
_FENCES = lazy_pattern(r"`{3,}\w{0,20}|~{3,}")


def plain_thought(text: str) -> str:
    """A thought on one line, without what would read as a label, a token or a reasoning tag at its start."""
    text = " ".join(_TOKENS.sub(" ", _FENCES.sub(" ", text[:MAX_THOUGHT])).split())
    while True:
        shorter = _CLOSE.sub("", text)
        opening = _OPEN.match(shorter)
        label = _STUTTER.match(shorter)
        shorter = shorter[opening.end() if opening else label.end() if label else 0 :].strip("*_#>- \t")
        if shorter == text:
            return text.encode("utf-8", "replace").decode()
        text = shorter


MAX_THOUGHT = 8_000
_STUTTER = lazy_pattern(r"[^\w\n]{0,8}(?:thought|thinking)s?[^\w\n]{0,8}[:：]", re.I)
