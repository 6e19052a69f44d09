"""inspect-ai: its providers openai and openai-api. Without max_retries it repeats a request without end."""

import json
import sys

from sdk import ENDLESS, EXTRACT, FOREVER, LONG, MKDIR, Order

PACKAGE = "inspect-ai"
OVERFLOW = "model_length"
TOOL = ("get_time", "city")
EVAL = '''
import json
import sys

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig, ResponseSchema
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import ToolFunction, tool
from inspect_ai.util import JSONSchema

wish = json.load(sys.stdin)


@tool
def get_time():
    async def execute(city: str):
        """Local time of a city.

        Args:
            city: Its name.
        """
        return "15:20"
    return execute


config = GenerateConfig(temperature=0, max_retries=1, **wish["config"])
if "schema" in wish:
    config.response_schema = ResponseSchema(name="order", json_schema=JSONSchema.model_validate(wish["schema"]))
steps = [use_tools(get_time(), tool_choice=ToolFunction(name="get_time"))] if "tool" in wish else []
task = Task([Sample(input=wish["text"])], solver=[*steps, generate(tool_calls="none")], config=config)
(log,) = eval(task, model=wish["model"], model_base_url=wish["url"], model_args=wish["args"], display="none", log_dir="logs")
assert log.status == "success", log.error
output = log.samples[0].output
calls = [[c.function, c.arguments] for c in output.message.tool_calls or []]
print(json.dumps({"text": output.completion, "calls": calls, "reason": output.stop_reason}))
'''

STREAM = '''
import asyncio
import json
import sys

from inspect_ai.model import GenerateConfig, get_model

wish = json.load(sys.stdin)
parts = []


async def take(event):
    parts.append(event.text)


model = get_model(wish["model"], base_url=wish["url"], config=GenerateConfig(temperature=0, max_retries=1, **wish["config"]))
output = asyncio.run(model.generate(wish["text"], on_stream=take))
assert "".join(parts) == output.completion
print(json.dumps(parts))
'''


def wish(at, provider="openai-api/plateau", text=MKDIR, config=None, args=None, **more):
    config = {"max_tokens": 200, **(config or {})}
    return json.dumps({"model": f"{provider}/{at.model}", "url": at.base, "text": text, "config": config, "args": args or {}, **more})


def env(at):
    return dict(PLATEAU_API_KEY=at.key, OPENAI_API_KEY=at.key)


def said(at, **more):
    return json.loads(at.run(sys.executable, "-c", EVAL, text=wish(at, **more), env=env(at)).splitlines()[-1])


def hello(at):
    """Whole by one provider, as a stream by the other."""
    whole, streamed = said(at, provider="openai")["text"], said(at, args={"stream": True})["text"]
    assert whole == streamed
    return whole


def stream(at):
    return json.loads(at.run(sys.executable, "-c", STREAM, text=wish(at), env=env(at)).splitlines()[-1])


def tools(at):
    ((name, arguments),) = said(at, tool=True)["calls"]
    return name, arguments


def structured(at):
    return Order.model_validate_json(said(at, text=EXTRACT, schema=Order.model_json_schema())["text"])


def overflow(at):
    return said(at, text=LONG)["reason"]


def cancel(at):
    config = {"max_tokens": ENDLESS, "extra_body": FOREVER}
    at.leave(sys.executable, "-c", EVAL, text=wish(at, config=config), env=env(at), ready=lambda _: at.server.requests("decoding"))
