"""A proxy between a program and the server. It adds a structural tag to each request of the program's
conversation, so the reply is the next text of a script. Everything else passes as it came."""

import collections
import contextlib
import http.client
import http.server
import json
import threading

from servers import ANSWER_S, check_ledger, until

TURN, SUMMARY, OTHER = "a turn", "a summary", "another"
SAID = "A folder was made, and all is well."
THOUGHT = 8  # tokens of reasoning, which a small model would not end


def call(tool, **arguments):
    """A call in the bundled model's own format."""
    written = "".join(f"<parameter={k}>\n{v if isinstance(v, str) else json.dumps(v)}\n</parameter>\n" for k, v in arguments.items())
    return f"<tool_call>\n<function={tool}>\n{written}</function>\n</tool_call>"


class Asked:
    """A request as the program sent it, and what the server answered."""

    def __init__(self, path, headers, body):
        self.path, self.headers, self.body = path, headers, body
        self.kind, self.forced, self.status, self.answered, self.usage, self.overflows, self.opens = OTHER, None, None, {}, {}, False, False

    @property
    def tokens(self):
        """Tokens of the prompt, and how many of them the prefix cache had."""
        u = self.usage
        if "input_tokens_details" in u:
            return u["input_tokens"], u["input_tokens_details"]["cached_tokens"]
        parts = [u.get(k, 0) for k in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")]
        return sum(parts), parts[2]

    def note(self, reply, came):
        self.status, self.answered = reply.status, dict(reply.getheaders())
        self.overflows = b'"context_length_exceeded"' in came or b'"prompt is too long: ' in came
        for line in came.split(b"\n"):
            with contextlib.suppress(ValueError):
                event = json.loads(line.removeprefix(b"data:"))
                for part in event, event.get("message"), event.get("response"):
                    if isinstance(part, dict):
                        self.usage.update({k: v for k, v in (part.get("usage") or {}).items() if v is not None})


class Script:
    """`replies` are the texts to come, `asked` has every request. `kind_of` says what a request is."""

    def __init__(self, server, kind_of):
        self.server, self.kind_of = server, kind_of
        self.replies, self.asked, self.turns = collections.deque(), [], 0
        self.lock = threading.Lock()
        script = self

        class Proxy(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.pass_on(None, b"")

            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                asked = Asked(self.path.split("?")[0], dict(self.headers), json.loads(body))
                self.pass_on(asked, script.direct(asked, body))

            def pass_on(self, asked, body):
                upstream = http.client.HTTPConnection("127.0.0.1", script.server.port, timeout=ANSWER_S)
                own = ("host", "connection", "content-length", "accept-encoding", "transfer-encoding", "date")
                with contextlib.closing(upstream), contextlib.suppress(ConnectionError):
                    upstream.request(self.command, self.path, body, {k: v for k, v in self.headers.items() if k.lower() not in own})
                    reply, came = upstream.getresponse(), b""
                    self.send_response_only(reply.status)
                    for name, value in reply.getheaders():
                        if name.lower() not in own:
                            self.send_header(name, value)
                    self.end_headers()
                    while part := reply.read1(65536):
                        came += part
                        self.wfile.write(part)
                    if asked:
                        script.answered(asked, reply, came)

            def log_message(self, *_):
                pass

        self.proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
        self.url = f"http://127.0.0.1:{self.proxy.server_address[1]}"
        threading.Thread(target=self.proxy.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.proxy.shutdown()
        self.proxy.server_close()

    def direct(self, asked, body):
        with self.lock:
            self.asked.append(asked)
            asked.kind = self.kind_of(asked)
            asked.opens = asked.kind == TURN and self.opening
            self.opening &= not asked.opens
            if asked.kind == SUMMARY:
                asked.forced = f"<summary>{SAID}</summary>"
            elif asked.kind == TURN and self.replies:
                asked.forced = self.replies.popleft()
            else:
                return body
        tag = {"type": "structural_tag", "format": {"type": "const_string", "value": asked.forced}}
        more = {"structured_outputs": {"structural_tag": tag}, "thinking_token_budget": THOUGHT}
        return json.dumps({**asked.body, **more}).encode()

    def answered(self, asked, reply, came):
        asked.note(reply, came)
        if asked.overflows and asked.forced and asked.kind == TURN:
            self.replies.appendleft(asked.forced)  # for the program's next attempt

    @contextlib.contextmanager
    def turn(self, *replies):
        """A question of the user, which is answered with these texts."""
        before, self.turns, self.opening = len(self.asked), self.turns + 1, True
        self.replies.extend(replies)
        yield
        until(lambda: not self.server.requests())
        assert not self.replies, self.told(before)

    def told(self, first=0):
        return "\n".join(f"{a.kind} {a.path} {a.status} {a.tokens} {str(a.forced)[:60]!r} {a.answered.get('x-cache-miss')}"
                         for a in self.asked[first:]) + "\n" + "".join(self.server.lines[-9:])

    def check(self, turns, overflows, left):
        """A whole session: the server refused `overflows` requests and no others, and `left` were left. It is
        idle, and its ledger is balanced. Each prompt found 95 % of the prompt before. The first prompt of a
        turn found as much of the first prompt of the turn before, since the template drops the reasoning of
        that turn. A summary empties the conversation."""
        assert self.turns == turns
        self.server.wait_idle()
        check_ledger(self.server.memory())
        opened, last = 0, 0
        for i, a in enumerate(self.asked):
            if a.overflows or a.status is None:
                opened, last = (opened, last) if a.kind == TURN else (0, 0)
                continue
            assert a.status == 200 and (a.forced or a.kind == OTHER), self.told(i)
            whole, found = a.tokens
            asks = a.opens or a.kind == SUMMARY
            assert a.kind == OTHER or found >= 0.95 * min(whole, opened if asks else last), self.told(max(i - 2, 0))
            opened = whole if a.opens else opened if a.kind == TURN else 0
            last = whole if a.kind == TURN else 0
        # The request for a summary may be too long as well: the program drops turns then.
        over = [a.kind for a in self.asked if a.overflows]
        assert (over.count(TURN), sum(a.status is None for a in self.asked)) == (overflows, left), self.told()
        assert len(over) <= 2 * overflows, self.told()
        assert not [line for line in self.server.lines if " level=" in line and not " level=info " in line]
        refused = [line for line in self.server.lines if "event=request_refused" in line]
        assert all("code=context_length_exceeded" in line for line in refused), refused
