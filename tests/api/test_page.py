"""The page: its files come whole without a key, hold nothing of the server, and reach nothing but it."""

import gzip
import re

import httpx
import pytest

from conftest import ADMIN_KEY, TOP, refused, serving

WEB = TOP / "src/web"
FILES = sorted(p for p in WEB.iterdir() if p.suffix in (".html", ".css", ".js", ".svg"))
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
         ".svg": "image/svg+xml"}


def fetch(server, path, **headers):
    return httpx.get(server.url + path, headers={"accept-encoding": "identity", **headers})


@pytest.mark.smoke
def test_every_file_comes_as_it_is_and_compressed(server):
    assert fetch(server, "/").content == (WEB / "index.html").read_bytes()
    for file in FILES:
        reply = fetch(server, f"/web/{file.name}")
        assert reply.status_code == 200 and reply.content == file.read_bytes(), file.name
        assert reply.headers["content-type"] == TYPES[file.suffix] and "content-encoding" not in reply.headers
        with httpx.stream("GET", f"{server.url}/web/{file.name}", headers={"accept-encoding": "br, gzip"}) as small:
            raw = b"".join(small.iter_raw())
        assert small.headers["content-encoding"] == "gzip" and gzip.decompress(raw) == file.read_bytes()
        assert len(raw) < len(reply.content) and len(raw) < 16384
        tag = reply.headers["etag"]
        again = fetch(server, f"/web/{file.name}", **{"if-none-match": tag})
        assert again.status_code == 304 and again.content == b"" and again.headers["etag"] == tag
        assert fetch(server, f"/web/{file.name}", **{"if-none-match": small.headers["etag"]}).status_code == 200
    refused(fetch(server, "/web/none.js"), 404, "not_found")
    refused(fetch(server, "/web/../index.html"), 404, "not_found")
    refused(httpx.post(server.url + "/"), 405, "method_not_allowed")


@pytest.mark.smoke
def test_headers_shut_everything_else_out(server):
    for path in ("/", "/web/app.js"):
        headers = fetch(server, path).headers
        policy = dict(rule.strip().split(" ", 1) for rule in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
        assert "set-cookie" not in headers


def test_the_frame_needs_no_key_and_the_figures_do(tmp_path):
    with serving("--api-key", "sk-alice-0123", "--admin-key", ADMIN_KEY, key=ADMIN_KEY) as s:
        assert fetch(s, "/").status_code == 200
        for path in ("/api/overview", "/api/history", "/api/log"):
            refused(fetch(s, path), 401, "invalid_api_key")


@pytest.mark.parametrize("file", FILES, ids=lambda p: p.name)
def test_no_file_makes_markup_from_text_or_names_another_host(file):
    source = re.sub(r"http://www\.w3\.org/2000/svg", "", file.read_text())
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "DOMParser",
                 "setHTML", "srcdoc", "createContextualFragment", "document.cookie"):
        assert word not in source, word
    assert not re.search(r"(src|href)=[\"'](https?:)?//|import .*[\"']https?:|url\(|@import", source)
    if file.suffix == ".html":
        assert not re.search(r"<script(?![^>]*\ssrc=)|\son\w+=|\sstyle=|<style", source)


def test_every_import_is_there():
    names = {p.name for p in FILES}
    for file in FILES:
        for name in re.findall(r"from \"\./([\w.]+)\"|/web/([\w.]+)", file.read_text()):
            assert (name[0] or name[1]) in names
