"""Questions of clients of other projects to the bundled model, and a server that fails at first."""

import base64
import contextlib
import http.server
import os
import threading
import typing
import urllib.request

import pydantic

from servers import SDK_KEY, TOP

# The clients reach no other server.
os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", OPENAI_AGENTS_DISABLE_TRACING="1", LANGSMITH_TRACING="false",
                  HAYSTACK_TELEMETRY_ENABLED="False", DO_NOT_TRACK="1", HF_HUB_DISABLE_TELEMETRY="1")

ALIAS = "Qwen/Qwen3-4B"
MKDIR = "What does mkdir do?"
ASK = [{"role": "user", "content": MKDIR}]
ANSWER = "mkdir(2) - create a directory."
TIME = "Tell me the time in Lima."
IMAGE = "data:image/png;base64," + base64.b64encode(
    (TOP / "tests/golden/data/canary-8bit/images/0.png").read_bytes()).decode()
LOOK = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": IMAGE}},
                                     {"type": "text", "text": "What do you see?"}]}]
SEEN = "A green triangle on a gray background."
TOOL = {"type": "function", "function": {"name": "get_time", "description": "Local time of a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
LONG = "word " * 40000
EXTRACT = "Extract JSON with item, quantity and price: 18 of pencil at 37.75 each."
FOREVER = {"ignore_eos": True}
ENDLESS = 7000  # tokens of a stream that is left; they fit the starter model


class Order(pydantic.BaseModel):
    """Small models write what the schema leaves open up to its limit."""
    item: typing.Literal["pencil", "pen"]
    quantity: int = pydantic.Field(ge=0, le=99)
    paid: bool


@contextlib.contextmanager
def failing_first(server, times, status):
    """The URL of a proxy that answers `times` requests with `status`, and passes the others on; a list of the
    statuses that it has sent."""
    sent = []

    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            if len(sent) < times:
                return self.answer(status, b'{"error": {"message": "busy", "type": "x", "param": null, "code": null}}')
            headers = {"content-type": "application/json", "authorization": f"Bearer {SDK_KEY}"}
            with urllib.request.urlopen(urllib.request.Request(server.url + self.path, body, headers)) as reply:
                self.answer(reply.status, reply.read())

        def answer(self, code, body):
            sent.append(code)
            self.send_response(code)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.send_header("retry-after", "0")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{proxy.server_address[1]}", sent
    finally:
        proxy.shutdown()
        proxy.server_close()
