"""gpt-researcher's ordinary report, with its SearXNG retriever and OpenAI-compatible embeddings."""

import asyncio
import os
import sys

# The world's embeddings are hashed words, whose similarities are low.
os.environ.update(
    RETRIEVER="searx", SEARX_URL=os.environ["WORLD"], FAST_LLM="openai:world-1", SMART_LLM="openai:world-1",
    STRATEGIC_LLM="openai:world-1", EMBEDDING="custom:world-embed", SIMILARITY_THRESHOLD="0.1", SCRAPER="bs",
    ALLOW_PRIVATE_URLS="true",
)  # fmt: skip

from gpt_researcher import GPTResearcher


async def main():
    researcher = GPTResearcher(query=sys.argv[1], report_type="research_report", verbose=False)
    await researcher.conduct_research()
    print(await researcher.write_report())


asyncio.run(main())
