"""Facts before a prompt: its length, the tokenizer, the limits and capabilities of a model."""

from conftest import FEW_PAGES, MODEL, TOP, anthropic, refused, serving

ASK = [{"role": "user", "content": "What does mkdir do?"}]
TOOL = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}


def count(server, **fields):
    reply = server.post("/v1/responses/input_tokens", **fields)
    assert reply.status_code == 200, reply.text
    assert set(reply.json()) == {"object", "input_tokens"} and reply.json()["object"] == "response.input_tokens"
    return reply.json()["input_tokens"]


def test_the_input_of_a_response_is_counted(server):
    for fields in {"input": "Hello"}, {"input": ASK, "instructions": "Be brief."}, {"input": ASK, "tools": [TOOL], "reasoning": {"effort": "high"}}:
        counted = count(server, **fields)
        used = server.post("/v1/responses", **fields, store=False, max_output_tokens=16).json()["usage"]["input_tokens"]
        assert counted == used > 0
    first = server.post("/v1/responses", input="Hello", max_output_tokens=16).json()
    more = {"input": "And?", "previous_response_id": first["id"]}
    assert count(server, **more) > count(server, input="And?")
    assert server.http.delete(f"/v1/responses/{first['id']}").status_code == 200
    refused(server.post("/v1/responses/input_tokens", input=3), 400, "invalid_value", "input")
    refused(server.post("/v1/responses/input_tokens", model="gpt", input="a"), 404, "model_not_found")
    assert server.http.get("/v1/responses/input_tokens").status_code == 404


def test_counting_stores_nothing(server):
    stored = lambda: server.http.get("/api/status").json()["responses"]
    before = stored()
    count(server, input="Hello", store=True)
    assert stored() == before


def test_the_tokenizer_is_told(server):
    """lm-evaluation-harness asks this with tokenizer_backend=remote."""
    told = server.http.get("/tokenizer_info").json()
    assert set(told) == {"tokenizer_class", "bos_token", "eos_token", "chat_template", "model_max_length"}
    assert (told["bos_token"], told["eos_token"]) == (None, "<|im_end|>")
    ids = server.post("/tokenize", prompt=told["eos_token"], add_special_tokens=False).json()["tokens"]
    assert len(ids) == 1 and server.post("/detokenize", tokens=ids).json()["prompt"] == told["eos_token"]
    model = server.http.get("/v1/models/canary").json()
    assert told["model_max_length"] == model["max_model_len"] and told["chat_template"] == (MODEL / "chat_template.jinja").read_text()


def supported(capability):
    return {name: inner["supported"] for name, inner in capability.items() if isinstance(inner, dict) and "supported" in inner}


def test_a_models_limits_and_capabilities(server):
    model = server.http.get("/v1/models/canary").json()
    assert model["max_input_tokens"] == model["max_tokens"] == model["max_model_len"] - 1
    told = model["capabilities"]
    assert set(told) == {"batch", "citations", "code_execution", "context_management", "effort", "image_input", "pdf_input", "server_tools",
                         "structured_outputs", "thinking"}
    assert {name for name, yes in supported(told).items() if yes} == {"context_management", "effort", "image_input", "structured_outputs", "thinking"}
    assert supported(told["context_management"]) == {"clear_thinking_20251015": False, "clear_tool_uses_20250919": False, "compact_20260112": True}
    assert set(supported(told["effort"])) == {"low", "medium", "high", "xhigh", "max"}
    assert supported(told["thinking"]["types"]) == {"adaptive": True, "enabled": True, "disabled": True, "between_tools": True}
    # The longest prompt is taken, and one more token is refused.
    longest = [1] * model["max_input_tokens"]
    assert server.post("/v1/completions", prompt=longest + [1, 1], max_tokens=1).status_code == 400
    [listed] = server.http.get("/v1/models", headers={"anthropic-version": "2023-06-01"}).json()["data"]
    assert listed["capabilities"] == told


def test_anthropics_client_reads_them(server):
    found = anthropic.Anthropic(base_url=server.url, api_key="none").models.retrieve("canary").to_dict()
    assert found["max_input_tokens"] == found["max_tokens"] > 0 and found["capabilities"]["image_input"]["supported"] is True


def test_of_a_model_without_a_template():
    with serving(TOP / "tests/golden/data/qwen3", FEW_PAGES) as s:
        found = s.http.get("/v1/models/qwen3").json()
        assert found["capabilities"] is None and found["max_input_tokens"] == found["max_model_len"] - 1
