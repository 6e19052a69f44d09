"""Agents by API: each keeps its conversation in the API's form, sends requests and reads streams."""

import dataclasses
import http.client
import json
import time

from agent_shapes import REPLY_MAX


class Refused(Exception):
    """(status, answer) that the request should not have got."""


@dataclasses.dataclass
class Reply:
    """A stream's text, calls and usage."""

    prompt: int = 0
    cached: int = 0
    output: int = 0
    first_s: float = 0.0
    text: str = ""
    calls: list = dataclasses.field(default_factory=list)  # [id, name, arguments as JSON]
    blocks: list = dataclasses.field(default_factory=list)  # blocks or items, as they go back
    id: str = ""
    ended: bool = False


class Wire:
    """One kept connection of an agent."""

    def __init__(self, port):
        self.http = http.client.HTTPConnection("127.0.0.1", port, timeout=600)

    def send(self, path, body, headers):
        sent = json.dumps(body).encode()
        for again in (True, False):
            try:
                self.http.request("POST", path, sent, {"Content-Type": "application/json", **headers})
                reply = self.http.getresponse()
                break
            except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                self.http.close()
                if not again:
                    raise
        if reply.status != 200:
            raise Refused(reply.status, reply.read()[:400].decode(errors="replace"))
        return reply

    def events(self, path, body, headers, leave_after=0):
        """(seconds since the request, data) of each event of a stream. With `leave_after` the client closes
        the connection after that many."""
        began, seen = time.monotonic(), 0
        reply = self.send(path, body, headers)
        while line := reply.readline():
            if line.startswith(b"data: ") and line != b"data: [DONE]\n":
                yield time.monotonic() - began, json.loads(line[6:])
                seen += 1
                if seen == leave_after:
                    reply.close()
                    self.http.close()
                    return

    def call(self, path, body, headers):
        return json.loads(self.send(path, body, headers).read())

    def close(self):
        self.http.close()


class Agent:
    """Base of all agents. A turn: `user` or `result`, then `ask`, then `took` with the reply."""

    leave_after = 8

    def __init__(self, port, shape, model, background, thinking):
        self.wire, self.shape, self.model, self.background = Wire(port), shape, model, background
        self.thinking, self.number, self.pending = thinking, 0, []
        self.start()

    def turn(self, t):
        """Adds the message or result of turn t."""
        self.number = t.number
        if t.text:
            self.user(t.text, t.image)
            return
        for call in self.pending[:-1]:
            self.result(call, "done", "")
        self.result(self.pending[-1], t.result, t.image)
        if t.reminder:
            self.user(t.reminder, "")

    def took(self, reply, calls):
        """The reply goes back as it came. With `calls` a tool's result follows: a reply without one gets a
        call of the shape. Otherwise the user refuses the model's calls."""
        self.keep(reply)
        self.pending = list(reply.calls)
        if calls and not self.pending:
            name, arguments = self.shape.call()
            self.pending = [[f"call_{self.number:04}_{name}", name, json.dumps(arguments, ensure_ascii=False)]]
            self.keep_call(*self.pending[0])
        if not calls:
            for call in self.pending:
                self.result(call, "The user refused.", "")

    def ask(self):
        """The request of a turn. A stream without its end is not a reply."""
        reply = Reply()
        for seconds, event in self.wire.events(self.path, self.body(), self.headers()):
            if self.read(event, reply) and not reply.first_s:
                reply.first_s = seconds
        if not reply.ended:
            raise Refused(0, "a stream ended early")
        return reply

    def leave(self):
        """Sends the request, and leaves in mid-stream. Returns whether it did."""
        for _ in self.wire.events(self.path, self.body(), self.headers(), self.leave_after):
            pass
        return True

    def ask_background(self):
        """A short request without tools to the background model's name."""
        self.wire.call(self.path, self.background_body(f"Name this session: {self.shape.seed}, step {self.number}"), self.headers())

    def count(self):
        """Tokens of the next request's prompt; None where the API cannot say."""

    def start(self):
        pass

    def headers(self):
        return {}

    def close(self):
        self.wire.close()


