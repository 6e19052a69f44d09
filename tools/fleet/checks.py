"""Checks through a router: no admin route without a key, and clients that leave are noticed."""

import http.client
import json
import re
import socket
import time

from replica import TOP, fetch, until

PROXIED = ({}, {"Host": "llm.example.com"}, {"Host": "localhost"}, {"Host": "127.0.0.1"})


def admin_routes():
    """Returns (method, path) of each admin route, from the source."""
    return [(method, path.replace("*", "canary")) for method, path in
            re.findall(r'\{"([A-Z]+)", "(/[^"]*)", AUTH_ADMIN,', (TOP / "src/api/routes.c").read_text())]


def open_admin_routes(port):
    """Returns the admin routes that answer something but a refusal to a client without a key."""
    found, routes = [], admin_routes()
    if len(routes) < 10:
        raise RuntimeError("the source has no admin routes where they were")
    for method, path in routes:
        for headers in PROXIED:
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            c.request(method, path, body=b"{}" if method == "POST" else None, headers={"Content-Type": "application/json", **headers})
            status = c.getresponse().status
            c.close()
            if status not in (400, 401, 403, 404, 405, 502, 503):
                found.append(f"{method} {path} {headers.get('Host', '')}: {status}")
    return found


def leave(port, replicas, stream=True):
    """Sends a long request, leaves it, and returns the seconds until all replicas are idle."""
    body = json.dumps({"model": "canary", "messages": [{"role": "user", "content": "a"}], "max_tokens": 20000, "ignore_eos": True, "stream": stream})
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        if stream:
            s.recv(100)
        until(lambda: any(r.busy() for r in replicas), 60, 0.005)
        busy = [r for r in replicas if r.busy()]
        time.sleep(0.2)
        if not any(r.busy() for r in busy):
            raise RuntimeError("the request ended before its client left")
        began = time.monotonic()
    until(lambda: not any(r.busy() for r in busy), 60, 0.001)
    return time.monotonic() - began


def after_wrong_requests(port, count=36):
    """Sends requests with a token that does not exist, which routers pass on. Returns how many were refused,
    and how many of 10 right ones are answered afterwards."""
    def ask(**fields):
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        body = {"model": "canary", "messages": [{"role": "user", "content": "a"}], "max_tokens": 1, **fields}
        c.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        status = c.getresponse().status
        c.close()
        return status

    refused = [ask(logit_bias={"999999999": 1}) for _ in range(count)]
    return refused.count(400), sum(ask() == 200 for _ in range(10))


def agree(replicas):
    """Returns replicas that answer /health and /v1/models differently from ready."""
    return [r.number for r in replicas if fetch(r.port, "/health")[0] != 200 or fetch(r.port, "/v1/models")[0] != 200]
