"""A stand-in for the Hugging Face hub: the API and `resolve` on one port; large files behind a redirect, on
another port, as a host of its own. Faults are drawn by the test.

`python hub_stand_in.py FOLDER` serves FOLDER as acme/NAME until it is stopped, for tries by hand."""
import hashlib
import http.server
import json
import pathlib
import random
import re
import threading
import time
import urllib.parse

LARGE = 4096  # bytes from which a file has SHA-256 and lies at the other host
FAULTS = ("cut", "cut at the end", "slow", "429", "500", "wrong bytes", "wrong length", "no ranges", "redirect elsewhere", "expired")


class Model:
    def __init__(self, files, private=False, gated=False):
        """files: name to bytes."""
        self.files, self.private, self.gated = files, private, gated
        self.commit = hashlib.sha1(repr(sorted((n, hashlib.sha256(b).hexdigest()) for n, b in files.items())).encode()).hexdigest()
        self.sums = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        self.git = {name: hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest() for name, data in files.items()}

    def entry(self, name, sums=True):
        data = self.files[name]
        entry = {"rfilename": name}
        if sums:
            entry |= {"size": len(data), "blobId": self.git[name]}
            if len(data) >= LARGE:
                entry["lfs"] = {"sha256": self.sums[name], "size": len(data), "pointerSize": 130}
        return entry

    def leaf(self, name):
        data = self.files[name]
        leaf = {"type": "file", "path": name, "size": len(data), "oid": self.git[name]}
        if len(data) >= LARGE:
            leaf["lfs"] = {"oid": self.sums[name], "size": len(data), "pointerSize": 130}
        return leaf


