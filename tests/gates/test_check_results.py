"""tools/check-results finds each kind of fault, and writes a table of what the lines say."""

import pathlib
import subprocess

import pytest

CHECK = pathlib.Path(__file__).resolve().parents[2] / "tools/check-results"

RUNS = "run,machine,date,commit,command\nr1,m1,2026-11-21,e6635f4b,bench/run\n"
COLUMNS = "what,program,figure,unit,run,page\n"
LINES = """"decode, 1 row",,15,tokens/s,r1,memory
"decode, 1 row",,9.5,tokens/s,r1,memory
prefill: first,,1200,ms,r1,memory
prefill: last,,3,s,r1,memory
reading,,7,ms,r1,memory
reading,"other, 1.2",-8,ms,r1,memory
reading,,99,ms,r1,
"""
TABLE = """| what | figure | machine | measured |
|---|---|---|---|
| decode, 1 row | 9.5 to 15 tokens/s | A processor | 2026-11-21, e6635f4b |
| prefill | first 1,200 ms, last 3 s | A processor | 2026-11-21, e6635f4b |
| reading | plateau 7; other -8 ms | A processor | 2026-11-21, e6635f4b |
"""
TREE = {
    "bench/results/machines.csv": "machine,processor,remarks\nm1,A processor,idle\n",
    "bench/results/runs.csv": RUNS,
    "bench/results/speed.csv": COLUMNS + LINES,
    "docs/memory.md": f"# Speed\n\n<!-- results -->\n{TABLE}<!-- end of results -->\n\nText.\n",
    "docs/gpu.md": "# Other\n",
}


def check(tmp_path, changes, *options):
    for name, text in {**TREE, **changes}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    ran = subprocess.run([CHECK, *options, tmp_path], capture_output=True, text=True, timeout=60)
    assert ran.returncode == (1 if ran.stdout else 0) and ran.stderr == ""
    return ran.stdout


def test_a_whole_tree_passes(tmp_path):
    assert check(tmp_path, {}) == ""


def test_a_table_is_written(tmp_path):
    assert check(tmp_path, {"docs/memory.md": TREE["docs/memory.md"].replace(TABLE, "| old |\n")}, "--fix") == ""
    assert (tmp_path / "docs/memory.md").read_text() == TREE["docs/memory.md"]


@pytest.mark.parametrize(
    "name, old, new, said",
    [
        ("speed", ",15,", ",16,", "docs/memory.md: its table is not what bench/results gives"),
        ("speed", ",15,", ",fast,", "speed.csv:2: figure 'fast'"),
        ("speed", ",r1,", ",,", "speed.csv:2: no run"),
        ("speed", ",r1,", ",r2,", "speed.csv:2: the run 'r2' is not known"),
        ("speed", ",memory\n", ",gpu\n", "speed.csv:2: the page 'gpu' is not known"),
        ("speed", ",memory\n", ",memory,more\n", "speed.csv:2: the columns are what, program"),
        ("speed", ",memory\n", "\n", "speed.csv:2: the columns are what, program"),
        ("runs", ",e6635f4b,", ",,", "runs.csv:2: no commit"),
        ("runs", ",e6635f4b,", ",main,", "runs.csv:2: commit 'main'"),
        ("runs", "2026-11-21", "21.11.2026", "runs.csv:2: date '21.11.2026'"),
        ("runs", ",m1,", ",m2,", "runs.csv:2: the machine 'm2' is not known"),
        ("machines", "A processor", "", "machines.csv:2: no processor"),
    ],
)
def test_a_fault_is_found(tmp_path, name, old, new, said):
    at = f"bench/results/{name}.csv"
    assert said in check(tmp_path, {at: TREE[at].replace(old, new, 1)})
