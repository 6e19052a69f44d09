"""The cells of each client: hello, stream, tools, structured, overflow and cancel, each with the bundled and
the starter model. A client is a file client_NAME.py with a function for each cell, or a reason in its LACKS.
docs/clients.md has the table.

The models are small. So a call of a tool is forced if the client can force one, a schema makes the
structured output, and texts are compared only for the bundled model."""

import ast
import gc
import importlib
import importlib.util
import types

import pytest

from conftest import HERE
from servers import SDK_KEY, TOP, until
from sdk import ANSWER, Order

CELLS = "hello stream tools structured overflow cancel".split()
PINNED = {}
for file in (HERE / "requirements").glob("*.txt"):
    for package, version in (line.split("==") for line in file.read_text().split()):
        PINNED.setdefault(package.replace("_", "-"), set()).add(version)


class Declared:
    """The package, cells and reasons of a client's file, without importing the client."""

    def __init__(self, path):
        names = {}
        self.cells = set()
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name in CELLS:
                self.cells.add(node.name)
            elif isinstance(node, ast.Assign) and node.targets[0].id in ("PACKAGE", "MODULE", "LACKS"):
                names[node.targets[0].id] = ast.literal_eval(node.value)
        self.package = names["PACKAGE"]
        self.lacks = names.get("LACKS", {})
        self.here = importlib.util.find_spec(names.get("MODULE", self.package.replace("-", "_"))) is not None


CLIENTS = {path.stem.removeprefix("client_"): Declared(path) for path in sorted(HERE.glob("client_*.py"))}


@pytest.fixture(params=["canary", "smollm2"])
def at(both, request):
    if request.param == "smollm2" and both.missing:
        pytest.skip(both.missing)
    return types.SimpleNamespace(server=both, url=both.url, base=both.url + "/v1", key=SDK_KEY, model=request.param)


@pytest.mark.parametrize("name", CLIENTS)
def test_each_cell_is_there_or_has_a_reason(name):
    c = CLIENTS[name]
    assert not c.cells & set(c.lacks) and c.cells | set(c.lacks) == set(CELLS)


@pytest.mark.parametrize("name", CLIENTS)
def test_the_document_names_the_pinned_version(name):
    package = CLIENTS[name].package
    rows = [row for row in (TOP / "docs/clients.md").read_text().splitlines() if row.startswith("| ") and f"`{package}`" in row]
    assert rows and all(version in rows[0] for version in PINNED[package])


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
