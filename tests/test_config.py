"""Settings: read, checked, resolved and shown."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

import config
from config import ConfigError, load_config
from tests.conftest import OWN_CASES

ROOT = Path(__file__).parent.parent
SECRET = "gsk_abcdef0123456789"


def test_defaults_are_those_of_the_contract() -> None:
    c = load_config({})
    assert dataclasses.astuple(c.limits) == (10, 60_000, 300.0)
    assert c.memory.short_term_token_budget == config.MEMORY.short_term_token_budget == 12_000
    assert (c.llm_provider, c.search_provider) == ("mock", "mock")


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        load_config({}).limits.max_tokens = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("env", "llm", "search"),
    [
        ({}, "mock", "mock"),
        ({"GROQ_API_KEY": SECRET}, "groq", "tavily-keyless"),
        ({"GROQ_API_KEY": SECRET, "ANTHROPIC_API_KEY": "a" * 9}, "groq", "tavily-keyless"),
        ({"ANTHROPIC_API_KEY": "a" * 9, "OPENAI_API_KEY": "b" * 9}, "anthropic", "tavily-keyless"),
        ({"OPENAI_BASE_URL": "http://localhost:11434/v1"}, "openai", "tavily-keyless"),
        ({"GROQ_API_KEY": SECRET, "TAVILY_API_KEY": "tvly-123456", "SERPAPI_API_KEY": "s" * 9}, "groq", "tavily"),
        ({"SERPAPI_API_KEY": "s" * 9, "SEARXNG_BASE_URL": "http://127.0.0.1:8888"}, "mock", "serpapi"),
        ({"SEARXNG_BASE_URL": "http://127.0.0.1:8888"}, "mock", "searxng"),
        ({"LLM_PROVIDER": "mock", "GROQ_API_KEY": SECRET}, "mock", "mock"),
        ({"LLM_PROVIDER": " Mock ", "TAVILY_API_KEY": ""}, "mock", "mock"),
        ({"DOCS_DIR": str(ROOT), "GROQ_API_KEY": SECRET}, "groq", "local"),
        ({"DOCS_DIR": str(ROOT), "TAVILY_API_KEY": "tvly-123456"}, "mock", "local"),
        ({"DOCS_DIR": str(ROOT), "SEARCH_PROVIDER": "tavily", "TAVILY_API_KEY": "tvly-123456"}, "mock", "local,tavily"),
    ],
)
def test_providers_are_the_explicit_ones_else_the_first_key_else_keyless_or_mock(
    env: dict[str, str], llm: str, search: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # ddgs is an optional extra
    c = load_config(env)
    assert (c.llm_provider, c.search_provider) == (llm, search)
    assert c.llm_reason and c.search_reason


def test_the_web_joins_documents_only_when_asked() -> None:
    env = {"DOCS_DIR": str(ROOT), "TAVILY_API_KEY": "tvly-123456"}
    assert load_config(env).search_providers == ("local",)
    assert load_config(env, web=True).search_providers == ("local", "tavily")


@pytest.mark.parametrize(
    ("env", "named"),
    [
        ({"MAX_TOKENS": "lots"}, ["MAX_TOKENS", "'lots'", "whole number"]),
        ({"MAX_TOKENS": "-5"}, ["MAX_TOKENS", "'-5'", "at least 1"]),
        ({"MAX_ITERATIONS": "0"}, ["MAX_ITERATIONS", "'0'"]),
        ({"MAX_ITERATIONS": "2.5"}, ["MAX_ITERATIONS", "'2.5'"]),
        ({"MAX_WALL_CLOCK_SECONDS": "nan"}, ["MAX_WALL_CLOCK_SECONDS", "'nan'", "greater than 0"]),
        ({"MAX_WALL_CLOCK_SECONDS": "inf"}, ["MAX_WALL_CLOCK_SECONDS", "'inf'"]),
        ({"SHORT_TERM_TOKEN_BUDGET": "12k"}, ["SHORT_TERM_TOKEN_BUDGET", "'12k'"]),
        ({"LLM_PROVIDER": "gpt"}, ["LLM_PROVIDER", "'gpt'", "groq", "anthropic", "openai", "mock"]),
        ({"LLM_PROVIDER": "groq"}, ["LLM_PROVIDER", "GROQ_API_KEY"]),
        ({"LLM_PROVIDER": "openai"}, ["OPENAI_API_KEY or OPENAI_BASE_URL"]),
        ({"SEARCH_PROVIDER": "bing"}, ["SEARCH_PROVIDER", "'bing'", "searxng"]),
        ({"SEARCH_PROVIDER": "tavily"}, ["SEARCH_PROVIDER", "TAVILY_API_KEY"]),
        ({"SEARCH_PROVIDER": "local"}, ["DOCS_DIR"]),
        ({"SEARCH_PROVIDER": ","}, ["SEARCH_PROVIDER", "one or more of"]),
        ({"DOCS_DIR": "/no/such/folder"}, ["DOCS_DIR", "--docs", "/no/such/folder"]),
        ({"OPENAI_BASE_URL": "localhost:11434"}, ["OPENAI_BASE_URL", "http://"]),
    ],
)
def test_a_bad_value_is_one_line_with_the_variable_the_value_and_what_is_accepted(
    env: dict[str, str], named: list[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(env)
    message = str(caught.value)
    assert "\n" not in message and all(part in message for part in named), message


def test_a_bad_secret_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        load_config({"UPSTASH_REDIS_REST_URL": "redis://user:hunter2@db"})
    assert "UPSTASH_REDIS_REST_URL" in str(caught.value)


def test_empty_strings_and_blanks_count_as_unset() -> None:
    blank = {f.metadata["env"]: "  " for _, f in config.all_settings()}
    assert load_config(blank) == load_config({})


def test_dotenv_is_read_without_overriding_and_only_from_the_real_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text('MAX_TOKENS=4321\nMAX_ITERATIONS="7"\nGROQ_MODEL=\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MAX_ITERATIONS", "5")
    c = load_config()
    assert (c.limits.max_tokens, c.limits.max_iterations, c.models.groq_model) == (4321, 5, None)
    assert load_config({}).limits.max_tokens == 60_000


@pytest.mark.parametrize(
    ("written", "says"),
    [
        (f"MAX_TOKENS=4321\nGROQ_API_KEY {SECRET}\n".encode(), ".env, line 2, is not NAME=value"),
        (f"GROQ_API_KEY='{SECRET}\nMAX_TOKENS=4321\n".encode(), ".env, line 1, has a quotation mark too few"),
        (f'export GROQ_API_KEY = "{SECRET}"x"\n'.encode(), ".env, line 1, has a quotation mark too few or too many"),
        ("GROQ_API_KEY=x\n".encode("utf-16"), "not UTF-8"),
        ("CONTACT=müller@example.org\n".encode("cp1252"), "not UTF-8"),
    ],
    ids=["no equals sign", "an open quotation mark", "a quotation mark inside", "saved as UTF-16", "saved as Latin-1"],
)
def test_a_dotenv_that_cannot_be_read_is_said_with_file_and_line_but_without_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: bytes, says: str
) -> None:
    (tmp_path / ".env").write_bytes(written)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        load_config()
    text = str(caught.value)
    assert says in text and str(tmp_path) in text and SECRET not in text and "\n" not in text


def unreadable_folder(path: Path) -> None:
    path.mkdir()


def unreadable_mode(path: Path) -> None:
    path.write_text(f"GROQ_API_KEY={SECRET}\n")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read every file")


def unreadable_link(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere")


def unreadable_pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (unreadable_folder, "it is a folder"), (unreadable_mode, "Permission denied"),
        (unreadable_link, "it is no file"), (unreadable_pipe, "it is no file"),
    ],
)  # fmt: skip
def test_a_dotenv_that_cannot_be_opened_is_warned_of_in_one_line(
    make: Callable[[Path], None], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / ".env")
    monkeypatch.chdir(tmp_path)
    loaded = load_config()
    doubts = [warning for warning in loaded.warnings if ".env" in warning and "cannot be read" in warning]
    assert len(doubts) == 1 and why in doubts[0] and "remove it" in doubts[0] and "\n" not in doubts[0]
    assert "in the working folder" in doubts[0] and str(tmp_path) not in doubts[0]
    assert f"WARNING: {doubts[0]}" in config.describe_settings(loaded)


def test_a_dotenv_beside_the_program_counts_where_the_one_in_the_working_folder_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / ".env").write_text("MAX_TOKENS=4321\n")
    (tmp_path / ".env").mkdir()
    monkeypatch.setattr(config, "PROGRAM_DIR", tmp_path / "program")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MAX_TOKENS", raising=False)
    loaded = load_config()
    assert loaded.limits.max_tokens == 4321 and any("cannot be read" in warning for warning in loaded.warnings)


def test_a_dotenv_that_links_to_nothing_says_that_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").symlink_to(os.devnull)
    monkeypatch.chdir(tmp_path)
    assert not [warning for warning in load_config().warnings if ".env" in warning]


def test_a_virtual_environment_named_dotenv_is_no_settings_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").mkdir()
    (tmp_path / ".env" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    monkeypatch.chdir(tmp_path)
    assert not any(".env" in warning and "read" in warning for warning in load_config().warnings)


def test_a_dotenv_from_windows_is_read_as_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_bytes(b"\xef\xbb\xbfMAX_TOKENS=4321\r\n# a note\r\n\r\nexport MAX_ITERATIONS='7'\r\n")
    monkeypatch.chdir(tmp_path)
    c = load_config()
    assert (c.limits.max_tokens, c.limits.max_iterations) == (4321, 7)


def test_a_misspelt_name_in_dotenv_is_warned_of_and_other_programs_names_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text(
        "GROK_API_KEY=a\nMAX_ITERATIOS=5\nDATABASE_URL=x\nGOOGLE_API_KEY=y\nMAX_TOKENS=4321\n"
    )
    monkeypatch.chdir(tmp_path)
    doubts = [warning for warning in load_config().warnings if ".env" in warning]
    assert [(d.split()[0], d.split()[-1]) for d in doubts] == [
        ("GROK_API_KEY", "GROQ_API_KEY?"), ("MAX_ITERATIOS", "MAX_ITERATIONS?"),
    ]  # fmt: skip


def test_the_mock_and_half_an_upstash_are_warned_of() -> None:
    warnings = " ".join(load_config({"UPSTASH_REDIS_REST_URL": "https://db.example"}).warnings)
    assert "MOCK" in warnings and "GROQ_API_KEY" in warnings and "UPSTASH_REDIS_REST_TOKEN" in warnings
    assert not any("MOCK" in w for w in load_config({"GROQ_API_KEY": SECRET}).warnings)


def test_secrets_are_masked_in_the_settings_page_and_redacted_by_value_everywhere() -> None:
    c = load_config({"GROQ_API_KEY": SECRET, "UPSTASH_REDIS_REST_TOKEN": "tok-987654"})
    page = config.describe_settings(c)
    assert SECRET not in page and "tok-987654" not in page and "*** (set)" in page
    assert config.redact(f"key {SECRET}!") == "key [redacted]!"


@pytest.mark.parametrize(
    "name", ["SERPAPI_API_KEY", "OPENAI_API_KEY", "GROQ_API_KEY", "UPSTASH_REDIS_REST_TOKEN", "ODD_KEY"]
)
def test_a_secret_is_redacted_in_every_form_it_may_be_written_in(name: str) -> None:
    planted = json.loads((OWN_CASES / "injection" / "secrets.json").read_text())["env"]
    secret = planted[name]
    load_config({"TAVILY_API_KEY": secret})
    forms = [secret, quote(secret), quote(secret, safe=""), quote_plus(secret), json.dumps(secret), secret[::-1]]
    forms += [base64.b64encode(f"{a}{secret}{z}".encode()).decode() for a in ("", "a", "k=") for z in ("", "z", "zz")]
    core = secret[4:-4]
    for form in forms:
        redacted = config.redact(f"GET /x?q=1 {form} HTTP/1.1")
        assert "[redacted]" in redacted and core not in redacted, form
        for offset in range(3):
            own = base64.b64encode(b"x" * offset + secret.encode()).decode()[4:-4]
            assert own not in redacted


@pytest.mark.parametrize(
    "text",
    [
        "Invalid API key: sk-proj-abcdefghijklmnopqrstuvwxyz0123456789",
        "401 for url: https://serpapi.com/search?q=tea&api_key=0123456789abcdef",
        "Authorization: Bearer abcdefghijklmnop",
    ],
)
def test_what_looks_like_a_key_is_redacted_whoever_wrote_it(text: str) -> None:
    assert (
        "[redacted]" in config.redact(text)
        and config.redact("the key=value pair, a token: x") == "the key=value pair, a token: x"
    )


def test_every_setting_has_a_meaning_and_stands_in_the_settings_page() -> None:
    names = [f.metadata["env"] for _, f in config.all_settings()]
    assert len(names) == len(set(names))
    page = config.describe_settings(load_config({}))
    for _, f in config.all_settings():
        assert f.metadata["meaning"] and f.metadata["env"] in page


def test_env_example_is_what_the_code_generates_with_the_keys_first_and_nothing_set() -> None:
    text = (ROOT / ".env.example").read_text()
    assert text == config.env_example(), (
        'run: python -c \'import config; open(".env.example", "w").write(config.env_example())\''
    )
    assert text.index("GROQ_API_KEY") < text.index("MAX_TOKENS")
    assert "UPSTASH_REDIS_REST_URL" in text and "UPSTASH_REDIS_REST_TOKEN" in text
    assert all(line.startswith("#") or not line for line in text.splitlines())
