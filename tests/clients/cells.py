"""Declarations of a client's or a program's file: its package, its cells, and why it lacks the others."""

import ast
import importlib.util

from conftest import HERE

CELLS = "hello stream tools structured overflow cancel".split()
PINNED = {}
for file in (HERE / "requirements").glob("*.txt"):
    for package, version in (line.split("==") for line in file.read_text().split()):
        PINNED.setdefault(package.replace("_", "-"), set()).add(version)


class Declared:
    """The package, cells and reasons of a file, without importing the client."""

    def __init__(self, path):
        names = {}
        self.cells = set()
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name in CELLS:
                self.cells.add(node.name)
            elif isinstance(node, ast.Assign) and node.targets[0].id in ("PACKAGE", "MODULE", "MODELS", "LACKS"):
                names[node.targets[0].id] = ast.literal_eval(node.value)
        self.package = names["PACKAGE"]
        self.lacks = names.get("LACKS", {})
        self.models = names.get("MODELS", ["canary", "smollm2"])
        self.here = importlib.util.find_spec(names.get("MODULE", self.package.replace("-", "_"))) is not None


def declared(kind):
    """By name, of the files KIND_NAME.py."""
    return {path.stem.removeprefix(kind + "_"): Declared(path) for path in sorted(HERE.glob(kind + "_*.py"))}