class Hub:
    """`faults` is asked for each request of a file, and answers with one of FAULTS or None."""

    def __init__(self, models, token=None, faults=lambda name, part: None):
        self.models, self.token, self.faults = models, token, faults
        self.listing = None  # bytes instead of the true list
        self.pause = 0.05  # seconds between the pieces of "slow"
        self.plain = False  # no sums in the list, as some mirrors
        self.entries = None  # further entries of the list
        self.elsewhere = None  # where "redirect elsewhere" leads
        self.requests, self.seen_tokens, self.bytes_sent = [], set(), 0
        self.lock = threading.Lock()
        self.servers = [self._serve(host) for host in ("api", "cdn")]
        self.url, self.cdn = (f"http://{at}:{s.server_address[1]}" for at, s in zip(("127.0.0.1", "localhost"), self.servers))

    def _serve(self, host):
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_HEAD(self):
                self.do_GET()

            def do_GET(self):
                with hub.lock:
                    hub.requests.append((host, self.path, self.headers.get("Range")))
                    if self.headers.get("Authorization"):
                        hub.seen_tokens.add((host, self.headers["Authorization"]))
                try:
                    (hub.answer if host == "api" else hub.answer_cdn)(self)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

        server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    def close(self):
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # --- answers ---

    def send(self, h, status, body=b"", **headers):
        h.send_response(status)
        for name, value in headers.items():
            h.send_header(name.replace("_", "-"), value)
        h.send_header("Content-Length", str(len(body)))
        h.end_headers()
        if h.command != "HEAD":
            h.wfile.write(body)

    def answer(self, h):
        path = urllib.parse.unquote(h.path.split("?")[0])
        listed = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/(.+))?", path)
        resolved = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        model = self.models.get((listed or resolved)[1]) if listed or resolved else None
        if not model or (model.private and h.headers.get("Authorization") != f"Bearer {self.token}"):
            return self.send(h, 401, b'{"error":"Repository not found"}', X_Error_Code="RepoNotFound")
        if model.gated and resolved:
            return self.send(h, 403, b"{}", X_Error_Code="GatedRepo")
        revision = (listed[3] if listed else resolved[2]) or "main"
        if revision not in ("main", "refs/pr/1", model.commit):
            return self.send(h, 404, b"{}", X_Error_Code="RevisionNotFound")
        if listed:
            return self.answer_list(h, model, listed[2])
        return self.answer_file(h, model, resolved[3])

    def answer_list(self, h, model, kind):
        if self.listing is not None:
            return self.send(h, 200, self.listing, Content_Type="application/json")
        names = sorted(model.files)
        if kind == "tree":
            query = urllib.parse.parse_qs(urllib.parse.urlparse(h.path).query)
            at = int(query.get("cursor", ["0"])[0])
            body = json.dumps([model.leaf(n) for n in names[at:at + 3]]).encode()
            more = {"Link": f'<{self.url}{h.path.split("?")[0]}?recursive=true&cursor={at + 3}>; rel="next"'} if at + 3 < len(names) else {}
            return self.send(h, 200, body, **more)
        entries = [model.entry(n, not self.plain) for n in names] + (self.entries or [])
        body = {"_id": "0", "id": "acme/x", "private": model.private, "sha": model.commit, "tags": ["a"], "config": {"deep": [[{}]]}, "siblings": entries}
        self.send(h, 200, json.dumps(body).encode(), Content_Type="application/json")

    def answer_file(self, h, model, name):
        if name not in model.files:
            return self.send(h, 404, b"Entry not found", X_Error_Code="EntryNotFound")
        data = model.files[name]
        if len(data) < LARGE:
            return self.send_data(h, model, name, self.faults(name, h.headers.get("Range")), ETag=f'"{model.git[name]}"', X_Repo_Commit=model.commit)
        fault = self.faults(name, h.headers.get("Range"))
        where = self.elsewhere if fault == "redirect elsewhere" and self.elsewhere else self.cdn
        target = f"{where}/{urllib.parse.quote(name)}?sum={model.sums[name]}&fault={urllib.parse.quote(fault or '')}"
        self.send(h, 302, b"Found. Redirecting", Location=target, X_Linked_Etag=f'"{model.sums[name]}"', X_Linked_Size=str(len(data)),
                  X_Repo_Commit=model.commit)

    def answer_cdn(self, h):
        query = urllib.parse.parse_qs(urllib.parse.urlparse(h.path).query)
        for model in self.models.values():
            for name, total in model.sums.items():
                if total == query.get("sum", [""])[0]:
                    return self.send_data(h, model, name, query.get("fault", [None])[0], ETag=f'"{total}"')
        self.send(h, 404)

    def send_data(self, h, model, name, fault, **headers):
        data = model.files[name]
        begin, end = 0, len(data)
        ranged = re.fullmatch(r"bytes=(\d+)-(\d*)", h.headers.get("Range") or "")
        if fault == "429":
            return self.send(h, 429, b"slow down", Retry_After="1")
        if fault == "500":
            return self.send(h, 500)
        if fault == "endless":  # the body of an error that never ends
            h.send_response(503)
            h.send_header("Retry-After", "1")
            h.end_headers()
            h.close_connection = True
            while True:
                h.wfile.write(bytes(65536))
        if fault == "expired":
            return self.send(h, 403, b"Request has expired")
        if ranged and fault != "no ranges":
            begin, end = int(ranged[1]), min(len(data), int(ranged[2] or len(data)) + 1)
            if begin >= len(data):
                return self.send(h, 416, Content_Range=f"bytes */{len(data)}")
        part = data[begin:end]
        total = len(data) + (17 if fault == "wrong length" else 0)
        if fault == "wrong bytes" and part:
            at = random.randrange(len(part))
            part = part[:at] + bytes([part[at] ^ 1]) + part[at + 1:]
        partial = ranged and fault != "no ranges"
        h.send_response(206 if partial else 200)
        for key, value in headers.items():
            h.send_header(key.replace("_", "-"), value)
        if partial:
            h.send_header("Content-Range", f"bytes {begin}-{end - 1}/{total}")
        h.send_header("Content-Length", str(len(part) + (fault == "cut at the end")))
        h.end_headers()
        if h.command == "HEAD":
            return None
        with self.lock:
            self.bytes_sent += len(part)
        if fault == "cut":
            h.wfile.write(part[:random.randrange(len(part) + 1)])
            h.close_connection = True
            h.connection.shutdown(2)
            return None
        if fault == "cut at the end":  # all bytes came, and the transfer fails nevertheless
            h.wfile.write(part)
            h.close_connection = True
            return None
        step = max(1, len(part) // 5) if fault == "slow" else len(part)
        for at in range(0, len(part), max(step, 1)):
            h.wfile.write(part[at:at + step])
            h.wfile.flush()
            if fault == "slow":
                time.sleep(self.pause)
        return None


def folder(path):
    """The files of a folder, with the names that they have there."""
    path = pathlib.Path(path)
    return {str(f.relative_to(path)): f.read_bytes() for f in sorted(path.rglob("*")) if f.is_file()}


if __name__ == "__main__":
    import sys
    given = pathlib.Path(sys.argv[1])
    stand_in = Hub({f"acme/{given.resolve().name}": Model(folder(given))})
    print(f"HF_ENDPOINT={stand_in.url} plateau pull acme/{given.resolve().name}", flush=True)
    threading.Event().wait()
