"""Every setting of the agent: its name, environment variable, default, unit and meaning, once.

`.env.example`, `--help`, `--check` and the README's table are generated from the fields below or
tested against them. Nothing here imports a provider's SDK or opens a connection.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from m3.redaction import redact as redact
from m3.redaction import remember_secret
from m3.setting_types import (
    access_token,
    contact_line,
    domains,
    named_hosts,
    one_of,
    origins,
    past_date,
    port_number,
    positive_number,
    proxy_address,
    readable_path,
    rest_address,
    setting,
    settings_of,
    several_of,
    switch,
    unquoted,
    web_address,
    whole_number,
)

VERSION = "0.1.0"
PROGRAM_DIR = Path(__file__).resolve().parent

LLM_PROVIDERS = ("groq", "anthropic", "openai", "mock")
SEARCH_PROVIDERS = ("tavily", "serpapi", "searxng", "duckduckgo", "local", "mock")
DDGS_PACKAGE = "ddgs>=9.16,<10"  # optional; it breaks whenever DuckDuckGo's page changes, so a range is named
NEARLY = 0.85  # likeness (difflib) from which a name in .env counts as misspelt; GROK_API_KEY has 0.92
KEYLESS = "tavily-keyless"  # the internal name of Tavily's keyless access; chosen, never typed

# Models taken when the provider's *_MODEL variable is unset: small ones that no shutdown is announced for. Checked on
# 2026-11-30 against the model lists of groq 1.7.0, openai 3.57.0 and anthropic 2.14.0.
DEFAULT_MODELS = {
    "groq": "openai/gpt-oss-120b",
    "openai": "gpt-6-luna",
    "anthropic": "claude-haiku-5-5",
    "mock": "mock-extractive",
}


class ConfigError(ValueError):
    """A setting that cannot be used. The message is one line: which variable, what value, what is accepted."""


# --- the settings ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Keys:
    """Keys and tokens. Secret: masked wherever they are shown, redacted by value wherever text leaves."""

    groq_api_key: str | None = setting("GROQ_API_KEY", None, "key for Groq (free at console.groq.com)", secret=True)
    anthropic_api_key: str | None = setting("ANTHROPIC_API_KEY", None, "key for Anthropic", secret=True)
    openai_api_key: str | None = setting(
        "OPENAI_API_KEY", None, "key for OpenAI, or for the server at OPENAI_BASE_URL", secret=True
    )
    tavily_api_key: str | None = setting("TAVILY_API_KEY", None, "key for Tavily web search", secret=True)
    serpapi_api_key: str | None = setting("SERPAPI_API_KEY", None, "key for SerpAPI web search", secret=True)
    upstash_url: str | None = setting(
        "UPSTASH_REDIS_REST_URL",
        None,
        "REST address of an Upstash Redis for long-term memory",
        rest_address,
        also=("KV_REST_API_URL",),
    )
    upstash_token: str | None = setting(
        "UPSTASH_REDIS_REST_TOKEN",
        None,
        "token of that Upstash Redis",
        unquoted,
        secret=True,
        also=("KV_REST_API_TOKEN",),
    )


@dataclass(frozen=True)
class AutonomyLimits:
    """The three hard bounds of a run; the writing of the report is inside all of them."""

    max_iterations: int = setting(
        "MAX_ITERATIONS", 10, "turns of thought and action before the report is written", whole_number,
        unit="turns", flag="--max-iterations",
    )  # fmt: skip
    max_tokens: int = setting(
        "MAX_TOKENS", 60_000, "prompt and completion tokens of the whole run", whole_number,
        unit="tokens", flag="--max-tokens",
    )  # fmt: skip
    max_wall_clock_seconds: float = setting(
        "MAX_WALL_CLOCK_SECONDS", 300.0, "time of the whole run", positive_number,
        unit="seconds", flag="--max-seconds",
    )  # fmt: skip


@dataclass(frozen=True)
class MemorySettings:
    """Short-term memory: the conversation with the model. Long-term memory: earlier runs, recalled as leads."""

    short_term_token_budget: int = setting(
        "SHORT_TERM_TOKEN_BUDGET",
        12_000,
        "largest prompt before old turns are condensed",
        whole_number,
        unit="tokens",
    )
    backend: str | None = setting(
        "MEMORY_BACKEND", None,
        "where runs are remembered: upstash, local (a file of the user) or none; unset: upstash if it is configured,"
        " else local",
        one_of("upstash", "local", "none"),
    )  # fmt: skip
    path: str | None = setting("MEMORY_PATH", None, "file of the local memory; unset: in the user's data folder")
    max_sessions: int = setting(
        "MEMORY_MAX_SESSIONS", 5_000, "runs remembered; the oldest above this are forgotten", whole_number, unit="runs"
    )
    namespace: str | None = setting("MEMORY_NAMESPACE", None, "parts several users of one Upstash database")
    space: str | None = setting(
        "SPACE_ID", None, "set by Hugging Face: in a Space nothing is remembered without Upstash or MEMORY_BACKEND"
    )


@dataclass(frozen=True)
class ModelSettings:
    """Which language model writes the turns and the report."""

    provider: str | None = setting(
        "LLM_PROVIDER", None, "groq, anthropic, openai or mock; unset: the first key present, else mock",
        one_of(*LLM_PROVIDERS), flag="--provider",
    )  # fmt: skip
    groq_model: str | None = setting("GROQ_MODEL", None, f"model at Groq; unset: {DEFAULT_MODELS['groq']}")
    groq_base_url: str | None = setting("GROQ_BASE_URL", None, "another address that speaks Groq's API", web_address)
    openai_base_url: str | None = setting(
        "OPENAI_BASE_URL", None, "an OpenAI-compatible server (Ollama, vLLM, LM Studio, OpenRouter), with /v1",
        web_address,
    )  # fmt: skip
    openai_model: str | None = setting(
        "OPENAI_MODEL", None,
        f"model at OpenAI or at OPENAI_BASE_URL; unset: {DEFAULT_MODELS['openai']}, or the only one that server has",
    )  # fmt: skip
    anthropic_model: str | None = setting(
        "ANTHROPIC_MODEL", None, f"model at Anthropic; unset: {DEFAULT_MODELS['anthropic']}"
    )
    anthropic_base_url: str | None = setting(
        "ANTHROPIC_BASE_URL", None, "another address that speaks Anthropic's API, without /v1", web_address
    )
    fallback: tuple[str, ...] = setting(
        "LLM_FALLBACK", (), "providers that go on with a run when the chosen one fails, comma-separated in order",
        several_of("groq", "anthropic", "openai"),
    )  # fmt: skip
    max_output_tokens: int = setting(
        "MAX_OUTPUT_TOKENS", 1_500, "largest completion asked for in one call", whole_number, unit="tokens"
    )
    max_cost_usd: float | None = setting(
        "MAX_COST_USD", None, "bound on what the model calls of a run cost, where the model's price is known",
        positive_number, unit="US dollars", flag="--max-cost",
    )  # fmt: skip


@dataclass(frozen=True)
class SearchSettings:
    """Where the agent looks."""

    providers: tuple[str, ...] | None = setting(
        "SEARCH_PROVIDER", None,
        "tavily, serpapi, searxng, duckduckgo, local or mock, comma-separated in order; unset: --docs alone if given,"
        " else the first key present, else keyless web search with a real model, else mock",
        several_of(*SEARCH_PROVIDERS),
    )  # fmt: skip
    searxng_base_url: str | None = setting("SEARXNG_BASE_URL", None, "address of a SearXNG instance", web_address)
    docs_dir: str | None = setting(
        "DOCS_DIR",
        None,
        "folder of your own documents to search (.md .txt .html .csv .pdf)",
        readable_path,
        flag="--docs",
    )
    allow_domain: tuple[str, ...] = setting(
        "ALLOW_DOMAINS", (), "only these sites and their subdomains are searched, fetched and followed to", domains,
        flag="--allow-domain", repeat=True,
    )  # fmt: skip
    deny_domain: tuple[str, ...] = setting(
        "DENY_DOMAINS", (), "these sites and their subdomains are never used", domains,
        flag="--deny-domain", repeat=True,
    )  # fmt: skip
    since: str | None = setting(
        "SEARCH_SINCE", None, "only results from this date on, YYYY-MM-DD; those of unknown date stay", past_date,
        flag="--since",
    )  # fmt: skip
    recent: str | None = setting(
        "SEARCH_RECENT", None, "only results of the last day, week, month or year; those of unknown date stay",
        one_of("day", "week", "month", "year"), flag="--recent",
    )  # fmt: skip
    max_sources: int | None = setting(
        "MAX_SOURCES", None, "most pages that are read in a run", whole_number, flag="--max-sources"
    )


@dataclass(frozen=True)
class FetchSettings:
    """How pages are read."""

    contact: str | None = setting(
        "CONTACT", None, "mail address or page named in the User-Agent of page fetches; Wikipedia asks for one",
        contact_line,
    )  # fmt: skip
    timeout_seconds: float = setting(
        "FETCH_TIMEOUT", 15.0, "time for one page, all in all", positive_number, unit="seconds"
    )
    pace_seconds: float = setting(
        "FETCH_PACE",
        0.25,
        "pause between two requests to one site (arXiv: at least 3)",
        positive_number,
        unit="seconds",
    )
    per_host: int = setting("FETCH_PER_HOST", 2, "requests to one site at a time (arXiv: 1)", whole_number)
    respect_robots: bool = setting(
        "RESPECT_ROBOTS", True, "ask a site's robots.txt, except for pages that the question names", switch
    )
    allow_unseen_urls: bool = setting(
        "ALLOW_UNSEEN_URLS", False, "let the model fetch addresses that it was not shown; data can leak in them", switch
    )
    allow_private_hosts: tuple[str, ...] = setting(
        "ALLOW_PRIVATE_HOSTS", (), "hosts of your own network that may be read: host or host:port, comma-separated",
        named_hosts,
    )  # fmt: skip
    proxy: str | None = setting(
        "FETCH_PROXY", None, "http proxy that makes all page fetches; the check of addresses is then the proxy's",
        proxy_address, secret=True,
    )  # fmt: skip
    ca_file: str | None = setting(
        "SSL_CERT_FILE",
        None,
        "certificates (PEM) to trust besides the usual ones, for a company's proxy",
        readable_path,
    )
    cache_dir: str | None = setting(
        "CACHE_DIR", None, "folder to keep fetched pages in between runs; they are used when the site says unchanged"
    )
    wayback: bool = setting(
        "WAYBACK",
        True,
        "look for an archived copy at archive.org, once, when a page is gone or its server broken",
        switch,
    )


@dataclass(frozen=True)
class ContainerSettings:
    """What `entrypoint.sh` does in a container. The command line reads none of them."""

    query: str | None = setting("QUERY", None, "question that a container researches, once at each start")
    port: int = setting("PORT", 7860, "port of the container's health server", port_number)
    keep_alive: bool = setting(
        "KEEP_ALIVE", False, "1: a container idles after its run, as it always does in a Hugging Face Space", switch
    )
    run_state_dir: str | None = setting(
        "RUN_STATE_DIR",
        None,
        "folder that outlives the container; a QUERY whose run is noted there is not run again",
    )
    run_always: bool = setting("RUN_ALWAYS", False, "1: run QUERY even though RUN_STATE_DIR notes a run of it", switch)


@dataclass(frozen=True)
class ReportSettings:
    """What is done with sentences that their sources do not bear out."""

    repair: str = setting(
        "CITATION_REPAIR", "rewrite",
        "off: only mark; tags: correct source tags; rewrite: also one model call that corrects failing sentences;"
        " strict: also remove what still stands on no cited page",
        one_of("off", "tags", "rewrite", "strict"), flag="--repair",
    )  # fmt: skip


@dataclass(frozen=True)
class ChatSettings:
    """The chat in the browser (`make web`). The command line reads none of them. PORT is its port too, there 8000."""

    host: str = setting(
        "CHAT_HOST", "127.0.0.1", "address the chat listens on; any but a loopback one needs CHAT_TOKEN"
    )
    token: str | None = setting(
        "CHAT_TOKEN", None, "what a visitor of the chat must know, 16 characters or more", access_token, secret=True
    )
    hosts: tuple[str, ...] = setting(
        "CHAT_HOSTS", (), "further names under which the chat may be opened, comma-separated; no wildcards", named_hosts
    )
    cors_origins: tuple[str, ...] = setting(
        "CHAT_CORS_ORIGINS", ("http://localhost:5173", "http://127.0.0.1:5173"),
        "other pages that may use the chat, comma-separated, or none; by default the development server's, and only"
        " while CHAT_TOKEN is unset", origins,
    )  # fmt: skip
    runs_per_client: int = setting(
        "CHAT_RUNS_PER_CLIENT", 2, "questions that one browser session may have answered at a time", whole_number
    )
    runs: int = setting("CHAT_RUNS", 8, "questions that are answered at a time, all sessions together", whole_number)
    upload_dir: str | None = setting(
        "CHAT_UPLOAD_DIR", None, "folder of uploaded files, for all sessions; unset: web/backend/uploads"
    )
    upload_mb: int = setting("CHAT_UPLOAD_MB", 20, "largest uploaded file", whole_number, unit="MB")


@dataclass(frozen=True)
class Config:
    """All settings of a run, resolved. `llm_reason` and `search_reason` say why a provider was chosen."""

    keys: Keys = Keys()
    limits: AutonomyLimits = AutonomyLimits()
    memory: MemorySettings = MemorySettings()
    models: ModelSettings = ModelSettings()
    search: SearchSettings = SearchSettings()
    fetch: FetchSettings = FetchSettings()
    container: ContainerSettings = ContainerSettings()
    chat: ChatSettings = ChatSettings()
    report: ReportSettings = ReportSettings()
    llm_provider: str = "mock"
    llm_reason: str = "the built-in default"
    search_providers: tuple[str, ...] = ("mock",)
    search_reason: str = "the built-in default"
    warnings: tuple[str, ...] = ()

    @property
    def search_provider(self) -> str:
        """The providers of search in the order they are asked, comma-separated."""
        return ",".join(self.search_providers)

    @property
    def model(self) -> str | None:
        """The model that was chosen, or the provider's default; None where only the server can say."""
        return self.model_of(self.llm_provider)

    def model_of(self, provider: str) -> str | None:
        """The model that would be asked at `provider`; None where only the server at OPENAI_BASE_URL can say."""
        chosen: str | None = getattr(self.models, f"{provider}_model", None)
        if provider == "openai" and self.models.openai_base_url:
            return chosen
        return chosen or DEFAULT_MODELS.get(provider)


