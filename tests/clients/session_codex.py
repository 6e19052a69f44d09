"""A session of Codex in three processes, each of which continues the one before. Its replies are scripted. A
catalog gives the model what Codex's own models have: the search for tools and patches."""

import json
import shutil
import subprocess
import sys
import time

from openai_codex import ApprovalMode, Codex, CodexConfig, Sandbox

from program_codex import command
from scripted import OTHER, SUMMARY, TURN, Script, call
from servers import ANSWER_S, TOP

WINDOW = 16384
OPTIONS = ["--max-model-len", WINDOW]
MUCH = call("exec_command", cmd="yes word | head -n 3200 | tr '\\n' ' '")
READ = call("exec_command", cmd="cat p.txt")


def kind_of(asked):
    if asked.path != "/v1/responses" or asked.body["input"][-1]["type"] == "compaction_trigger":
        return OTHER
    return SUMMARY if "CONTEXT CHECKPOINT" in json.dumps(asked.body["input"][-1]) else TURN if asked.body.get("tools") else OTHER


def settings(script, place, window=WINDOW, name="Plateau"):
    """Codex's files, and the environment in which it finds them. With a provider named "OpenAI" it leaves the
    summary to the server."""
    home = place.home / ".codex"
    home.mkdir(exist_ok=True)
    env = {**place.environ, "CODEX_HOME": str(home), "LOCAL_KEY": place.key}
    program = command()[0]
    catalog = json.loads(subprocess.run([program, "debug", "models"], env=env, cwd=place.home, capture_output=True, timeout=60, check=True).stdout)
    if (home / "catalog.json").exists():
        model = json.loads((home / "catalog.json").read_text())["models"][0]
    else:
        model = next(m for m in catalog["models"] if m["supports_search_tool"] and not m.get("tool_mode"))
    model.update(slug=place.model, display_name=place.model, context_window=window, max_context_window=window, upgrade=None,
                 base_instructions="You are a coding agent.", model_messages=None)
    (home / "catalog.json").write_text(json.dumps({"models": [model]}))
    (home / "config.toml").write_text(f"""model = "{place.model}"
model_provider = "plateau"
model_context_window = {window}
model_catalog_json = "{home}/catalog.json"
[model_providers.plateau]
name = "{name}"
base_url = "{script.url}/v1"
env_key = "LOCAL_KEY"
wire_api = "responses"
[mcp_servers.things]
command = "{sys.executable}"
args = ["{TOP}/tests/clients/things.py"]
""")
    return env


class Thread:
    """A conversation through Codex's own class."""

    def __init__(self, script, codex, place, session=None):
        where = dict(cwd=str(place.home), sandbox=Sandbox.full_access, approval_mode=ApprovalMode.deny_all)
        self.script = script
        self.thread = codex.thread_resume(session, **where) if session else codex.thread_start(**where)
        self.compactions = 0

    def follow(self, turn, is_time=lambda event: False):
        """Returns its items. Interrupts it once `is_time` holds of an event."""
        items, error = [], None
        for event in turn.stream():
            if event.method == "item/completed":
                items.append(event.payload.item.root)
            elif event.method == "error":
                error = event.payload.error
            elif event.method == "turn/completed":
                status = event.payload.turn.status.value
            if is_time(event):
                turn.interrupt()
                is_time = lambda _: False
        self.compactions += sum(i.type == "contextCompaction" for i in items)
        return items, error, status

    def turn(self, text, *replies):
        """Returns the items of its tools."""
        with self.script.turn(*replies):
            items, error, status = self.follow(self.thread.turn(text))
        assert (error, status) == (None, "completed"), (error, self.script.told(-5))
        assert items[-1].type == "agentMessage" and items[-1].text == replies[-1], items[-1]
        return [i for i in items if i.type not in ("userMessage", "agentMessage", "reasoning", "contextCompaction")]

    def interrupt(self, text, reply, is_time):
        with self.script.turn(reply):
            _, error, status = self.follow(self.thread.turn(text), is_time)
        assert (error, status) == (None, "interrupted")

    def overflow(self, text, *replies):
        """Codex says that there is no room. The next turn would say so again."""
        with self.script.turn(*replies):
            _, error, status = self.follow(self.thread.turn(text))
        assert status == "failed" and "ran out of room" in error.message

    def compact(self, kind):
        with self.script.turn():
            before = len(self.script.asked)
            self.thread.compact()
            end = time.monotonic() + ANSWER_S
            while not any(a.kind == kind and a.usage for a in self.script.asked[before:]):
                assert time.monotonic() < end, self.script.told(before)
                time.sleep(0.1)
            time.sleep(1)  # Codex replaces its history, and says so to no turn


