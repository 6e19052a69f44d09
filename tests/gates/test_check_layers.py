"""tools/check-layers finds each kind of fault in a small tree, and none in a tree without one."""

import pathlib
import subprocess

import pytest

CHECK = pathlib.Path(__file__).resolve().parents[2] / "tools/check-layers"

TREE = {
    "CMakeLists.txt": "plateau_layer(base)\nplateau_layer(cache base)\nplateau_layer(model base)\n",
    "docs/layers.md": "# The layers\n\n    base/   what all use\n    cache/  pages\n    model/  formulas\n",
    "docs/architecture.md": "# Map\n\nThere are 1 mutexes. `src/base/run.c` starts threads.\n\n"
    "| 1 | `box.lock` | `src/base/box.h` |\n",
    "src/model/README.md": "# Contract\n\n## 2 Models\n\n### 2.7 One layer\n",
    "src/base/box.h": "/* box.h - see run.c (contract 2.7), docs/layers.md#the-layers. */\n"
    "struct box {\n    pthread_mutex_t lock;\n};\n",
    "src/base/run.c": '#include "base/box.h"\nint run(struct box *b)\n{\n    return thread_stack_start(b);\n}\n',
    "src/cache/page.c": '#include "base/box.h"\n/* rule C1 */\nstruct box *all;\nconst char *text = "contract 9.9";\n',
    "src/cache/README.md": "# cache\n\n**C1** A page is free or not. Tested: `test_page` `a_page_is_free`.\n",
    "tests/test_page.c": "TEST(a_page_is_free)\n",
}


def check(tmp_path, changes):
    for name, text in {**TREE, **changes}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    ran = subprocess.run([CHECK, tmp_path], capture_output=True, text=True, timeout=60)
    assert ran.returncode == (1 if ran.stdout else 0) and ran.stderr == ""
    return ran.stdout


def test_a_whole_tree_passes(tmp_path):
    assert check(tmp_path, {}) == ""


def test_a_hidden_folder_is_not_read(tmp_path):
    assert check(tmp_path, {"tests/api/.pytest_cache/README.md": "See docs/gone.md.\n"}) == ""


@pytest.mark.parametrize(
    "name, text, said",
    [
        ("docs/layers.md", TREE["docs/layers.md"] + "    gpu/  none\n", "src/gpu does not exist"),
        ("src/web/page.c", "int x;\n", "src/web: is not listed in docs/layers.md"),
        ("CMakeLists.txt", "plateau_layer(base)\n", "cache has no plateau_layer line"),
        ("CMakeLists.txt", "plateau_layer(base cache)\nplateau_layer(cache)\n", "uses cache, which is not declared before"),
        ("src/base/up.c", '#include "cache/page.h"\n', "src/base includes cache, but declares only: nothing"),
        ("src/cache/page.c", '#include "base/box.h"\n/* a box */\nint x;\n', "no name of base/box.h is used"),
        ("src/cache/page.c", "/* as contract 2.7, 2.8 says */\n", "page.c:1: contract 2.8:"),
        ("src/cache/page.c", "int x; // rule C2\n", "rule C2: no README.md in src/ has it"),
        ("src/cache/page.c", "/* from\n * gone.h */\n", "page.c:2: gone.h: there is no such file"),
        ("src/cache/page.c", "/* (MEMO 5) and (PAPER 5.1) */\n", "PAPER 5.1: there is no document of that name"),
        ("bench/run.py", "# see docs/gone.md\n", "bench/run.py:1: docs/gone.md: there is no such file"),
        ("docs/layers.md", TREE["docs/layers.md"] + "[x](architecture.md#no)\n", "has no such heading"),
        ("docs/layers.md", TREE["docs/layers.md"] + "[x](gone.md)\n", "gone.md: there is no such file"),
        ("src/cache/lock.h", "struct s {\n    pthread_mutex_t lock, big;\n};\n", "does not list the mutex big"),
        ("src/cache/page.c", "/* old.c - what is a page. */\n", "page.c:1: the file calls itself old.c"),
        ("src/base/box.h", "struct box;\n", "1 mutexes are said, 0 are there"),
        ("src/cache/box.h", "struct other;\n", "src/cache/box.h: src/base/box.h has this name, too"),
        ("src/cache/run.c", "int r = pthread_create(0);\n", "src/cache/run.c: starts a thread"),
        ("src/cache/README.md", "**C1** Nothing shows this.\n", "C1 says neither what asserts nor what tests"),
        ("src/cache/README.md", "**C2** Skipped. Asserted: `run`.\n", "rule C2 where C1 is expected"),
        ("src/cache/README.md", "**C1** Wrong. Asserted: `gone`.\n", "C1 cites gone"),
        ("src/cache/README.md", "**C1** Wrong. Tested: `test_page` `box`.\n", "C1 cites box"),
        ("tests/test_page.c", "/* not a_page_is_free */\nTEST(another)\n", "C1 cites a_page_is_free"),
    ],
)
def test_a_fault_is_named(tmp_path, name, text, said):
    assert said in check(tmp_path, {name: text})


def test_reach_is_bounded(tmp_path):
    layers = {"CMakeLists.txt": "plateau_layer(base)\nplateau_layer(kernel base)\nplateau_layer(cache base)\n"
              "plateau_layer(model base)\nplateau_layer(api base kernel)\n",
              "docs/layers.md": TREE["docs/layers.md"] + "    kernel/  sums\n    api/    requests\n",
              "src/kernel/sum.h": "struct sum;\n"}
    user = '#include "kernel/sum.h"\nstruct sum *s;\n'
    assert check(tmp_path, {**layers, "src/api/a.c": user}) == (
        "src/api/a.c: reaches kernel/sum.h, which its folder must not\n")
    headers = {f"src/base/h{i}.h": f"struct h{i};\n" for i in range(71)}
    uses = "".join(f'#include "base/h{i}.h"\nstruct h{i} *p{i};\n' for i in range(71))
    said = check(tmp_path, {**layers, **headers, "src/api/a.c": uses})
    assert "all of the .c files should reach 70 own headers at most: api/a.c reaches 71" in said