MEMORY = MemorySettings()


def data_folder() -> Path:
    """The user's folder for this program's data, by the XDG base directory specification; it need not exist yet."""
    base = os.environ.get("XDG_DATA_HOME", "")
    try:
        return (Path(base) if os.path.isabs(base) else Path.home() / ".local" / "share") / "m3-research-agent"
    except RuntimeError:  # no home
        return Path(os.devnull) / "m3-research-agent"


T = TypeVar("T")


def all_settings() -> Iterator[tuple[str, Field[Any]]]:
    """Every setting as (group name, field), keys first: the order of `.env.example`."""
    for group in fields(Config):
        if is_dataclass(group.default):
            yield from ((group.name, f) for f in settings_of(group.default))


# --- reading them ----------------------------------------------------------------------------------------


def load_config(
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, str] | None = None,
    *,
    web: bool = False,
    defaults: Mapping[str, str] | None = None,
) -> Config:
    """Read the environment into a `Config`.

    env: the variables; None means the process's own, with `.env` (working folder, else beside the program) for
        those that are not set. A mapping is taken as it is and no `.env` is read.
    overrides: values from the command line by environment name; they win.
    web: also search the web when documents are searched (`--web`).
    defaults: values by environment name of those that are set nowhere, for a caller with other defaults.

    Raises ConfigError with one line for a value that cannot be used or a provider without its key.
    """
    given, doubts = _environment() if env is None else (env, ())
    values = dict(given)
    values.update(overrides or {})
    values = {name: text.strip() for name, text in values.items() if text and text.strip()}
    values = {**(defaults or {}), **values}
    groups: dict[str, Any] = {
        g.name: _read(type(g.default), values)
        for g in fields(Config)
        if is_dataclass(g.default) and not isinstance(g.default, type)
    }
    config = Config(**groups)
    for group, f in all_settings():
        value = getattr(getattr(config, group), f.name)
        if f.metadata["secret"] and value:
            remember_secret(value)
    resolved = _resolve(config, web)
    return replace(resolved, warnings=(*doubts, *resolved.warnings))


