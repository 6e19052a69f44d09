"""A session of Claude Code in three processes, each of which continues the one before. Its replies are
scripted."""

import json
import queue
import shutil
import subprocess
import sys
import threading
import time

from program_claude_code import command, env
from scripted import OTHER, SUMMARY, TURN, Script, call
from servers import ANSWER_S, TOP

OPTIONS = []
WINDOW = 45056  # it keeps 16,000 tokens free, and compacts before: none of these prompts has more than 29,000
LONG_TEXT = "Look at this: " + "word " * 6400
ALLOWED = "Bash,Read,Write,Edit,Glob,Grep,ToolSearch,mcp__things__count_apples"
# Errors of a session: a result that is one, and the server's statuses, which it repeats.
BAD = ("api_error", "api_retry")


def kind_of(asked):
    if asked.path != "/v1/messages" or not asked.body.get("tools"):
        return OTHER
    said = asked.body["messages"][-1]["content"]
    text = said if isinstance(said, str) else " ".join(b.get("text", "") for b in said)
    return SUMMARY if "Respond with TEXT ONLY" in text else TURN


class Claude:
    """One process. It reads and writes lines of JSON."""

    def __init__(self, script, place, *words, window=WINDOW):
        tools = {"things": {"command": sys.executable, "args": [str(TOP / "tests/clients/things.py")]}}
        (place.home / "mcp.json").write_text(json.dumps({"mcpServers": tools}))
        words = ("--input-format", "stream-json", "--allowedTools", ALLOWED, "--strict-mcp-config", "--mcp-config", "mcp.json", *words)
        place.url = script.url
        self.script, self.place, self.lines = script, place, queue.Queue()
        self.process = subprocess.Popen([str(c) for c in command(*words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        stderr=open(place.home / "errors", "w"), cwd=place.home, start_new_session=True,
                                        env={**place.environ, **env(place, window=window, tokens=3000)})
        threading.Thread(target=self.read, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, failed, *_):
        if failed:
            return self.process.kill()
        self.process.stdin.close()
        assert self.process.wait(60) == 0, (self.place.home / "errors").read_text()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(json.loads(line))
        self.lines.put({"type": "end"})

    def send(self, **line):
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()

    def until(self, is_last):
        came = []
        while not came or not is_last(came[-1]):
            came.append(self.lines.get(timeout=ANSWER_S))
            assert came[-1]["type"] != "end", (came[-3:], (self.place.home / "errors").read_text())
        return came

    def ask(self, text):
        self.send(type="user", message={"role": "user", "content": text})

    def turn(self, text, *replies, errors=0):
        """Returns the results of its tools, `errors` of which are errors, and the session's id."""
        with self.script.turn(*replies):
            self.ask(text)
            came = self.until(lambda line: line["type"] == "result")
        last = came[-1]
        assert last["subtype"] == "success" and not last["is_error"], (last, self.script.told(-5))
        assert not [line for line in came if line.get("subtype") in BAD]
        results = [b for line in came if line["type"] == "user" and isinstance(line["message"]["content"], list)
                   for b in line["message"]["content"] if b["type"] == "tool_result"]
        assert sum(bool(r.get("is_error")) for r in results) == errors, results
        if replies:
            assert text.startswith("/") or last["result"] == replies[-1], last
        self.boundaries = [line["compact_metadata"]["trigger"] for line in came if line.get("subtype") == "compact_boundary"]
        return [json.dumps(r["content"]) for r in results], last["session_id"]

    def interrupt(self, text, reply, is_time):
        """Asks, and interrupts once `is_time` holds of a line."""
        with self.script.turn(reply):
            self.ask(text)
            self.until(is_time)
            time.sleep(1)  # until its tool runs
            self.send(type="control_request", request_id="i", request={"subtype": "interrupt"})
            *_, last = self.until(lambda line: line["type"] == "result")
        assert last["subtype"] == "error_during_execution"


def is_text(line):
    event = line.get("event", {})
    return event.get("type") == "content_block_delta" and event["delta"]["type"] == "text_delta"


def first(script, place):
    """Seventeen turns: tools, searches, interrupts, a compaction. Returns the session's id."""
    home = place.home
    shutil.copy(TOP / "tests/golden/data/canary-8bit/images/0.png", home / "shape.png")
    write = call("Write", file_path=f"{home}/b.txt", content="one\ntwo\n")
    with Claude(script, place) as c:
        c.turn("What does mkdir do?", "It makes a directory.")
        assert "made" in c.turn("Run it.", call("Bash", command="echo made", description="Says it"), "It said made.")[0][0]
        c.turn("Write a file and read it.", write, call("Read", file_path=f"{home}/b.txt"), "Two lines.")
        c.turn("Edit it.", call("Edit", file_path=f"{home}/b.txt", old_string="two", new_string="three"), "Edited.")
        assert (home / "b.txt").read_text() == "one\nthree\n"
        assert "b.txt" in c.turn("Look for it.", call("Glob", pattern="*.txt"), call("Grep", pattern="three", path=str(home)), "Found.")[0][1]
        c.turn("Run what fails.", call("Bash", command="exit 3", description="Fails"), "It failed.", errors=1)
        both = call("Bash", command="echo left", description="Says it") + "\n" + call("Bash", command="echo right", description="Says it")
        assert len(c.turn("Both at once.", both, "Both ran.")[0]) == 2
        c.turn("Look at the image.", call("Read", file_path=f"{home}/shape.png"), "A shape.")
        assert "WebFetch" in c.turn("Find a tool.", call("ToolSearch", query="select:WebFetch", max_results=2), "Found.")[0][0]
        found, _ = c.turn("Count apples.", call("ToolSearch", query="select:mcp__things__count_apples", max_results=2),
                          call("mcp__things__count_apples", much=7), "Seven.")
        assert "count_apples: 7" in found[1]
        c.turn("What is left?", "Nothing is left.")
        c.interrupt("Count for long.", "word " * 2500, is_text)
        c.turn("Are you there?", "Here again.")
        wait = call("Bash", command="tail -f /dev/null", description="Waits")
        c.interrupt("Wait for long.", wait, lambda line: line.get("event", {}).get("type") == "message_stop")
        c.turn("And now?", "Here once more.")
        c.turn("/compact")
        assert c.boundaries == ["manual"]
        return c.turn("Where were we?", "A folder was made.")[1]


def second(script, place, session):
    """Seven turns of a process that has the session's file alone."""
    with Claude(script, place, "--resume", session) as c:
        for i in range(4):
            c.turn(f"Question {i}?", f"Answer {i}.")
        c.turn("Run it again.", call("Bash", command="cat b.txt", description="Reads"), "It has three.")
        c.turn("Search again.", call("ToolSearch", query="select:WebSearch", max_results=2), "Found again.")
        c.turn("Is that all?", "That is all.")


def third(script, place, session):
    """Six turns of a process that believes in a larger context: the server's error has it compact."""
    with Claude(script, place, "--resume", session, window=1_000_000) as c:
        c.turn(LONG_TEXT, "I looked.")
        c.turn(LONG_TEXT, "I looked again.")
        c.turn(LONG_TEXT, "I looked a third time.")
        assert c.boundaries == ["auto"]
        c.turn("Still there?", "Still there.")
        c.turn("Run it a last time.", call("Bash", command="cat b.txt", description="Reads"), "It has three still.")
        c.turn("Thanks.", "You are welcome.")


def run(server, place):
    with Script(server, kind_of) as script:
        session = first(script, place)
        second(script, place, session)
        third(script, place, session)
        script.check(30, overflows=1, left=1)
        return script
