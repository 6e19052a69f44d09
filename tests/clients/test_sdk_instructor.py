"""Flows of instructor: pydantic models through forced tools and JSON schemas."""

import asyncio
import enum

import instructor
import openai
import pydantic
import pytest

from servers import ANSWER_S, SDK_KEY

ORDER = [{"role": "user", "content": "Extract JSON with item, quantity and price: 18 of pencil at 37.75 each."}]


class Kind(enum.Enum):
    OFFICE = "office"
    FOOD = "food"


class Order(pydantic.BaseModel):
    item: str = pydantic.Field(max_length=20)
    quantity: int = pydantic.Field(ge=0, le=99)  # the bundled model writes digits up to its limit
    paid: bool


class Sorted(Order):
    kind: Kind
    tags: list[Kind] = pydantic.Field(max_length=2)


def connect(server, mode, kind=openai.OpenAI):
    client = kind(base_url=server.url + "/v1", api_key=SDK_KEY, max_retries=0, timeout=ANSWER_S)
    return instructor.from_openai(client, mode=mode)


def fields(response_model, **more):
    return {"model": "canary", "messages": ORDER, "temperature": 0, "max_tokens": 1500, "max_retries": 1,
            "response_model": response_model, **more}


@pytest.mark.parametrize("mode", ["TOOLS", "TOOLS_STRICT", "JSON_SCHEMA"])
def test_a_model(sdk, mode):
    order = connect(sdk, instructor.Mode[mode]).chat.completions.create(**fields(Order))
    assert isinstance(order, Order)


@pytest.mark.parametrize("mode", ["TOOLS", "JSON_SCHEMA"])
def test_enums_and_lists(sdk, mode):
    order = connect(sdk, instructor.Mode[mode]).chat.completions.create(**fields(Sorted))
    assert isinstance(order.kind, Kind) and len(order.tags) <= 2


def test_async(sdk):
    async def flow():
        return await connect(sdk, instructor.Mode.TOOLS, openai.AsyncOpenAI).chat.completions.create(**fields(Order))
    assert isinstance(asyncio.run(flow()), Order)


def test_partial_models_in_a_stream(sdk):
    stream = connect(sdk, instructor.Mode.TOOLS).chat.completions.create_partial(**fields(Order))
    seen = list(stream)
    assert len(seen) > 1 and isinstance(seen[-1].quantity, int) and seen[-1].item is not None


def test_with_the_whole_reply(sdk):
    order, reply = connect(sdk, instructor.Mode.TOOLS).chat.completions.create_with_completion(**fields(Order))
    assert reply.choices[0].message.tool_calls[0].function.name == "Order" and order.item is not None


def test_a_second_attempt(sdk):
    """The model fails its own check at first; the next request has the error in its history."""
    attempts = []

    class Checked(Order):
        @pydantic.model_validator(mode="after")
        def refuse_once(self):
            attempts.append(self.item)
            if len(attempts) == 1:
                raise ValueError("the item is wrong")
            return self

    order = connect(sdk, instructor.Mode.JSON_SCHEMA).chat.completions.create(**fields(Checked, max_retries=2))
    assert len(attempts) == 2 and order.item == attempts[1]
