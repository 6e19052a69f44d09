"""dspy: signatures, with its own prompts."""

import asyncio

import dspy
from dspy.utils.exceptions import ContextWindowExceededError

from sdk import ENDLESS, EXTRACT, FOREVER, LONG, MKDIR, Order

PACKAGE = "dspy"
OVERFLOW = ContextWindowExceededError
OWN_PROMPT = True


class Server(dspy.LM):
    """dspy knows what hosted models can do; others are declared so."""
    supports_function_calling = supports_response_schema = True
    supported_params = frozenset(["tools", "tool_choice", "response_format"])


def lm(at, **options):
    return Server("openai/" + at.model, **{"api_base": at.base, "api_key": at.key, "temperature": 0, "max_tokens": 200,
                                            "cache": False, "num_retries": 0, **options})


def hello(at):
    return lm(at)(MKDIR)[0]


class Extract(dspy.Signature):
    text: str = dspy.InputField()
    order: Order = dspy.OutputField()


def stream(at):
    """JSON of an order: the bundled model does not write what its other adapters read."""
    with dspy.context(lm=lm(at), adapter=dspy.JSONAdapter()):
        parts = list(dspy.streamify(dspy.Predict(Extract), async_streaming=False)(text=EXTRACT))
    assert isinstance(parts.pop(), dspy.Prediction)
    return parts


def structured(at):
    with dspy.context(lm=lm(at), adapter=dspy.JSONAdapter()):
        return dspy.Predict(Extract)(text=EXTRACT).order


def tools(at):
    def get_time(city: str) -> str:
        """Local time of a city."""
        return "15:20"

    class Use(dspy.Signature):
        question: str = dspy.InputField()
        tools: list[dspy.Tool] = dspy.InputField()
        calls: dspy.ToolCalls = dspy.OutputField()

    with dspy.context(lm=lm(at, tool_choice="required"), adapter=dspy.JSONAdapter()):
        call = dspy.Predict(Use)(question=MKDIR, tools=[dspy.Tool(get_time)]).calls.tool_calls[0]
    return call.name, call.args


def overflow(at):
    lm(at)(LONG)


def cancel(at):
    """The task that reads a stream. A stream that is closed ends in an error of its own, RuntimeError."""
    async def read(first):
        with dspy.context(lm=lm(at, max_tokens=ENDLESS, extra_body=FOREVER)):
            async for _ in dspy.streamify(dspy.Predict("question -> answer"))(question=MKDIR):
                first.set()

    async def leave():
        first = asyncio.Event()
        task = asyncio.create_task(read(first))
        await first.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(leave())
