"""Flows of langchain-openai: chats, Responses, completions and vectors."""

import asyncio

import openai
import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings

from servers import ANSWER_S, SDK_KEY
from sdk import ANSWER, ASK, LOOK, MKDIR, SEEN, TIME, failing_first


def model(server, kind=ChatOpenAI, **options):
    fields = {"base_url": server.url + "/v1", "api_key": SDK_KEY, "model": "canary", "max_retries": 0,
              "timeout": ANSWER_S, **options}
    if kind is not OpenAIEmbeddings:
        fields.setdefault("temperature", 0)
    return kind(**fields)


@pytest.fixture(scope="module")
def chat(sdk):
    return model(sdk)


@tool
def get_time(city: str) -> str:
    """Local time of a city."""
    return "15:20"


def test_invoke(chat):
    reply = chat.invoke(MKDIR)
    assert reply.content == ANSWER and reply.usage_metadata["total_tokens"] > 10
    assert reply.response_metadata["finish_reason"] == "stop" and reply.response_metadata["model_name"] == "canary"


def test_stream(chat):
    chunks = list(chat.stream(MKDIR, stream_usage=True))
    assert "".join(c.content for c in chunks) == ANSWER
    assert sum(c.usage_metadata["output_tokens"] for c in chunks if c.usage_metadata) > 0


def test_batch_and_async(chat):
    assert [r.content for r in chat.batch([MKDIR] * 3)] == [ANSWER] * 3

    async def flow():
        return (await chat.ainvoke(MKDIR)).content, "".join([c.content async for c in chat.astream(MKDIR)])
    assert asyncio.run(flow()) == (ANSWER, ANSWER)


def test_a_chain(chat):
    chain = ChatPromptTemplate.from_messages([("user", "What does {name} do?")]) | chat | StrOutputParser()
    assert chain.invoke({"name": "mkdir"}) == ANSWER


def test_tools(chat):
    bound = chat.bind_tools([get_time])
    reply = bound.invoke(TIME)
    assert [(c["name"], c["args"]) for c in reply.tool_calls] == [("get_time", {"city": "Lima"})]
    whole = None
    for chunk in bound.stream(TIME):
        whole = chunk if whole is None else whole + chunk
    assert [c["args"] for c in whole.tool_calls] == [{"city": "Lima"}]
    results = [get_time.invoke(c) for c in reply.tool_calls]
    assert all(isinstance(r, ToolMessage) for r in results)
    assert bound.invoke([HumanMessage(TIME), reply, *results], max_tokens=20).content


def test_strict_tools(chat):
    bound = chat.bind_tools([get_time], strict=True, parallel_tool_calls=False)
    assert [c["args"] for c in bound.invoke(TIME).tool_calls] == [{"city": "Lima"}]


def test_image(chat):
    assert chat.invoke(LOOK).content == SEEN


def test_history(chat):
    history = [SystemMessage("You are brief."), HumanMessage("What does ls do?"), AIMessage("It lists."), HumanMessage(MKDIR)]
    assert chat.invoke(history).content


def test_logprobs_and_stop(sdk):
    entries = model(sdk, logprobs=True, top_logprobs=2).invoke(MKDIR).response_metadata["logprobs"]["content"]
    assert len(entries) > 5 and len(entries[0]["top_logprobs"]) == 2
    assert model(sdk).invoke(MKDIR, stop=[" - "]).content == "mkdir(2)"


def test_responses(sdk):
    chat = model(sdk, use_responses_api=True, output_version="responses/v1")
    assert chat.invoke(MKDIR).text == ANSWER
    assert "".join(c.text for c in chat.stream(MKDIR)) == ANSWER
    call, = chat.bind_tools([get_time]).invoke(TIME).tool_calls
    assert call["args"] == {"city": "Lima"}


def test_responses_in_a_chain(sdk):
    chat = model(sdk, use_responses_api=True, use_previous_response_id=True)
    first = chat.invoke(MKDIR)
    assert first.response_metadata["id"].startswith("resp_")
    second = chat.invoke([HumanMessage(MKDIR), first, HumanMessage("What does ls do?")])
    assert second.text and second.usage_metadata["input_tokens"] > first.usage_metadata["input_tokens"]


def test_completions(sdk):
    assert model(sdk, OpenAI, max_tokens=4).invoke("What does")


def test_vectors(sdk):
    plain = model(sdk, OpenAIEmbeddings, check_embedding_ctx_length=False)
    rows = plain.embed_documents(["a cat", "a dog"])
    assert len(rows) == 2 and rows[0] == pytest.approx(plain.embed_query("a cat")) and rows[0] != rows[1]


def test_errors(sdk):
    with pytest.raises(openai.AuthenticationError):
        model(sdk, api_key="sk-of-another").invoke(MKDIR)
    with pytest.raises(openai.NotFoundError):
        model(sdk, model="absent").invoke(MKDIR)
    with pytest.raises(openai.BadRequestError):
        model(sdk, top_p=7).invoke(MKDIR)


def test_retries(sdk):
    with failing_first(sdk, 1, 429) as (url, sent):
        assert model(sdk, base_url=url + "/v1", max_retries=1).invoke(ASK).content == ANSWER
        assert sent == [429, 200]


def test_a_closed_stream_ends_its_request(sdk):
    stream = model(sdk, max_tokens=20000, extra_body={"ignore_eos": True}).stream(MKDIR)
    assert next(stream)
    stream.close()
    sdk.wait_idle()
