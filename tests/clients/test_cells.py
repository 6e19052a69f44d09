"""The cells of each client: hello, stream, tools, structured, overflow and cancel, each with the bundled and
the starter model. A client is a file client_NAME.py with a function for each cell, or a reason in its LACKS.
docs/clients.md has the table.

The models are small. So a call of a tool is forced if the client can force one, a schema makes the
structured output, and texts are compared only for the bundled model."""

import gc
import importlib
import types

import pytest

from cells import CELLS, PINNED, declared
from servers import SDK_KEY, TOP, until
from sdk import ANSWER, Order

CLIENTS = declared("client")
ALL = {**CLIENTS, **declared("program")}


@pytest.fixture(params=["canary", "smollm2"])
def at(both, request):
    if request.param == "smollm2" and both.missing:
        pytest.skip(both.missing)
    return types.SimpleNamespace(server=both, url=both.url, base=both.url + "/v1", key=SDK_KEY, model=request.param)


@pytest.mark.parametrize("name", ALL)
def test_each_cell_is_there_or_has_a_reason(name):
    c = ALL[name]
    assert not c.cells & set(c.lacks) and c.cells | set(c.lacks) == set(CELLS)


@pytest.mark.parametrize("name", ALL)
def test_the_document_names_the_pinned_version(name):
    package = ALL[name].package
    rows = [row for row in (TOP / "docs/clients.md").read_text().splitlines() if row.startswith("| ") and f"`{package}`" in row]
    assert rows and all(any(version in row for row in rows) for version in PINNED[package])


def cells(cell):
    return pytest.mark.parametrize("name", [n for n, c in CLIENTS.items() if c.here and cell in c.cells])


def client(name):
    return importlib.import_module("client_" + name)


@cells("hello")
def test_hello(at, name):
    c = client(name)
    text = c.hello(at)
    assert isinstance(text, str) and text.strip()
    if at.model == "canary" and not getattr(c, "OWN_PROMPT", False):
        assert text.strip() == ANSWER


@cells("stream")
def test_stream(at, name):
    """In several parts, which are the text of the whole reply. A busy server may send a short
    text as one part, so the test repeats the request until there are several."""
    c = client(name)
    parts = until(lambda: several if len(several := c.stream(at)) > 1 else None, every=0)
    if at.model == "canary" and not getattr(c, "OWN_PROMPT", False):
        assert "".join(parts).strip() == ANSWER


@cells("tools")
def test_tools(at, name):
    tool, arguments = client(name).tools(at)
    assert tool == "get_time" and set(arguments) == {"city"} and isinstance(arguments["city"], str)


@cells("structured")
def test_structured(at, name):
    assert isinstance(client(name).structured(at), Order)


@cells("overflow")
def test_overflow(at, name):
    """The client's own error, which says how long the context is."""
    c = client(name)
    with pytest.raises(c.OVERFLOW) as caught:
        c.overflow(at)
    assert "context length" in str(caught.value) or "prompt is too long" in str(caught.value)
    at.server.wait_idle()


@cells("cancel")
def test_cancel(at, name):
    """A stream that the client leaves: its sequence goes before its end, and is counted as left."""
    left = lambda: sum(v for k, v in at.server.metrics().items() if k.startswith("plateau_requests_aborted_total"))
    before = left()
    c = client(name)
    gc.freeze()  # older objects stay, so that the collection is short
    c.cancel(at)
    gc.collect()  # some connections close when the stream's cycle of references goes
    at.server.wait_idle()
    assert left() == before + 1
