"""Manual pages and completions know every option of every command; what an installation holds."""

import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("PLATEAU_PROGRAM", str(ROOT / "build" / "plateau"))
BUILD = pathlib.Path(PROGRAM).parent


def run(*arguments, status=0):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PLATEAU_")}
    got = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=30, env=env)
    assert got.returncode == status, got.stderr
    return got.stdout


COMMANDS = run("manual", "--names").split()


def flags(command):
    found = re.findall(r"^  --([a-z-]+)", run(command, "--help-all"), re.M)
    assert {"help", "help-all"} <= set(found)
    return set(found)


def test_the_names_are_those_of_the_help():
    assert COMMANDS == re.findall(r"^  ([a-z]+) ", run("--help").split("Usage:")[1].split("Examples:")[0], re.M)


def test_the_documented_list_is_that_of_the_help():
    said = run("--help").split("[ARGUMENT...]")[1].split("Examples:")[0]
    page = (ROOT / "docs/command-line.md").read_text().split("[ARGUMENT...]\n")[1].split("\n`plateau --version`")[0]
    assert page.split() == said.split() and re.sub("(?m)^    ", "", page).strip() == said.strip()


@pytest.mark.parametrize("command", COMMANDS)
def test_the_manual_has_every_option(command):
    page = run("manual", command)
    found = {x.replace("\\-", "-") for x in re.findall(r"^\.TP\n\\fB\\-\\-([a-z\\-]+)\\fR", page, re.M)}
    assert found == flags(command)
    assert f"plateau\\-{command}" in run("manual")


def test_the_page_of_the_file_has_every_setting_of_a_server():
    page = run("manual", "ini")
    found = {x.replace("\\-", "-") for x in re.findall(r"^\.TP\n\\fB([a-z\\-]+)\\fR", page, re.M)}
    assert flags("serve") - {"help", "help-all"} <= found
    assert {"min-p", "chat-template-kwargs"} <= found, "those of a section, too"


@pytest.mark.skipif(not shutil.which("man"), reason="there is no man")
@pytest.mark.parametrize("page", [[], ["ini"], ["serve"], ["chat"]])
def test_man_has_no_warnings(page, tmp_path):
    path = tmp_path / "page.1"
    path.write_text(run("manual", *page))
    got = subprocess.run(["man", "--warnings", "-l", path], capture_output=True, text=True, timeout=30,
                         env={**os.environ, "MANWIDTH": "80", "LC_ALL": "C.UTF-8"})
    if "minimized" in got.stdout or "not been installed" in got.stderr:
        pytest.skip("this man shows no pages")
    assert got.returncode == 0 and got.stderr == "" and "NAME" in got.stdout


def completed(*words):
    """Returns bash's completions of the last word."""
    line = " ".join(f"'{w}'" for w in words)
    script = f'source <("{PROGRAM}" completion bash); COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _plateau; printf "%s\\n" "${{COMPREPLY[@]}}"'
    got = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=30, cwd=ROOT)
    assert got.returncode == 0 and got.stderr == ""
    return set(got.stdout.split())


def test_bash_completes_every_command_and_option():
    assert completed("plateau", "") == {*COMMANDS, "--help", "--version"}
    for command in COMMANDS:
        if command != "completion":
            assert completed("plateau", command, "--") == {"--" + f for f in flags(command)}


def test_bash_completes_values_and_files():
    assert completed("plateau", "serve", "--spec", "m") == {"mtp"}
    assert "LICENSE" in completed("plateau", "serve", "--config", "LIC")
    assert completed("plateau", "serve", "--port", "") == set()
    assert completed("plateau", "completion", "z") == {"zsh"}
    assert "models" in completed("plateau", "chat", "mod")


def test_zsh_and_fish_have_every_option():
    zsh, fish = run("completion", "zsh"), run("completion", "fish")
    for command in COMMANDS:
        part = zsh.split(f"        {command}) shift")[1].split(";;")[0]
        assert set(re.findall(r"^ +'\*?--([a-z-]+)=?\[", part, re.M)) == flags(command)
        assert set(re.findall(rf"seen_subcommand_from {command}' -l ([a-z-]+)", fish)) == flags(command)
    for shell, text in (("zsh", zsh), ("fish", fish)):
        if shutil.which(shell):
            assert subprocess.run([shell, "-n"], input=text, text=True, capture_output=True, timeout=30).returncode == 0


@pytest.mark.parametrize("arguments", [["completion"], ["completion", "tcsh"], ["manual", "serv"]])
def test_mistakes(arguments):
    run(*arguments, status=2)


