"""Requests that schemathesis generates from a description of OpenAI's API.

The description is made from the types of the openai client: parameters of requests and shapes of replies. It
has five routes, without streams. A request may be refused. Each reply has
the shape of its status, and none is a 5xx."""

import json
import os
import random

import hypothesis
import pydantic
import pytest
import schemathesis
from openai.types import CreateEmbeddingResponse, Completion, Model, embedding_create_params
from openai.types import completion_create_params as completion
from openai.types.chat import ChatCompletion, completion_create_params as chat
from openai.types.responses import Response, response_create_params as response

from servers import SDK_KEY
from sdk import ASK

LONG = os.environ.get("PLATEAU_LONG")
SEED = int(os.environ.get("PLATEAU_SEED", 0)) or (int.from_bytes(os.urandom(4), "big") if LONG else 1)
CASES = 300 if LONG else 8
ERROR = {"type": "object", "required": ["error"], "properties": {"error": {
    "type": "object", "required": ["message", "type", "param", "code"], "properties": {
        "message": {"type": "string", "minLength": 1}, "type": {"type": "string"},
        "param": {"type": ["string", "null"]}, "code": {"type": ["string", "null"]}}}}}
# Keeps replies short.
CLAMPED = {"model": "canary", "max_tokens": 3, "max_completion_tokens": 3, "max_output_tokens": 16, "n": 2, "best_of": 2,
           "stream": False, "store": False}
# Without a limit a reply has the rest of the context.
LIMITS = {"/v1/chat/completions": {"max_completion_tokens": 3}, "/v1/responses": {"max_output_tokens": 16}}
# The types have no bounds, so the server refuses most of what they generate. Two of three requests have these
# values for required fields and numbers, and two other fields as generated.
PLAIN = {"/v1/chat/completions": {"messages": ASK}, "/v1/completions": {"prompt": "a"}, "/v1/responses": {"input": "a"},
         "/v1/embeddings": {"input": ["a"]}}
NUMBERS = {"temperature": 0.5, "top_p": 0.5, "presence_penalty": 1, "frequency_penalty": -1, "logprobs": 2,
           "top_logprobs": 2, "seed": 7, "logit_bias": {"5": 1}}
ROUTES = {
    "/v1/chat/completions": (chat.CompletionCreateParamsNonStreaming, ChatCompletion),
    "/v1/completions": (completion.CompletionCreateParamsNonStreaming, Completion),
    "/v1/responses": (response.ResponseCreateParamsNonStreaming, Response),
    "/v1/embeddings": (embedding_create_params.EmbeddingCreateParams, CreateEmbeddingResponse),
}


def schema_of(kind, components, mode):
    """JSON schema of a type, whose parts go to the components."""
    found = pydantic.TypeAdapter(kind).json_schema(mode=mode, ref_template=f"#/components/schemas/{mode}_{{model}}")
    for name, part in found.pop("$defs", {}).items():
        components[f"{mode}_{name}"] = part
    return found


def described():
    components, paths = {}, {}

    def replies(kind):
        def content(schema):
            return {"description": "", "content": {"application/json": {"schema": schema}}}
        return {"200": content(schema_of(kind, components, "serialization")), "default": content(ERROR)}

    for path, (sent, got) in ROUTES.items():
        body = {"required": True, "content": {"application/json": {"schema": schema_of(sent, components, "validation")}}}
        paths[path] = {"post": {"operationId": path, "requestBody": body, "responses": replies(got)}}
    # The client's type has no vectors in base64.
    vector = components["serialization_Embedding"]["properties"]
    vector["embedding"] = {"anyOf": [vector["embedding"], {"type": "string"}]}
    # The first token of an echoed prompt has no logprob.
    for name in "token_logprobs", "top_logprobs":
        components["serialization_Logprobs"]["properties"][name] = {"type": ["array", "null"]}
    # A response repeats the tools and the choice of its request: types of requests take more than those of
    # replies.
    for name in "tools", "tool_choice":
        paths["/v1/responses"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]["properties"][name] = {}
    named = {"name": "model", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    paths["/v1/models/{model}"] = {"get": {"parameters": [named], "responses": replies(Model)}}
    return {"openapi": "3.1.0", "info": {"title": "OpenAI", "version": "client"}, "paths": paths,
            "components": {"schemas": components}}


DRAWN = random.Random(SEED)


def tamed(body, path):
    if isinstance(body, dict) and DRAWN.random() < 0.67:
        others = DRAWN.sample(sorted(body), min(2, len(body)))
        body = {**{k: NUMBERS.get(k, body[k]) for k in others}, **PLAIN[path]}
        body.update({k: v for k, v in NUMBERS.items() if DRAWN.random() < 0.1 and path != "/v1/embeddings"})
    if isinstance(body, dict):
        body.update({**LIMITS.get(path, {}), **{k: v for k, v in CLAMPED.items() if k in body or k == "model"}})
    return body


SCHEMA = schemathesis.openapi.from_dict(described())


@SCHEMA.parametrize()
@hypothesis.seed(SEED)
@hypothesis.settings(max_examples=CASES, deadline=None, database=None, phases=[hypothesis.Phase.generate],
                     suppress_health_check=list(hypothesis.HealthCheck))
def test_generated_requests(sdk, case):
    if case.method == "POST":
        case.body = tamed(case.body, case.path)
    reply = case.call(base_url=sdk.url, headers={"authorization": f"Bearer {SDK_KEY}"})
    assert reply.status_code in (200, 400, 404, 405, 413), (SEED, reply.text, json.dumps(case.body)[:2000])
    case.operation.validate_response(reply)
