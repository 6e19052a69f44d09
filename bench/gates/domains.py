"""Each domain of memory by itself, the machine's and every device's: its ceiling, what the accounts miss of
it, what remains at idle."""

from common import MIB, accounts, mib

# Bytes of a domain that its accounts may miss: of the machine the heap's slack, of a device
# one commit unit.
APART = {"machine": 32 * MIB}
APART_ON_DEVICE = 2 * MIB
RECORDED = "/recorded steps"


def roots(memory):
    """{domain: its root account}"""
    machine, *devices = memory["accounts"]
    return {"machine": machine, **{root["name"]: root for root in devices}}


def used(memory):
    """{domain: bytes}"""
    return {domain: root["used_bytes"] for domain, root in roots(memory).items()}


def used_by_account(memory):
    """{path: bytes} of all domains, without recorded steps: which a model has depends on its last batches."""
    used = {path: a["used_bytes"] for path, a in accounts(memory).items()}
    for path in [path for path in used if path.endswith(RECORDED)]:
        recorded = used[path]
        for above in used:
            used[above] -= recorded if (path + "/").startswith(above + "/") else 0
    return used


def recorded(used):
    """Bytes of recorded steps in the machine's memory, of {path: bytes}: they stay until an unload."""
    return sum(count for path, count in used.items() if path.startswith("process/") and path.endswith(RECORDED))


def apart(memory):
    """{domain: what it really holds beyond its accounts}"""
    missed = {"machine": memory["unaccounted_bytes"]}
    for device in memory["system"]["devices"]:
        missed[device["name"]] = device["committed_bytes"] - device["used_bytes"]
        if device["name"].startswith("fake:"):
            # The CPU does its work: workspaces are in the machine's memory.
            paths = [path for path in accounts(memory) if path.startswith(device["name"] + "/")]
            missed[device["name"]] += sum(accounts(memory)[p]["used_bytes"] for p in paths if p.endswith("/workspace"))
    return missed


def allowed(before):
    """How much of a domain may remain that held this much."""
    return max(8 * MIB, before // 100)


class Watch:
    """Extremes of every domain over all reports of a server's memory that it was shown."""

    def __init__(self):
        self.looks, self.ceilings, self.peaks, self.apart, self.sums_hold = 0, {}, {}, {}, True
        self.last = {}

    def see(self, memory):
        self.looks += 1
        self.sums_hold &= memory["sums_hold"]
        missed = apart(memory)
        for domain, root in roots(memory).items():
            self.ceilings[domain] = root["limit_bytes"]
            self.peaks[domain] = max(self.peaks.get(domain, 0), root["reserved_bytes"], root["peak_bytes"])
            if self._is_still(domain, (root["used_bytes"], missed[domain])):
                low, high = self.apart.get(domain, (missed[domain], missed[domain]))
                self.apart[domain] = min(low, missed[domain]), max(high, missed[domain])

    def _is_still(self, domain, figures):
        """A report reads a device's driver after its accounts: both are compared where they have stayed since
        the last look."""
        before, self.last[domain] = self.last.get(domain), figures
        return domain == "machine" or before == figures

    def judge(self, report):
        report.must(f"sums of accounts held in {self.looks} looks", self.sums_hold)
        for domain, ceiling in self.ceilings.items():
            peak, (low, high) = self.peaks[domain], self.apart.get(domain, (0, 0))
            report.figure(f"{domain}_peak_bytes", peak, f"{mib(peak)} of {mib(ceiling)}")
            report.must(f"{domain}: never above its ceiling", peak <= ceiling)
            bound = APART.get(domain, APART_ON_DEVICE)
            report.figure(f"{domain}_unaccounted_bytes", [low, high], f"{mib(low)} to {mib(high)}")
            report.must(f"{domain}: unaccounted within {mib(bound)}", max(-low, high) <= bound)


def must_rest(report, memory, when):
    """At idle: what an account uses is what its children use, the driver counts the same, and nothing is
    orphaned."""
    uneven = [path for path, a in accounts(memory).items() if a["children"] and a["own_bytes"] > 0]
    report.must(f"{when}: every sum is equal {uneven or ''}", memory["sums_hold"] and not uneven)
    for domain, missed in apart(memory).items():
        if domain != "machine":
            report.must(f"{when}: {domain} holds what its accounts have ({missed} bytes more)", missed == 0)
    orphans = [(h["id"], h["domain"], h["held_bytes"]) for h in memory["holders"] if h["state"] == "orphan"]
    report.must(f"{when}: nothing is orphaned {orphans or ''}", not orphans and memory["orphans"] == 0)


def must_be_as(report, before, after, when):
    """The accounts of every domain, {path: bytes}, are the same to the byte."""
    for root in sorted({path.split("/")[0] for path in [*before, *after]}):
        paths = [path for path in {**before, **after} if path.split("/")[0] == root]
        moved = {path: (before.get(path), after.get(path)) for path in paths if before.get(path) != after.get(path)}
        report.must(f"{when}: the {len(paths)} accounts of {root} as before {moved or ''}", not moved)