def _environment() -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables of the process and of `.env`, and what is doubtful in that file."""
    doubts: tuple[str, ...] = ()
    for folder, where in {Path.cwd(): "in the working folder", PROGRAM_DIR: "beside the program"}.items():
        path = folder / ".env"
        # Some name a virtual environment so, and a link to nothing says that there is none.
        if not os.path.lexists(path) or os.path.isfile(path / "pyvenv.cfg") or path.resolve() == Path(os.devnull):
            continue
        try:
            if not path.is_file():
                raise OSError(0, "it is a folder" if path.is_dir() else "it is no file")
            written = _dotenv(path)
        except OSError as problem:
            # Not the whole path: visitors of the chat read this too.
            doubt = f"The .env {where} cannot be read ({problem.strerror}), so none of its settings is in force"
            doubts = (*doubts, f"{doubt}: make it a file that you may read, or remove it.")
            continue
        return {**written, **_set_in_process()}, (*doubts, *_misspelt(written))
    return _set_in_process(), doubts


def _dotenv(path: Path) -> dict[str, str]:
    """The settings in a `.env`. Raises OSError where it cannot be read, and ConfigError for a line that would be passed
    over, a key among them perhaps."""
    import re
    from io import StringIO

    from dotenv import dotenv_values
    from dotenv.parser import parse_stream

    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text; save it as UTF-8 in an editor") from None
    for statement in parse_stream(StringIO(text)):
        if statement.error:  # the line is not shown: what is wrong with it may be the quotation mark of a key
            line, text = statement.original.line, statement.original.string
            opened = re.match(r"""\s*(?:export\s+)?\w+\s*=\s*["']""", text)
            wrong = "has a quotation mark too few or too many" if opened else "is not NAME=value"
            raise ConfigError(f"{path}, line {line}, {wrong}; correct it or put # before it")
    return {name: value for name, value in dotenv_values(stream=StringIO(text)).items() if value}


