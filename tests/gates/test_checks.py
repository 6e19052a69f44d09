"""Findings of the checks of sources, objects and documents (tools/check-asserts, tools/check-objects,
tools/check-prose, tools/check-commands), which commit a build has (tools/source-commit), and which tests an
edit changed (tools/changed-tests)."""

import importlib.machinery
import importlib.util
import pathlib
import re
import shutil
import subprocess

import pytest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"


def load(name):
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), str(TOOLS / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def asserts():
    return load("check-asserts")


@pytest.fixture(scope="module")
def objects():
    return load("check-objects")


@pytest.fixture(scope="module")
def prose():
    return load("check-prose")


SOURCE = """
/* ASSERT(in a comment) */
#define ASSERT_ROW(c) \\
    ASSERT(c)
static int one(int a)
{
    ASSERT(a > 0);
    return a;
}

void two(void)
{
    ASSERT_ROW(one(1));
    struct x y = {
        0};
}

void three(void)
{
}
"""


def test_assertions_per_function_are_counted_and_may_not_fall(asserts, tmp_path, capsys):
    (tmp_path / "src/cache").mkdir(parents=True)
    (tmp_path / "src/cache/a.c").write_text(SOURCE)
    assert asserts.count(tmp_path / "src/cache") == (3, 2)
    assert asserts.main(tmp_path, {"cache": 0.6}) == 0 and capsys.readouterr().out == ""
    assert asserts.main(tmp_path, {"cache": 0.8}) == 1
    assert "src/cache: 0.667 assertions per function, 0.8 is the least: 1 more" in capsys.readouterr().out
    assert asserts.main(tmp_path, {"cache": 0.5}) == 0 and "raise its floor" in capsys.readouterr().out
    assert asserts.main(tmp_path, {"cache": 0.6, "gone": 1}) == 1


COMMENTS = """/* Of a page, in bytes. */
int a; /* bytes of the file */
/*
 * The same for two. */
int b; /* of the file */
/* As `f()`, but twice. */
/* ---- what it costs ---- */
char *text = "/* Of a literal */"; // Likewise
/* Office hours. */
"""


def test_comments_that_cannot_be_read_alone_are_refused(prose, capsys):
    found = prose.dependent_comments("a.c", COMMENTS)
    assert [t.line for t in found] == [1, 3, 5, 7, 8]
    group = prose.Group()
    group.dependent = found
    assert prose.check({"src/a": group}, []) == 1
    assert "src/a: 5.0 comments that cannot be read alone, the limit is 0" in capsys.readouterr().out
    group.dependent = []
    assert prose.check({"src/a": group}, []) == 0 and capsys.readouterr().out.strip() == ""


def test_comments_of_python_and_shell_are_read_as_well(prose):
    python = '"""What it does."""\nA = 1  # of one\nB = 2  # bytes\n# A line\n# of two.\nf("""of""")\n'
    assert [t.line for t in prose.dependent_comments("a.py", python)] == [1, 2]
    shell = "#!/bin/sh\n# The same.\ntrue\n# Words\n# of a run.\n"
    assert [t.line for t in prose.dependent_comments("tools/a", shell)] == [2]


DISASSEMBLY = """
plain.c.o:     file format elf64-x86-64
0000000000000000 <quiet>:
   0:\tverr   %ax
   5:\tmovaps %xmm0,%xmm1
0000000000000010 <loud>:
  10:\tvaddps %zmm1,%zmm2,%zmm3{%k1}
  15:\tvaddss %xmm1,%xmm2,%xmm3
  20:\tkmovw  %k2,%eax
tier.c.o:     file format elf64-x86-64
0000000000000000 <tier>:
   0:\tvaddps %ymm1,%ymm2,%ymm3
""".splitlines()


def test_registers_are_found_where_they_do_not_belong(objects):
    found = objects.registers_of(DISASSEMBLY)
    assert found == {("plain", "zmm"): "loud", ("plain", "vex"): "loud", ("plain", "k"): "loud", ("tier", "ymm"): "tier"}
    problems = list(objects.check_registers(found, {"tier": {"ymm"}}))
    assert len(problems) == 3 and all(p.startswith("plain: ") and "in loud" in p for p in problems)
    assert any("listed" in p for p in objects.check_registers({}, {"tier": {"ymm"}}))


NM = """
a.c.o:
                 U b_open
                 U malloc
0000000000000000 T a_open
0000000000000000 t hidden
"""


def test_references_between_folders_are_those_that_are_declared(objects):
    defined, wanted, functions = objects.symbols_of(NM)
    assert defined == {"a_open": "a"} and wanted == [("a", "b_open"), ("a", "malloc")] and functions == {"a_open"}
    upwards = {"high": ({"b_open"}, [], set()), "low": (defined, wanted, functions)}
    assert list(objects.check_links(upwards, {"low": {"high"}})) == []
    assert list(objects.check_links(upwards, {})) == [
        "src/low/a: refers to b_open of src/high, which its plateau_layer line does not allow"]


def test_a_circle_between_folders_is_named(objects):
    circle = {"a": ({"x"}, [("o", "y")], set()), "b": ({"y"}, [("o", "z")], set()), "c": ({"z"}, [("o", "x")], set())}
    problems = list(objects.check_links(circle, {"a": {"b"}, "b": {"c"}, "c": {"a"}}))
    assert problems == ["a circle between folders: a -> b -> c -> a"]


def test_a_circle_between_files_is_named(objects, monkeypatch):
    monkeypatch.setattr(objects, "CIRCLES", {"text"})
    symbols = ({"x": "one", "y": "two"}, [("one", "y"), ("two", "x"), ("three", "x")], set())
    straight = ({"x": "one", "y": "two"}, [("one", "y"), ("three", "x"), ("one", "x")], set())
    assert list(objects.check_files({"api": symbols, "base": straight, "text": symbols})) == [
        "src/api: a circle between files: one -> two -> one"]
    assert list(objects.check_files({"text": straight})) == [
        "src/text: listed in CIRCLES of tools/check-objects, and has no circle"]


def test_a_function_is_named_after_its_file_or_folder(objects):
    names = ["command_plan", "plan_words", "cli_begin", "model_words"]
    assert list(objects.check_names({"cli": ({n: "plan_command" for n in names}, [], set(names)), "memory": ({"account_x": "ledger"}, [], {"account_x"})})) == [
        "src/cli/plan_command: model_words begins with no word of its file's or folder's name"]


def test_a_build_has_the_commit_of_its_checkout_and_says_what_differs(tmp_path):
    def git(*words):
        return subprocess.run(["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True, capture_output=True, text=True).stdout

    def commit():
        subprocess.run([tmp_path / "tools/source-commit", header], check=True)
        return re.fullmatch(r'#define PLATEAU_COMMIT "(.*)"\n', header.read_text())[1]

    header = tmp_path / "commit.h"
    (tmp_path / "tools").mkdir()
    shutil.copy(TOOLS / "source-commit", tmp_path / "tools")
    assert commit() == "", "an archive has none"
    git("init", "-q")
    assert commit() == "", "no commit is there yet"
    git("add", "tools")
    git("commit", "-qm", "first")
    first = git("rev-parse", "--short=10", "HEAD").strip()
    assert commit() == f"commit {first}, ", "a file that git does not know changes nothing"
    before = header.stat().st_mtime_ns
    assert commit() and header.stat().st_mtime_ns == before, "a file that is right already stays untouched"
    (tmp_path / "tools/more").write_text("")
    git("add", "tools/more")
    assert commit() == f"commit {first}-dirty, "
    git("commit", "-qm", "second")
    assert commit() not in ("", f"commit {first}, ") and "dirty" not in commit()
    (tmp_path / "below/tools").mkdir(parents=True)
    shutil.copy(TOOLS / "source-commit", tmp_path / "below/tools")
    subprocess.run([tmp_path / "below/tools/source-commit", header], check=True)
    assert "commit" not in header.read_text().lower().replace("plateau_commit", ""), "the checkout above is another"


def test_a_document_calls_only_programs_that_a_reader_can_have(tmp_path, capsys):
    check = load("check-commands")
    page = tmp_path / "page.md"
    page.write_text("""Text.

    ./run --port 9 | pv     # starts it
    KEY=x curl -H "key: $(jq .key keys.json)" http://127.0.0.1/ \\
      -d '{"a": "b; c | d"}' && sudo frobnicate

Text.

    model = "no command"

```sh
make deb
```
""")
    assert len(list(check.commands(page))) == 3
    assert check.main([page], {"curl"}) == 1
    said = capsys.readouterr().out
    assert [line.split(":")[1].strip() for line in said.splitlines()] == ["pv", "frobnicate", "jq", "make"]
    assert "page.md: make: tools/packages lists no make" in said
    page.write_text("    ./run\n    curl -s x\n")
    assert check.main([page], {"curl"}) == 0 and capsys.readouterr().out == ""


TWO_TESTS = """
cmake_minimum_required(VERSION 3.25)
project(two NONE)
enable_testing()
add_test(NAME one COMMAND ${CMAKE_SOURCE_DIR}/one.sh)
add_test(NAME two COMMAND ${CMAKE_SOURCE_DIR}/two.sh argument)
"""


def write_program(path, lines):
    path.write_text("#!/bin/sh\n" + lines)
    path.chmod(0o755)


def changed_tests(place, *options):
    command = [TOOLS / "changed-tests", *options, place / "build"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_tests_run_until_they_pass_and_again_once_they_change(tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(TWO_TESTS)
    write_program(tmp_path / "one.sh", "exit 0")
    write_program(tmp_path / "two.sh", "exit 1")
    subprocess.run(["cmake", "-S", tmp_path, "-B", tmp_path / "build"], check=True, capture_output=True)

    assert changed_tests(tmp_path, "--list").stdout == "one\ntwo\n"
    ran = changed_tests(tmp_path)
    assert ran.returncode != 0 and "2 of 2 tests had changed" in ran.stdout
    assert changed_tests(tmp_path, "--list").stdout == "two\n"

    write_program(tmp_path / "two.sh", "exit 0 # now")
    assert changed_tests(tmp_path).returncode == 0
    ran = changed_tests(tmp_path)
    assert ran.returncode == 0 and "0 of 2 tests had changed" in ran.stdout

    write_program(tmp_path / "one.sh", "exit 0 # again")
    assert changed_tests(tmp_path, "--list").stdout == "one\n"
    changed_tests(tmp_path, "--passed")
    assert changed_tests(tmp_path, "--list").stdout == ""


A_LONG_TEST = """
cmake_minimum_required(VERSION 3.25)
project(long NONE)
enable_testing()
add_test(NAME one COMMAND ${CMAKE_SOURCE_DIR}/one.sh)
set_tests_properties(one PROPERTIES LABELS long REQUIRED_FILES ${CMAKE_SOURCE_DIR}/one.c)
"""


def test_a_quick_run_has_a_long_test_only_if_its_own_source_changed(tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(A_LONG_TEST)
    (tmp_path / "one.c").write_text("1")
    write_program(tmp_path / "one.sh", "exit 0")
    subprocess.run(["cmake", "-S", tmp_path, "-B", tmp_path / "build"], check=True, capture_output=True)
    assert "1 of 1 tests had changed" in changed_tests(tmp_path, "--quick").stdout

    write_program(tmp_path / "one.sh", "exit 0 # a library changed")
    for _ in range(2):
        ran = changed_tests(tmp_path, "--quick").stdout
        assert "left for ./test release: one\n" in ran and "0 of 1 tests had changed" in ran
        assert changed_tests(tmp_path, "--list").stdout == "one\n"

    (tmp_path / "one.c").write_text("2")
    assert "1 of 1 tests had changed" in changed_tests(tmp_path, "--quick").stdout
    assert changed_tests(tmp_path, "--list").stdout == ""