def first(script, place):
    """Twenty turns: tools, patches, a search, interrupts, compactions. Returns the session's id."""
    shutil.copy(TOP / "tests/golden/data/canary-8bit/images/0.png", place.home / "shape.png")
    env = settings(script, place)
    patch = "*** Begin Patch\n*** Add File: p.txt\n+one\n+two\n*** End Patch"
    change = "*** Begin Patch\n*** Update File: p.txt\n@@\n one\n-two\n+three\n*** End Patch"
    with Codex(CodexConfig(env=env, cwd=str(place.home))) as codex:
        t = Thread(script, codex, place)
        t.turn("What does mkdir do?", "It makes a directory.")
        (ran,) = t.turn("Run it.", call("exec_command", cmd="echo made"), "It said made.")
        assert (ran.exit_code, ran.aggregated_output.strip()) == (0, "made")
        (changed,) = t.turn("Write a file.", call("apply_patch", input=patch), "Written.")
        assert changed.type == "fileChange" and changed.status.value == "completed"
        assert t.turn("Change it.", call("apply_patch", input=change), READ, "Changed.")[1].aggregated_output == "one\nthree\n"
        (failed,) = t.turn("Run what fails.", call("exec_command", cmd="exit 3"), "It failed.")
        assert failed.exit_code == 3
        assert len(t.turn("Both at once.", READ + "\n" + call("exec_command", cmd="echo right"), "Both ran.")) == 2
        found = t.turn("Count apples.", call("tool_search", query="count apples", limit=1), call("mcp__things__count_apples", much=7), "Seven.")
        assert [i.type for i in found] == ["mcpToolCall"] and found[0].arguments == {"much": 7} and "count_apples: 7" in str(found[0].result)
        assert t.turn("Look at the image.", call("view_image", path=f"{place.home}/shape.png"), "A shape.")[0].type == "imageView"
        t.turn("What is left?", "Nothing is left.")
        t.interrupt("Count for long.", "word " * 2500, lambda event: event.method == "item/agentMessage/delta")
        t.turn("Are you there?", "Here again.")
        t.interrupt("Wait for long.", call("exec_command", cmd="sleep 300", yield_time_ms=30000),
                    lambda event: event.method == "item/started" and event.payload.item.root.type == "commandExecution")
        t.turn("And now?", "Here once more.")
        t.compact(SUMMARY)
        t.turn("Where were we?", "A folder was made.")
        for i in range(3):
            t.turn(f"Say much, {i}.", MUCH, f"Said {i}.")
        t.turn("Is that all?", "That is all.")
        assert t.compactions > 0, script.told()
        t.turn("Still there?", "Still there.")
        return t.thread.id


def second(script, place, session):
    """Four turns, each in a process of its own."""
    env = settings(script, place)
    for text, *replies in ("Resumed?", "Resumed."), ("Run it again.", READ, "It has three."), ("Again.", READ, "Again."), ("Done?", "Done."):
        program, *_ = command()
        words = [program, "exec", "--dangerously-bypass-approvals-and-sandbox", "resume", session, "--skip-git-repo-check", "--json", "-"]
        with script.turn(*replies):
            ran = subprocess.run(words, input=text, text=True, capture_output=True, env=env, cwd=place.home, timeout=ANSWER_S)
        lines = [json.loads(line) for line in ran.stdout.splitlines()]
        assert ran.returncode == 0 and lines[-1]["type"] == "turn.completed", (ran.stdout, ran.stderr)
        assert not [s for s in lines if s["type"] in ("error", "turn.failed") or s.get("item", {}).get("type") == "error"], lines
        assert [s["item"]["text"] for s in lines if s.get("item", {}).get("type") == "agent_message"] == replies[-1:]


def third(script, place, session):
    """Six turns of a process that believes in a larger context, with the server's own summary."""
    env = settings(script, place, window=1_000_000, name="OpenAI")
    with Codex(CodexConfig(env=env, cwd=str(place.home))) as codex:
        t = Thread(script, codex, place, session)
        t.turn("Say much.", MUCH, "Said.")
        t.turn("Say much again.", MUCH, "Said again.")
        t.overflow("Once more.", MUCH)
        t.compact(OTHER)
        t.turn("Still there?", "Still there.")
        t.turn("Run it a last time.", READ, "It has three still.")


def run(server, place):
    with Script(server, kind_of) as script:
        session = first(script, place)
        second(script, place, session)
        third(script, place, session)
        script.check(30, overflows=1, left=1)
        return script