def _misspelt(written: Mapping[str, str]) -> tuple[str, ...]:
    """One line for each name in `.env` that is no setting but nearly one; other programs may keep theirs there."""
    known = {env for _, f in all_settings() for env in (f.metadata["env"], *f.metadata["also"])}
    unknown = [name for name in written if name not in known]
    if not unknown:
        return ()
    from difflib import get_close_matches

    near = ((name, get_close_matches(name, known, 1, NEARLY)) for name in unknown)
    return tuple(f"{name} in .env is no setting; did you mean {match[0]}?" for name, match in near if match)


def cache_folder() -> Path:
    """The folder for what can be made anew at any time; it need not exist yet, and may be impossible to make."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "m3-research-agent"
    except RuntimeError:  # no home
        return Path(os.devnull) / "m3-research-agent"


def _set_in_process() -> dict[str, str]:
    return {name: text for name, text in os.environ.items() if text.strip()}


def _read(group: type[T], values: Mapping[str, str]) -> T:
    chosen = {}
    for f in settings_of(group):
        for env in (f.metadata["env"], *f.metadata["also"]):
            if env not in values:
                continue
            try:
                chosen[f.name] = f.metadata["parse"](values[env])
            except ValueError as problem:
                flag = f" ({f.metadata['flag']})" if f.metadata["flag"] else ""
                shown = "***" if f.metadata["secret"] else repr(values[env][:80])
                raise ConfigError(f"{env}{flag} is {shown}; it must be {problem}") from None
            break
    return group(**chosen)


def _resolve(config: Config, web: bool) -> Config:
    llm, llm_reason = _choose_llm(config)
    search, search_reason = _choose_search(config, llm, web)
    warnings = []
    if llm == "mock":
        warnings.append(
            "OFFLINE MOCK MODEL: no language model is used; sentences are copied from the sources by a fixed rule. "
            "Set GROQ_API_KEY (free), ANTHROPIC_API_KEY, OPENAI_API_KEY or OPENAI_BASE_URL for a real model."
        )
    if search == ("mock",):
        warnings.append("OFFLINE SAMPLE CORPUS: the web is not searched; only the built-in sample documents are.")
    if config.memory.backend == "upstash" and not (config.keys.upstash_url and config.keys.upstash_token):
        missing = "UPSTASH_REDIS_REST_TOKEN" if config.keys.upstash_url else "UPSTASH_REDIS_REST_URL"
        raise ConfigError(f"MEMORY_BACKEND is 'upstash' but {missing} is not set; set it in .env")
    if (config.keys.upstash_url is None) != (config.keys.upstash_token is None):
        missing = "UPSTASH_REDIS_REST_TOKEN" if config.keys.upstash_token is None else "UPSTASH_REDIS_REST_URL"
        warnings.append(f"Upstash is only half configured: {missing} is missing, so it is not used.")
    groups = {f.name: getattr(config, f.name) for f in fields(Config) if is_dataclass(f.default)}
    return Config(
        **groups,
        llm_provider=llm,
        llm_reason=llm_reason,
        search_providers=search,
        search_reason=search_reason,
        warnings=tuple(warnings),
    )


def _choose_llm(config: Config) -> tuple[str, str]:
    keys, models = config.keys, config.models
    present = {
        "groq": ("GROQ_API_KEY", keys.groq_api_key),
        "anthropic": ("ANTHROPIC_API_KEY", keys.anthropic_api_key),
        "openai": ("OPENAI_API_KEY or OPENAI_BASE_URL", keys.openai_api_key or models.openai_base_url),
        "mock": ("", "always there"),
    }
    for name in models.fallback:
        if not present[name][1]:
            raise ConfigError(f"LLM_FALLBACK names {name!r} but {present[name][0]} is not set; set it in .env")
    if models.provider:
        variable, value = present[models.provider]
        if not value:
            raise ConfigError(f"LLM_PROVIDER is {models.provider!r} but {variable} is not set; set it in .env")
        return models.provider, "LLM_PROVIDER says so"
    for name in ("groq", "anthropic", "openai"):
        variable, value = present[name]
        if value:
            if name == "openai":
                variable = "OPENAI_API_KEY" if keys.openai_api_key else "OPENAI_BASE_URL"
            return name, f"{variable} is set"
    return "mock", "no model key is set"


def _choose_search(config: Config, llm: str, web: bool) -> tuple[tuple[str, ...], str]:
    keys, search = config.keys, config.search
    present = {
        "tavily": ("TAVILY_API_KEY", keys.tavily_api_key),
        "serpapi": ("SERPAPI_API_KEY", keys.serpapi_api_key),
        "searxng": ("SEARXNG_BASE_URL", search.searxng_base_url),
        "local": ("DOCS_DIR (or --docs)", search.docs_dir),
        "duckduckgo": (f"the package ddgs (pip install '{DDGS_PACKAGE}')", importlib.util.find_spec("ddgs")),
    }
    documents = ("local",) if search.docs_dir else ()
    if search.providers:
        for name in search.providers:
            variable, value = present.get(name, ("", "needs none"))
            if not value:
                missing = "not installed" if name == "duckduckgo" else "not set; set it in .env"
                raise ConfigError(f"SEARCH_PROVIDER names {name!r} but {variable} is {missing}")
        return tuple(dict.fromkeys((*documents, *search.providers))), "SEARCH_PROVIDER says so"
    if documents and not web:
        return documents, "DOCS_DIR or --docs names a folder; the web is not searched without --web"
    for name in ("tavily", "serpapi", "searxng"):
        variable, value = present[name]
        if value:
            return (*documents, name), f"{variable} is set"
    if llm != "mock" or web:
        chain = (KEYLESS, "duckduckgo") if importlib.util.find_spec("ddgs") else (KEYLESS,)
        return (
            *documents,
            *chain,
        ), "no search key is set: keyless web search, queries go to " + " then ".join(chain)
    return ("mock",), "no search key is set and the model is the mock"


# --- how they are shown ----------------------------------------------------------------------------------


def shown_value(f: Field[Any], value: Any) -> str:
    """A setting's value as a person may see it: secrets masked, unset said so."""
    if value is None or value == ():
        return "(unset)"
    if f.metadata["secret"]:
        return "*** (set)"
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, int) and value >= 10_000:
        return f"{value:,}".replace(",", "_")
    return _as_text(value)