@pytest.mark.skipif(not (BUILD / "cmake_install.cmake").exists(), reason="the program is not in its build folder")
@pytest.mark.parametrize("prefix, ini", [("/usr/local", "usr/local/share/plateau/systemd/plateau.ini"), ("/usr", "etc/plateau/plateau.ini")])
def test_an_installation(tmp_path, prefix, ini):
    got = subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], capture_output=True, text=True, timeout=60,
                         env={**os.environ, "DESTDIR": str(tmp_path)})
    assert got.returncode == 0, got.stderr
    top = tmp_path / prefix[1:]
    assert (tmp_path / ini).read_text() == (ROOT / "packaging/systemd/plateau.ini").read_text()
    assert f"ExecStart={prefix}/bin/plateau serve" in (top / "lib/systemd/system/plateau.service").read_text()
    assert {p.name for p in (top / "share/plateau/systemd").iterdir()} >= {"plateau.env", "notify-reload.conf", "gpu.conf"}
    pages = {p.name for p in (top / "share/man/man1").iterdir()}
    assert pages == {"plateau.1.gz", *(f"plateau-{c}.1.gz" for c in COMMANDS)}
    assert gzip.decompress((top / "share/man/man5/plateau.ini.5.gz").read_bytes()).decode() == run("manual", "ini")
    assert (top / "share/bash-completion/completions/plateau").read_text() == run("completion", "bash")
    answer = subprocess.run([top / "bin/plateau", "generate", "--temperature", "0", "What does ls do?"], capture_output=True, text=True, timeout=60)
    assert answer.stdout == "ls(1) - list directory contents.\n", answer.stderr


# --- Prometheus and Grafana ---


def alerts():
    """name: (expressions, minutes), as docs/operations.md has them."""
    table = (ROOT / "docs/operations.md").read_text().split("| expression | meaning | name |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| (.+?) \| .+? \| `(\w+)` \|$", table, re.M)
    return {name: (" or ".join(re.findall("`([^`]+)`", text)), re.findall(r"for (\d+) min", text)) for text, name in rows}


def test_the_rules_are_the_alerts_of_the_document():
    text = (ROOT / "packaging/prometheus/plateau.rules.yml").read_text()
    rules = {}
    for part in text.split("- alert: ")[1:]:
        name = re.search(r"attention: (\w+)", part)[1]
        rules[name] = (re.search(r"expr: (.*)", part)[1], re.findall(r"for: (\d+)m", part))
    assert rules == alerts()


def test_every_series_of_the_board_and_the_rules_is_in_the_list():
    metrics = (ROOT / "docs/metrics.md").read_text()
    known = set(re.findall(r"`((?:vllm:|plateau_|process_)[a-z_]+)", metrics))
    board = json.loads((ROOT / "packaging/grafana/plateau.json").read_text())
    expressions = [t["expr"] for p in board["panels"] for t in p["targets"]] + [e for e, _ in alerts().values()]
    asked = {name for e in expressions for name in re.findall(r"(?:vllm:|plateau_|process_)[a-z_]+", e)}
    assert len(asked) > 20
    assert {re.sub("_bucket$", "", name) for name in asked} <= known
    assert len({p["id"] for p in board["panels"]}) == len(board["panels"])


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")
def test_promtool_takes_the_rules_and_the_metrics(server):
    rules = ROOT / "packaging/prometheus/plateau.rules.yml"
    got = subprocess.run(["promtool", "check", "rules", rules], capture_output=True, text=True, timeout=60)
    assert got.returncode == 0 and f"{len(alerts())} rules found" in got.stdout, got.stderr
    server.complete("a", max_tokens=2)
    got = subprocess.run(["promtool", "check", "metrics"], input=server.http.get("/metrics").text, capture_output=True, text=True, timeout=60)
    # vLLM's names have a colon, which dashboards of vLLM read.
    complaints = [line for line in got.stderr.splitlines() if not re.match(r"vllm:\w+ metric names should not contain ':'$", line)]
    assert complaints == []


# --- completions in real shells ---


@pytest.fixture
def on_path(tmp_path):
    (tmp_path / "plateau").symlink_to(PROGRAM)
    return {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path), "TERM": "dumb"}


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
def test_fish_completes(on_path):
    def offered(line):
        script = f"plateau completion fish | source; complete -C '{line}'"
        got = subprocess.run(["fish", "--no-config", "-c", script], capture_output=True, text=True, timeout=60, env=on_path)
        assert got.returncode == 0, got.stderr
        return {word.split("\t")[0] for word in got.stdout.splitlines()}

    assert offered("plateau ser") == {"serve"}
    assert offered("plateau serve --max-num") == {"--max-num-seqs"}
    assert {"mtp", "ngram"} <= offered("plateau serve --spec ")


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_zsh_completes(on_path, tmp_path):
    """A zsh at a terminal; the line after the tab is printed by a widget."""
    script = tmp_path / "script"
    script.write_text("""
zmodload zsh/zpty
start() {
    zpty shell zsh -f -i
    zpty -w shell "PROMPT=; autoload -U compinit; compinit -u -D; source <(plateau completion zsh)"
    zpty -w shell 'shown() { print -r -- "<$BUFFER>"; zle kill-whole-line }; zle -N shown; bindkey "^X" shown; print begun'
    zpty -r -m shell x '*begun*begun*'
}
start
for line in "plateau ser" "plateau serve --max-num" "plateau serve --spec ng"; do
    zpty -w -n shell "$line"$'\\t'
    zpty -w -n shell $'\\x18'
    zpty -r -m shell answer '*<*>*'
    print -r -- "$answer"
done
zpty -d shell
""")
    got = subprocess.run(["zsh", "-f", script], capture_output=True, text=True, timeout=120, env=on_path)
    found = [x.strip() for x in re.findall(r"<([^<>]*)>", got.stdout)]
    assert found == ["plateau serve", "plateau serve --max-num-seqs=", "plateau serve --spec ngram"], got.stdout + got.stderr
