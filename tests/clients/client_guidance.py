"""guidance: its OpenAI model for texts, its vLLM model for grammars."""

import typing

import openai
import pydantic
from guidance import assistant, gen, guidance, json, models, select, user
from guidance.models.experimental import VLLMModel

from sdk import EXTRACT, LONG, MKDIR, Order

PACKAGE = "guidance"
OVERFLOW = openai.BadRequestError
LACKS = {"cancel": "a thread of its own reads a stream that is left to the end"}
City = typing.Annotated[str, pydantic.Field(max_length=20)]  # its tools have no limit of tokens


def asked(at, text=MKDIR, kind=models.OpenAI):
    with user():
        return kind(at.model, base_url=at.base, api_key=at.key, echo=False) + text


def said(model, node):
    with assistant():
        return model + node


def hello(at):
    return said(asked(at), gen("text", max_tokens=60, temperature=1e-6))["text"]


@guidance
def answer(model, text):
    """Its streams run in a thread, which opens the blocks of roles itself."""
    with user():
        model += text
    with assistant():
        return model + gen("text", max_tokens=60, temperature=1e-6)


def stream(at):
    """Yields what each state adds to the assistant's text: a state has the whole text so far."""
    start = "<|im_start|>assistant\n"
    states = [str(s) for s in models.OpenAI(at.model, base_url=at.base, api_key=at.key, echo=False).stream() + answer(MKDIR)]
    texts = [s.split(start)[1].removesuffix("<|im_end|>\n") for s in states if start in s]
    return [part for before, now in zip([""] + texts, texts) if (part := now.removeprefix(before))]


def tools(at):
    calls = []

    def get_time(city: City):
        """Local time of a city."""
        calls.append(("get_time", {"city": city}))
        return "15:20"

    said(asked(at), gen(tools=[get_time], tool_choice="required"))
    return calls[0]


def structured(at):
    assert said(asked(at, kind=VLLMModel), select(["yes", "no"], name="answer"))["answer"] in ("yes", "no")
    assert len(said(asked(at, kind=VLLMModel), gen("year", regex="[0-9]{4}"))["year"]) == 4
    part = "The order: " + json("order", schema=Order) + gen("end", regex="[a-z ]{0,20}", suffix=".")
    reply = said(asked(at, EXTRACT, VLLMModel), part)
    assert Order.model_validate_json(reply["order"]) and len(reply["end"]) <= 20 and "." not in reply["end"]
    return Order.model_validate_json(said(asked(at, EXTRACT), json("order", schema=Order))["order"])


def overflow(at):
    said(asked(at, LONG), gen("text", max_tokens=60))