def chosen_settings(config: Config) -> dict[str, str]:
    """The settings that differ from their defaults, by environment name, secrets masked: what a trace keeps."""
    chosen = {}
    for group, f in all_settings():
        value = getattr(getattr(config, group), f.name)
        if value != f.default:
            chosen[f.metadata["env"]] = shown_value(f, value) if f.metadata["secret"] else _as_text(value)
    return chosen


def _as_text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def describe_settings(config: Config) -> str:
    """The `--check` page: every setting with its value, the providers that would be used and why."""
    lines = [f"m3 research agent {VERSION}", ""]
    for group, f in all_settings():
        value = getattr(getattr(config, group), f.name)
        unit = f" {f.metadata['unit']}" if f.metadata["unit"] and value is not None else ""
        lines.append(f"{f.metadata['env']:<26} {redact(shown_value(f, value))}{unit}")
    lines += [
        "",
        f"model:  {config.llm_provider} ({config.model or 'the server will be asked'}): {config.llm_reason}",
        *(
            f"        then {name} ({config.model_of(name) or 'the server will be asked'})"
            for name in config.models.fallback
        ),
        f"search: {config.search_provider}: {config.search_reason}",
        f"pages:  {_fetch_reason(config.fetch)}",
    ]
    lines += [f"WARNING: {text}" for text in config.warnings]
    return "\n".join(lines)


