"""A plain ReAct loop: requests, BeautifulSoup, one tool at a time, the whole history sent each time."""

import json
import os
import re
import sys

import requests
from bs4 import BeautifulSoup

SYSTEM = """You are a research agent. Answer the question from web sources and cite them.
Tools:
web_search: search the web. Input {"query": "..."}
read_page: fetch a page's text. Input {"url": "..."}
Each turn, write exactly:
Thought: <why>
Action: <tool>
Action Input: <JSON>
then stop and wait for the Observation. When you can answer, write:
Thought: <why>
Final Answer: <answer in Markdown with [n](url) citations and a list of sources>"""


def web_search(query):
    key = {"Authorization": "Bearer " + os.environ["TAVILY_API_KEY"]}
    asked = {"query": query, "max_results": 5}
    reply = requests.post(os.environ["WORLD"] + "/search", json=asked, timeout=20, headers=key)
    reply.raise_for_status()
    return "\n".join(f"- {r['title']}\n  {r['url']}\n  {r['content']}" for r in reply.json()["results"])


def read_page(url):
    reply = requests.get(url, timeout=20, headers={"User-Agent": "plain-loop/0"})
    reply.raise_for_status()
    soup = BeautifulSoup(reply.text, "html.parser")
    for tag in soup(["script", "style", "nav", "header", "footer"]):
        tag.decompose()
    return re.sub(r"\s+", " ", soup.get_text(" "))[:8000]


def chat(messages):
    asked = {"model": os.environ["MODEL"], "messages": messages, "temperature": 0, "stop": ["Observation:"]}
    key = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    reply = requests.post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", timeout=60, headers=key, json=asked)
    reply.raise_for_status()
    return reply.json()["choices"][0]["message"]["content"]


def run(question, steps=14):
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Question: " + question}]
    for _ in range(steps):
        turn = chat(messages)
        messages.append({"role": "assistant", "content": turn})
        if "Final Answer:" in turn:
            return turn.split("Final Answer:", 1)[1].strip()
        action = re.search(r"Action:\s*(\w+)\s*\nAction Input:\s*(\{.*\})", turn, re.S)
        try:
            tool = {"web_search": web_search, "read_page": read_page}[action.group(1)]
            observation = tool(**json.loads(action.group(2)))
        except Exception as problem:  # noqa: BLE001  what a plain loop does
            observation = f"Error: {problem!r}"
        messages.append({"role": "user", "content": "Observation: " + observation})
    return f"No answer within {steps} steps."


if __name__ == "__main__":
    print(run(sys.argv[1]))
