"""smolagents' CodeAgent, its usual kind: the model writes Python that calls the tools."""

import os
import sys

from smolagents import ApiWebSearchTool, CodeAgent, OpenAIModel, VisitWebpageTool

model = OpenAIModel(model_id=os.environ["MODEL"], api_base=os.environ["OPENAI_BASE_URL"], api_key="sk-world")
search = ApiWebSearchTool(
    endpoint=os.environ["WORLD"] + "/brave", api_key="world", rate_limit=None, params={"count": 5}
)
agent = CodeAgent([search, VisitWebpageTool(max_output_length=8000)], model, max_steps=14, verbosity_level=0)
print(agent.run(sys.argv[1] + " Cite the pages used."))