class Chat(Agent):
    """OpenCode, Cline and others: chats in streams with their usage."""

    path = "/v1/chat/completions"

    def start(self):
        self.messages = [{"role": "system", "content": self.shape.system}]
        self.tools = [
            {"type": "function", "function": {"name": n, "description": d, "parameters": s}} for n, d, s in self.shape.tools
        ]

    @staticmethod
    def parts(text, image):
        return [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": image}}] if image else text

    def user(self, text, image):
        self.messages.append({"role": "user", "content": self.parts(text, image)})

    def result(self, call, text, image):
        self.messages.append({"role": "tool", "tool_call_id": call[0], "content": self.parts(text, image)})

    def keep(self, reply):
        turn = {"role": "assistant", "content": reply.text or None}
        if reply.blocks:
            turn["reasoning_content"] = "".join(reply.blocks)
        self.messages.append(turn)
        for call in reply.calls:
            self.keep_call(*call)

    def keep_call(self, i, name, arguments):
        made = {"id": i, "type": "function", "function": {"name": name, "arguments": arguments}}
        self.messages[-1].setdefault("tool_calls", []).append(made)

    def body(self):
        return {
            "model": self.model,
            "messages": self.messages,
            "tools": self.tools,
            "tool_choice": "auto",
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": REPLY_MAX,
            "temperature": 0,
            "chat_template_kwargs": {"enable_thinking": self.thinking},
        }

    def background_body(self, said):
        return {"model": self.background, "messages": [{"role": "user", "content": said}], "max_tokens": 8}

    def read(self, event, reply):
        if "error" in event:
            raise Refused(0, event)
        if usage := event.get("usage"):
            reply.prompt, reply.output = usage["prompt_tokens"], usage["completion_tokens"]
            reply.cached = usage["prompt_tokens_details"]["cached_tokens"]
        told = False
        for choice in event.get("choices") or []:
            reply.ended |= choice.get("finish_reason") is not None
            told |= self.read_delta(choice["delta"], reply)
        return told

    @staticmethod
    def read_delta(delta, reply):
        if delta.get("reasoning_content"):
            reply.blocks.append(delta["reasoning_content"])
        reply.text += delta.get("content") or ""
        for call in delta.get("tool_calls") or []:
            if call["index"] == len(reply.calls):
                reply.calls.append([call["id"], call["function"]["name"], ""])
            reply.calls[call["index"]][2] += call["function"].get("arguments") or ""
        return any(delta.get(name) for name in ("reasoning_content", "content", "tool_calls"))


class Messages(Agent):
    """Claude Code: blocks with cache_control, thinking with signatures, results among the user's blocks, a
    header line that differs with each request."""

    path = "/v1/messages?beta=true"
    deltas = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}

    def start(self):
        self.messages = []
        self.tools = [{"name": n, "description": d, "input_schema": s} for n, d, s in self.shape.tools]
        self.tools[-1]["cache_control"] = {"type": "ephemeral"}

    @staticmethod
    def parts(text, image):
        made = [{"type": "text", "text": text}]
        if image:
            kind, data = image[len("data:") :].split(";base64,")
            made.append({"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}})
        return made

    def add(self, role, blocks):
        if self.messages and self.messages[-1]["role"] == role:
            self.messages[-1]["content"] += blocks
        else:
            self.messages.append({"role": role, "content": blocks})

    def user(self, text, image):
        self.add("user", self.parts(text, image))

    def result(self, call, text, image):
        content = self.parts(text, image) if image else text
        self.add("user", [{"type": "tool_result", "tool_use_id": call[0], "content": content}])

    def keep(self, reply):
        self.add("assistant", list(reply.blocks))

    def keep_call(self, i, name, arguments):
        self.add("assistant", [{"type": "tool_use", "id": i, "name": name, "input": json.loads(arguments)}])

    def system(self, text):
        billing = f"x-anthropic-billing-header: cc_version=1.0.{self.number}; cch={time.monotonic_ns() % 0xFFFFF:05x};"
        return [{"type": "text", "text": billing}, {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]

    def prompt(self):
        last = self.messages[-1]["content"]
        marked = [*last[:-1], {**last[-1], "cache_control": {"type": "ephemeral"}}]
        return {
            "model": self.model,
            "system": self.system(self.shape.system),
            "messages": [*self.messages[:-1], {"role": "user", "content": marked}],
            "tools": self.tools,
            "thinking": {"type": "adaptive"} if self.thinking else {"type": "disabled"},
        }

    def body(self):
        more = {"stream": True, "max_tokens": REPLY_MAX, "metadata": {"user_id": "user_1"}, "temperature": 1}
        return {**self.prompt(), **more, "seed": self.number}

    def background_body(self, said):
        system = self.system("Answer with a title of three words.")
        return {"model": self.background, "max_tokens": 8, "system": system, "messages": [{"role": "user", "content": said}]}

    def headers(self):
        return {"anthropic-version": "2023-06-01", "anthropic-beta": "interleaved-thinking", "x-api-key": "none"}

    def count(self):
        return self.wire.call("/v1/messages/count_tokens?beta=true", self.prompt(), self.headers())["input_tokens"]

    def read(self, event, reply):
        kind = event["type"]
        if kind == "error":
            raise Refused(0, event)
        if kind == "message_start":
            usage = event["message"]["usage"]
            reply.cached = usage["cache_read_input_tokens"]
            reply.prompt = usage["input_tokens"] + reply.cached + usage["cache_creation_input_tokens"]
        elif kind == "content_block_start":
            reply.blocks.append(dict(event["content_block"]))
            self.partial = ""
        elif kind == "content_block_delta":
            self.read_delta(event["delta"], reply.blocks[-1])
        elif kind == "content_block_stop":
            self.block_ended(reply.blocks[-1], reply)
        elif kind == "message_delta":
            reply.output = event["usage"]["output_tokens"]
        reply.ended = kind == "message_stop"
        return kind == "content_block_delta"

    def read_delta(self, delta, block):
        if name := self.deltas.get(delta["type"]):
            block[name] = block.get(name, "") + delta[name]
        else:
            self.partial += delta["partial_json"]

    def block_ended(self, block, reply):
        if block["type"] == "tool_use":
            block["input"] = json.loads(self.partial or "{}")
            reply.calls.append([block["id"], block["name"], json.dumps(block["input"])])
        elif block["type"] == "text":
            reply.text += block["text"]


class Responses(Agent):
    """Codex: instructions and all items in each request, nothing stored, reasoning as encrypted content, a
    custom tool, hosted tools that the server does not have."""

    path = "/v1/responses"
    grammar = 'start: "*** Begin" LF /[^*]+/ "*** End"\nLF: "\\n"\n'

    def start(self):
        self.items = [
            self.message("developer", "The sandbox allows writing below the project."),
            self.message("user", "<environment><cwd>/home/user/project</cwd></environment>"),
        ]
        self.custom = self.shape.tools[3][0]
        form = {"type": "grammar", "syntax": "lark", "definition": self.grammar}
        self.tools = [
            {"type": "custom", "name": n, "description": d, "format": form}
            if n == self.custom
            else {"type": "function", "name": n, "description": d, "parameters": s, "strict": False}
            for n, d, s in self.shape.tools
        ]
        self.tools += [{"type": "web_search"}, {"type": "local_shell"}]

    @staticmethod
    def parts(text, image):
        return [{"type": "input_text", "text": text}, *([{"type": "input_image", "image_url": image}] if image else [])]

    def message(self, role, text, image=""):
        return {"type": "message", "role": role, "content": self.parts(text, image)}

    def user(self, text, image):
        self.items.append(self.message("user", text, image))

    def result(self, call, text, image):
        kind = "custom_tool_call_output" if call[1] == self.custom else "function_call_output"
        self.items.append({"type": kind, "call_id": call[0], "output": self.parts(text, image) if image else text})

    def keep(self, reply):
        self.items += reply.blocks

    def keep_call(self, i, name, arguments):
        made = {"type": "function_call", "call_id": i, "name": name, "arguments": arguments}
        if name == self.custom:
            made = {"type": "custom_tool_call", "call_id": i, "name": name, "input": arguments}
        self.items.append(made)

    def body(self):
        return {
            "model": self.model,
            "instructions": self.shape.system,
            "input": self.items,
            "tools": self.tools,
            "tool_choice": "auto",
            "parallel_tool_calls": True,
            "reasoning": {"effort": "medium" if self.thinking else "none", "summary": "auto"},
            "store": False,
            "stream": True,
            "include": ["reasoning.encrypted_content"],
            "prompt_cache_key": self.shape.seed,
            "text": {"verbosity": "medium"},
            "client_metadata": {"version": "1"},
            "max_output_tokens": REPLY_MAX,
            "seed": self.number,
        }

    def background_body(self, said):
        return {"model": self.background, "input": said, "store": False, "max_output_tokens": 8}

    def read(self, event, reply):
        kind = event["type"]
        if kind in ("error", "response.failed"):
            raise Refused(0, event)
        if kind == "response.output_item.done":
            self.item_ended(event["item"], reply)
        if kind in ("response.completed", "response.incomplete"):
            made = event["response"]
            reply.prompt, reply.output = made["usage"]["input_tokens"], made["usage"]["output_tokens"]
            reply.cached, reply.id, reply.ended = made["usage"]["input_tokens_details"]["cached_tokens"], made["id"], True
        return kind.endswith(".delta")

    @staticmethod
    def item_ended(item, reply):
        reply.blocks.append(item)
        if item["type"] in ("function_call", "custom_tool_call"):
            reply.calls.append([item["call_id"], item["name"], item.get("arguments") or item.get("input")])
        elif item["type"] == "message":
            reply.text += "".join(part.get("text", "") for part in item["content"])


class Stored(Responses):
    """OpenAI's SDKs: the server stores each response, a request has the new items and the id of the last one.
    When that one has left the store, all items are sent again."""

    def start(self):
        super().start()
        self.previous, self.known, self.sent_again, self.stored = None, 0, 0, []

    def keep(self, reply):
        super().keep(reply)
        self.previous, self.known = reply.id, len(self.items)
        self.stored.append(reply.id)

    def body(self):
        more = {"previous_response_id": self.previous} if self.previous else {}
        return {**super().body(), "store": True, "include": [], "input": self.items[self.known :], **more}

    def ask(self):
        try:
            return super().ask()
        except Refused as refused:
            if refused.args[0] != 404 or "previous_response_not_found" not in refused.args[1]:
                raise
        self.previous, self.known, self.sent_again = None, 0, self.sent_again + 1
        return super().ask()

    def leave(self):
        """Never: a response that broke off may be stored or not."""
        return False


KINDS = {"messages": Messages, "responses": Responses, "chat": Chat, "stored": Stored}
