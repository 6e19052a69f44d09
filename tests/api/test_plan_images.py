"""Images in a plan: the largest there may be, what encoding one takes, and that all of it can be
left out."""

import json
import os

import pytest
from conftest import MODEL
from test_generate import run


def planned(*options):
    limit = () if "--memory-limit" in options else ("--memory-limit", "4G")
    got = run("plan", "--json", *limit, *options)
    assert got.returncode == 0, got.stderr
    plan = json.loads(got.stdout)["models"][0]
    return plan, {a["name"]: a for a in plan["accounts"]}


def test_a_plan_has_room_for_the_largest_image():
    plan, accounts = planned()
    # the model's preprocessor says less than the option's default
    assert plan["image_pixels_max"] == 1048576
    assert plan["vision_weight_bytes"] > 2 << 20
    vision = accounts["vision"]
    assert vision["floor_bytes"] == vision["limit_bytes"] > 1 << 20
    small, fewer = planned("--max-image-pixels", "65536")
    assert small["image_pixels_max"] == 65536
    assert 0 < fewer["vision"]["limit_bytes"] < vision["limit_bytes"]
    larger, more = planned("--max-image-pixels", "16777216")
    assert (larger["image_pixels_max"], more["vision"]) == (1048576, vision)


def test_who_asks_for_a_cache_gets_it_before_the_context_takes_all():
    def cache(*options):
        plan, accounts = planned(*options)
        return plan["max_model_len"], accounts["images"]["limit_bytes"]

    assert cache() == (30720, 256 << 20)
    small = ["--memory-limit", "340M"]
    length, few = cache(*small)
    shorter, many = cache(*small, "--image-cache", "50M")
    assert few < 8 << 20 and 50 << 20 <= many < 51 << 20 and 1024 <= shorter < length
    # No effect where the requested context leaves no room, or where no context would remain.
    assert cache(*small, "--image-cache", "50M", "--max-model-len", str(length))[1] < 16 << 20
    assert cache(*small, "--image-cache", "300M")[0] == length


def test_a_refusal_says_what_images_take():
    words = "Images take "
    for command in [["plan"], ["generate", "--image", "x.png", "x"]]:
        refused = run(*command, "--memory-limit", "64M")
        assert refused.returncode == 1 and words in refused.stderr and "(--max-image-pixels 0)" in refused.stderr
    for command in [["plan", "--max-image-pixels", "0"], ["generate", "x"]]:
        refused = run(*command, "--memory-limit", "32M")
        assert refused.returncode == 1 and "does not fit" in refused.stderr and words not in refused.stderr


def test_a_plan_without_images_has_no_vision_encoder():
    plan, accounts = planned("--max-image-pixels", "0")
    assert (plan["image_pixels_max"], plan["vision_weight_bytes"]) == (0, 0)
    assert accounts["vision"]["limit_bytes"] == 0
    assert "left out" in accounts["vision"]["note"]
    with_tower = planned()[1]
    assert accounts["weights"]["limit_bytes"] < with_tower["weights"]["limit_bytes"]


def test_a_plan_tells_people():
    text = run("plan", "--memory-limit", "4G").stdout
    assert "An image has at most 1048576 pixels, which are 1024 tokens" in text


@pytest.mark.parametrize("key, id, says", [
    ("image_token_id", 300, "image_token_id is 300, which is ' n' and not a special token"),
    ("video_token_id", 8191, "video_token_id is 8191, which is '</think>'"),
    ("vision_start_token_id", 8180, "vision_start_token_id is 8180, which is '<|im_end|>'"),
    ("vision_end_token_id", 8185, "video_token_id and vision_end_token_id are both 8185"),
    ("image_token_id", 8192, "image_token_id is 8192, but must be in 0..8191"),
    ("vision_start_token_id", None, "vision_start_token_id is missing")])
def test_tokens_that_do_not_stand_for_images_are_refused(tmp_path, key, id, says):
    for file in MODEL.iterdir():
        os.symlink(file, tmp_path / file.name)
    config = {**json.loads((MODEL / "config.json").read_text()), key: id}
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps(config))
    got = run("serve", "--model", tmp_path, "--port", "0", "--memory-limit", "1G")
    assert got.returncode != 0 and says in got.stderr
    text = run("generate", "--model", tmp_path, "--max-tokens", "1", "--temperature", "0", "hello")
    assert text.returncode == 0 and text.stdout.strip(), "the text needs none of them: " + text.stderr
