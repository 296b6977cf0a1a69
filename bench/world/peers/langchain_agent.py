"""LangChain's ready-made agent (on LangGraph) with langchain-tavily and a page reader by requests."""

import os
import re
import sys

import requests
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langchain_tavily import TavilySearch
from langchain_tavily._utilities import TavilySearchAPIWrapper


@tool
def read_page(url: str) -> str:
    """Fetch a web page and return its text."""
    html = re.sub(r"(?s)<(script|style).*?</\1>", " ", requests.get(url, timeout=20).text)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))[:8000]


tavily = TavilySearchAPIWrapper(tavily_api_key="tvly-world", api_base_url=os.environ["WORLD"])
agent = create_agent(
    ChatOpenAI(model=os.environ["MODEL"], temperature=0),
    [TavilySearch(max_results=5, api_wrapper=tavily), read_page],
    system_prompt="You are a research agent. Search, read pages, then answer with citations to the pages read.",
)
state = agent.invoke({"messages": [{"role": "user", "content": sys.argv[1]}]}, {"recursion_limit": 40})
print(state["messages"][-1].content)
