#!/usr/bin/env python3
"""Starts replicas of `plateau serve`, a router and agents, breaks things while they work, and prints a table.

    tools/fleet/fleet.py                                    one replica, then 3 behind each router that is here
    tools/fleet/fleet.py --router nginx --fault restart@4   all replicas one after the other, from second 4 on
    tools/fleet/fleet.py --router envoy --fault kill@3:1    SIGKILL of replica 1; it starts again after 2 s
    tools/fleet/fleet.py --router nginx --fault freeze@3:0  SIGSTOP of replica 0 for 2 s
    tools/fleet/fleet.py --store --router nginx --fault restart@4   with a prefix cache that they share
    tools/fleet/fleet.py --checks                           also clients that leave, wrong requests, admin routes
    tools/fleet/fleet.py --device fake:0 --replicas 2       replicas on fake devices

A row compares a router with one replica that gets the same requests: tokens found in the prefix cache, and
answers that are the same. The exit status is 1 if a request without a fault's excuse was lost, an answer
differs or a check fails. Routers that are not in PATH or --routers are skipped."""

import argparse
import json
import pathlib
import re
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import agents  # noqa: E402
import checks  # noqa: E402
import replica  # noqa: E402
import routers  # noqa: E402


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--router", action="append", choices=routers.NAMES, help="may be given several times (all that are here)")
    p.add_argument("--routers", action="append", default=[], metavar="DIR", help="folder with programs of routers, such as VENV/bin")
    p.add_argument("--replicas", type=int, default=3)
    p.add_argument("--program", default=str(replica.TOP / "build/plateau"))
    p.add_argument("--model", default=str(replica.TOP / "models/canary"))
    p.add_argument("--device", help="as of `plateau serve`")
    p.add_argument("--serve", action="append", default=[], metavar="OPTION", help="one more option of `plateau serve`; may be repeated")
    p.add_argument("--fault", action="append", default=[], metavar="WHAT@SECOND[:REPLICA]", help="restart, kill or freeze; may be repeated")
    p.add_argument("--checks", action="store_true")
    p.add_argument("--store", action="store_true", help="--shared-cache in a new directory for each row")
    p.add_argument("--json", metavar="FILE", help="writes every turn there")
    for name, default in vars(agents.Load()).items():
        p.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default, help=f"of the agents ({default})") if name != "tools" else None
    return p.parse_args()


def faults(texts):
    """Returns (second, what, replica) of the faults, in their order."""
    found = []
    for text in texts:
        m = re.fullmatch(r"(restart|kill|freeze)@([\d.]+)(?::(\d+))?", text)
        if not m:
            sys.exit(f"--fault {text}: restart@SECOND, kill@SECOND:REPLICA or freeze@SECOND:REPLICA")
        found.append((float(m[2]), m[1], int(m[3] or 0)))
    return sorted(found)


def do(what, number, replicas):
    """Does one fault, to its end."""
    if what == "restart":
        for r in replicas:
            r.stop()
            r.start()
            time.sleep(3)  # the router's next probes see it
        return
    r = replicas[number]
    if what == "kill":
        r.kill()
        time.sleep(2)
        r.start()
    else:
        r.freeze()
        time.sleep(2)
        r.thaw()


def break_things(plan, replicas, traffic):
    """Does the faults at their times. Returns their thread."""
    def work():
        for second, what, number in plan:
            time.sleep(max(0.0, traffic.began + second - time.monotonic()))
            do(what, number, replicas)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


class Fleet:
    """Replicas and a router, from `with` to its end."""

    def __init__(self, name, options, folder):
        more = [*options.serve, "--drain-grace", "3", "--memory-limit", "2G"]
        more += ["--device", options.device, "--device-memory-limit", "1G"] if options.device else ["--threads", "1"]
        if options.store:
            (folder / "store").mkdir(mode=0o700)
            more += ["--shared-cache", f"file://{folder}/store"]
        count = 1 if name == "none" else options.replicas
        self.replicas = [replica.Replica(i, folder, more, options.program, options.model, "vllm-events" == name or "vllm-session" == name) for i in range(count)]
        self.router, self.name, self.folder, self.folders = None, name, folder, options.routers

    def __enter__(self):
        try:
            for r in self.replicas:
                r.start(wait=False)
            for r in self.replicas:
                r.wait_ready()
            self.router = routers.Router(self.name, self.replicas, self.folder, self.folders)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.router:
            self.router.close()
        for r in self.replicas:
            r.end()
        for r in self.replicas:
            r.stop()


def run_checks(fleet):
    """Prints what the checks find. Returns whether all held."""
    left = {stream: sorted(checks.leave(fleet.router.port, fleet.replicas, stream) for _ in range(5)) for stream in (True, False)}
    unlocked = checks.open_admin_routes(fleet.router.port)
    refused, answered = checks.after_wrong_requests(fleet.router.port)
    print(f"  a client leaves: idle after {left[True][2] * 1000:.0f} ms (stream), {left[False][2] * 1000:.0f} ms (none)")
    print(f"  wrong requests: {refused} of 36 get 400, then {answered} of 10 right ones are answered")
    print(f"  admin routes without a key: {', '.join(unlocked) or 'none answers'}")
    return max(left[True][2], left[False][2]) < 0.1 and not unlocked and answered == 10


def row(name, f, alone, seconds):
    share = f"{100 * f['rate'] / alone['rate']:.1f} %" if alone and alone["rate"] else "-"
    same = f"{f['same']} of {f['both']}" if "both" in f else "-"
    print(f"| {name} | {f['requests']} | {f['lost']} | {100 * f['rate']:.1f} % | {share} | {same} | "
          f"{1000 * f['p50']:.0f} ms | {1000 * f['p99']:.0f} ms | {seconds:.0f} s |", flush=True)


def main():
    options = arguments()
    plan = faults(options.fault)
    load = agents.Load(**{name: getattr(options, name) for name in vars(agents.Load()) if name != "tools"})
    names = ["none", *[n for n in options.router or routers.NAMES if n != "none"]]
    alone, compared, good, kept = None, None, True, {}
    print("| router | requests | lost | cached | of one replica's | same answers | first token p50 | p99 | took |\n|---|---|---|---|---|---|---|---|---|")
    for name in names:
        with tempfile.TemporaryDirectory(prefix="plateau-fleet-") as folder:
            try:
                with Fleet(name, options, pathlib.Path(folder)) as fleet:
                    traffic = agents.Traffic(load, fleet.router.port)
                    broken = break_things(plan if name != "none" else [], fleet.replicas, traffic)
                    turns = kept[name] = traffic.wait()
                    broken.join()
                    f = agents.figures(turns, compared)
                    row(name, f, alone, max(t.ended for t in turns) - traffic.began)
                    for t in [t for t in turns if t.error][:5]:
                        print(f"  lost: conversation {t.conversation}, turn {t.turn}, second {t.ended - traffic.began:.1f}: {t.error}")
                    excused = any(what == "kill" for _, what, _ in plan) and f["lost"] <= load.at_once
                    good &= (not f["lost"] or excused) and f.get("same") == f.get("both")
                    if options.checks and name != "none":
                        good &= run_checks(fleet)
            except FileNotFoundError as e:
                print(f"| {name} | skipped: {e} |")
        if name == "none":
            alone, compared = f, turns
        if options.json:
            told = {"replicas": options.replicas, "load": vars(load), "turns": {n: [vars(t) for t in ts] for n, ts in kept.items()}}
            pathlib.Path(options.json).write_text(json.dumps(told))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