def _fetch_reason(fetch: FetchSettings) -> str:
    if fetch.proxy:
        return "through FETCH_PROXY, which looks up names itself: keeping non-public addresses out is its task"
    opened = f", and {', '.join(fetch.allow_private_hosts)}" if fetch.allow_private_hosts else ""
    return f"direct, from public addresses only{opened}"


def env_example() -> str:
    """The text of `.env.example`, generated so that it cannot drift from the code."""
    lines = ["# Copy to .env and fill in what you have. Every line is optional; empty means unset."]
    section = ""
    for group, f in all_settings():
        if group != section:
            section = group
            lines += ["", f"# --- {group} ---"]
        default = "unset" if f.default in (None, ()) else shown_value(f, f.default)
        unit = f" {f.metadata['unit']}" if f.metadata["unit"] and f.default not in (None, ()) else ""
        lines += [f"# {f.metadata['meaning']} (default: {default}{unit})", f"# {f.metadata['env']}="]
    return "\n".join(lines) + "\n"


def settings_table() -> str:
    """The README's table of settings, in Markdown."""
    rows = ["| variable | option | default | meaning |", "|---|---|---|---|"]
    for _, f in all_settings():
        default = "" if f.default in (None, ()) else f"{shown_value(f, f.default)} {f.metadata['unit']}".strip()
        option = f"`{f.metadata['flag']}`" if f.metadata["flag"] else ""
        rows.append(f"| `{f.metadata['env']}` | {option} | {default} | {f.metadata['meaning']} |")
    return "\n".join(rows)
