"""Servers for clients of other projects. tests/api/conftest.py is the module `servers` here. One more server
has the bundled and the starter model. A file is collected where its client is installed."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
spec = importlib.util.spec_from_file_location("servers", HERE.parent / "api/conftest.py")
servers = sys.modules["servers"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(servers)
sdk = servers.sdk
pytest_configure = servers.pytest_configure

PACKAGES = {"agents": "agents", "described": "schemathesis", "instructor": "instructor", "langchain": "langchain_openai",
            "litellm": "litellm", "anthropic": "anthropic", "metaschema": "jsonschema", "openai": "openai", "forced": "openai"}
collect_ignore = [f"test_sdk_{name}.py" for name, package in PACKAGES.items() if not importlib.util.find_spec(package)]


class Both(servers.Server):
    """The bundled model, and the starter model where it could be fetched."""

    def __init__(self):
        got = subprocess.run([servers.TOP / "tools/fetch-starter"], capture_output=True, text=True, timeout=600,
                             env={**os.environ, "XDG_CACHE_HOME": servers.USER_CACHE})
        self.missing = got.returncode and got.stderr.strip().splitlines()[-1]
        super().__init__("--api-key", servers.SDK_KEY, "--admin-key", servers.ADMIN_KEY, key=servers.ADMIN_KEY)

    def arguments(self):
        return [str(servers.MODEL)] + ([] if self.missing else [f"{servers.USER_CACHE}/plateau/smollm2"])


@pytest.fixture(scope="session")
def both():
    server = Both()
    try:
        yield server
        server.wait_idle()
        assert server.stop() == 0, "".join(server.lines[-20:])
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()
