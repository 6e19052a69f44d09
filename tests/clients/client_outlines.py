"""outlines: from_vllm, with a schema, an expression and a choice."""

import openai
import outlines
from outlines.types import Choice, Regex

from sdk import ENDLESS, EXTRACT, FOREVER, LONG, MKDIR, Order

PACKAGE = "outlines"
OVERFLOW = outlines.exceptions.BadRequestError
LACKS = {"tools": "it returns the content of a reply, and drops calls"}


def model(at):
    return outlines.from_vllm(openai.OpenAI(base_url=at.base, api_key=at.key, max_retries=0), at.model)


def hello(at):
    return model(at)(MKDIR, max_tokens=60, temperature=0)


def stream(at):
    return [t for t in model(at).stream(MKDIR, max_tokens=60, temperature=0) if t]


def structured(at):
    short = {"max_tokens": 200, "temperature": 0}
    assert model(at)(MKDIR, Choice(["yes", "no"]), **short) in ("yes", "no")
    assert len(model(at)(MKDIR, Regex("[0-9]{4}"), **short)) == 4
    return Order.model_validate_json(model(at)(EXTRACT, Order, **short))


def overflow(at):
    model(at)(LONG, max_tokens=60)


def cancel(at):
    s = model(at).stream(MKDIR, max_tokens=ENDLESS, extra_body=FOREVER)
    next(t for t in s if t)
    s.close()
