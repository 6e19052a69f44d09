"""Architectures of GGUF files: the twin of a golden gives the golden's logits and tokens."""
import os
import pathlib
import shutil
import subprocess

import gguf_twin
import pytest

TOP = pathlib.Path(__file__).parents[2]
GOLDEN = pathlib.Path(os.environ.get("PLATEAU_PROGRAM", str(TOP / "build/plateau"))).parent / "golden"
DATA = TOP / "tests/golden/data"
BESIDE = TOP / "../shared/golden"  # goldens that are too large for the project


def holds(folder, tmp_path):
    gguf_twin.make(folder, tmp_path / "model.gguf")
    shutil.copy(folder / "golden.json", tmp_path)
    ran = subprocess.run([GOLDEN, "--compute", "f32", tmp_path], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("name", ["cohere2", "lfm2", "lfm2_moe", "minimax_m2", "ministral3"])
def test_a_twin_is_the_checkpoint(name, tmp_path):
    holds(DATA / name, tmp_path)


@pytest.mark.parametrize("name", ["glm4_moe", "lfm2"])
def test_a_twin_of_a_large_golden_is_the_checkpoint(name, tmp_path):
    if not (BESIDE / name).is_dir():
        pytest.skip(f"no {BESIDE}")
    holds(BESIDE / name, tmp_path)
