"""packaging/kubernetes: manifests that Kubernetes accepts, with settings, ports, probes and metrics that a
server has."""

import re

import httpx
import pytest

from conftest import MODEL, TOP, Server, free_port, until

FOLDER = TOP / "packaging/kubernetes"
# Kubernetes itself does not have these kinds.
NEED_DEFINITIONS = {"kustomization.yaml", "scaledobject.yaml", "podmonitor.yaml"}
INI = (FOLDER / "plateau.ini").read_text()
DEPLOYMENT = (FOLDER / "deployment.yaml").read_text()


def setting(name):
    return re.search(rf"^{name} = (.*)$", INI, re.M)[1]


def test_kubernetes_accepts_the_manifests():
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    yaml = pytest.importorskip("yaml")
    kinds = set()
    for path in FOLDER.glob("*.yaml"):
        for resource in yaml.safe_load_all(path.read_text()):
            if path.name not in NEED_DEFINITIONS:
                kubernetes_validate.validate(resource, "1.30", strict=True)
                kinds.add(resource["kind"])
    assert kinds == {"Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy", "HorizontalPodAutoscaler", "PersistentVolumeClaim"}
    listed = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    assert set(listed) == {p.name for p in FOLDER.glob("*.yaml")} - NEED_DEFINITIONS


def test_the_pod_is_what_the_settings_say():
    ports = dict(re.findall(r"\{name: (\w+), containerPort: (\d+)\}", DEPLOYMENT))
    assert ports == {"http": setting("port"), "metrics": setting("metrics-listen").split(":")[-1],
                     "events": setting("kv-events").split(":")[-1], "replay": setting("kv-events-replay").split(":")[-1]}
    for path in (FOLDER / "service.yaml", FOLDER / "network.yaml", FOLDER / "podmonitor.yaml"):
        assert set(re.findall(r"(?:targetPort|\{port|- \{port): ([a-z]+)", path.read_text())) <= ports.keys(), path.name
    grace = int(re.search(r"terminationGracePeriodSeconds: (\d+)", DEPLOYMENT)[1])
    assert grace >= int(setting("drain")) + int(setting("drain-grace")) + 30
    for place in re.findall(r"mountPath: (\S+?),? ", DEPLOYMENT):
        assert place in INI + DEPLOYMENT.replace(f"mountPath: {place}", "")


def test_a_server_with_the_settings_answers_the_probes(tmp_path):
    metrics = free_port()
    told = INI.replace("/models/model", str(MODEL)).replace("0.0.0.0:9090", f"127.0.0.1:{metrics}")
    for name, port in (("kv-events", free_port()), ("kv-events-replay", free_port())):
        told = re.sub(rf"^({name} = .*:)\d+$", rf"\g<1>{port}", told, flags=re.M)
    for name in ("api-keys", "admin-key"):
        (tmp_path / name).write_text(f"sk-of-the-pod-{name}\n")
        (tmp_path / name).chmod(0o440)
    (tmp_path / "plateau.ini").write_text(told.replace("/etc/plateau/keys", str(tmp_path)).replace("host = 0.0.0.0", "host = 127.0.0.1"))

    class Pod(Server):
        def arguments(self):
            return ["--config", str(tmp_path / "plateau.ini"), "--memory-limit=1G", "--drain-grace=0"]

    s = Pod(key="sk-of-the-pod-admin-key")
    probed = httpx.Client(base_url=f"http://127.0.0.1:{metrics}")
    paths = set(re.findall(r"httpGet: \{path: (\S+), port: metrics\}", DEPLOYMENT))
    assert paths == {"/health", "/live"}
    until(lambda: all(probed.get(path).status_code == 200 for path in paths))
    told = probed.get("/metrics").text
    asked = set(re.findall(r"vllm:\w+", (FOLDER / "autoscaler.yaml").read_text() + (FOLDER / "scaledobject.yaml").read_text()))
    assert asked == {"vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"} and all(f"\n{name}{{" in told for name in asked)
    assert s.http.get("/v1/models", headers={"Authorization": "Bearer sk-of-the-pod-api-keys"}).status_code == 200
    assert s.http.get("/v1/models", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert s.stop() == 0
