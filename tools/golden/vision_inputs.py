"""Inputs of models with images, by family: keys of the configuration, tokens of the prompt, pixels.

* `config(first)` has the keys beside text_config. The ids from `first` on are free, twelve of them.
* `tokens(first, rows, columns)` stand in the prompt for a grid of image tokens.
* `inputs(torch, image, vision)` are arguments of the model. `image` holds bytes, [height, width, 3].
* `more(torch, ids, first)` are arguments that depend on the prompt.
* `masks(torch, model, ids, first)` are the masks of layers, where forward() makes others than generate()."""


def normed(image, mean, std):
    import torch
    return (image.float() / 255 - torch.tensor(mean)) / torch.tensor(std)


class Qwen:
    """Tokens' patches together, frames twice."""

    mean, std = [0.5] * 3, [0.5] * 3
    shape = [64, 96, 3]  # height, width and channels: the first bytes of noise.rgb
    reserved = False  # the ids of images are in no text

    def config(self, first):
        return {"image_token_id": first, "video_token_id": first + 1, "vision_start_token_id": first + 2,
                "vision_end_token_id": first + 3}

    def patch(self, vision):
        return vision["patch_size"]

    def merge(self, vision):
        return vision["spatial_merge_size"]

    def tokens(self, first, rows, columns):
        return [first + 2] + [first] * (rows * columns) + [first + 3]

    def inputs(self, torch, image, vision):
        patch, merge = vision["patch_size"], vision["spatial_merge_size"]
        rows, columns = image.shape[0] // patch, image.shape[1] // patch
        pixels = normed(image, self.mean, self.std)
        tiles = pixels.view(rows // merge, merge, patch, columns // merge, merge, patch, 3)
        tiles = tiles.permute(0, 3, 1, 4, 6, 2, 5).reshape(rows * columns, 3, 1, patch, patch)
        tiles = tiles.expand(-1, -1, vision["temporal_patch_size"], -1, -1)
        return {"pixel_values": tiles.reshape(rows * columns, -1),
                "image_grid_thw": torch.tensor([[1, rows, columns]])}

    def more(self, torch, ids, first):
        return {"mm_token_type_ids": (torch.tensor([ids]) == first).int()}

    def masks(self, torch, model, ids, first):
        return {}


CLIP = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]


class Qwen25(Qwen):
    mean, std = CLIP


class Glm(Qwen25):
    def config(self, first):
        return {"image_token_id": first, "video_token_id": first + 1, "image_start_token_id": first + 2,
                "image_end_token_id": first + 3}


class Kimi(Qwen):
    """Patches row by row, each an image."""

    reserved = True

    def config(self, first):
        return {"image_token_id": first, "video_token_id": first + 1, "vision_start_token_id": first + 2,
                "vision_end_token_id": first + 3, "projection_hidden_size": 16}

    def merge(self, vision):
        return vision["merge_kernel_size"][0]

    def inputs(self, torch, image, vision):
        patch = vision["patch_size"]
        rows, columns = image.shape[0] // patch, image.shape[1] // patch
        tiles = normed(image, self.mean, self.std).view(rows, patch, columns, patch, 3).permute(0, 2, 4, 1, 3)
        return {"pixel_values": tiles.reshape(rows * columns, 3, patch, patch),
                "image_grid_thw": torch.tensor([[1, rows, columns]])}

    def more(self, torch, ids, first):
        return {}


class Pixtral(Qwen):
    """Whole images; a token ends each row of image tokens."""

    def config(self, first):
        return {"image_token_index": first, "spatial_merge_size": 2}

    def merge(self, vision):
        return 2

    def tokens(self, first, rows, columns):
        return ([first] * columns + [first + 1]) * (rows - 1) + [first] * columns + [first + 2]

    def inputs(self, torch, image, vision):
        pixels = normed(image, *CLIP)
        return {"pixel_values": pixels.permute(2, 0, 1)[None], "image_sizes": torch.tensor([image.shape[:2]])}

    def more(self, torch, ids, first):
        return {}


class Gemma3(Qwen):
    """Squares, whose patches are averaged; tokens of an image see each other."""

    shape = [64, 64, 3]

    def config(self, first):
        return {"image_token_index": first, "boi_token_index": first + 1, "eoi_token_index": first + 2,
                "mm_tokens_per_image": 64}

    def merge(self, vision):
        return 64 // vision["patch_size"] // 8

    def tokens(self, first, rows, columns):
        return [first + 1] + [first] * (rows * columns) + [first + 2]

    def inputs(self, torch, image, vision):
        return {"pixel_values": normed(image, [0.5] * 3, [0.5] * 3).permute(2, 0, 1)[None]}

    def more(self, torch, ids, first):
        return {"token_type_ids": (torch.tensor([ids]) == first).int()}


class Gemma4(Qwen):
    """Patches row by row, as numbers of 0 to 1, with their columns and rows; means of patches."""

    shape = [56, 80, 3]  # 70 tokens of 8 pixels: the budget
    reserved = True

    def config(self, first):
        return {"image_token_id": first, "boi_token_id": first + 1, "eoi_token_id": first + 2,
                "video_token_id": first + 3, "audio_token_id": first + 4, "audio_config": None}

    def merge(self, vision):
        return vision["pooling_kernel_size"]

    def tokens(self, first, rows, columns):
        return [first + 1] + [first] * (rows * columns) + [first + 2]

    def inputs(self, torch, image, vision):
        patch = self.patch(vision)
        rows, columns = image.shape[0] // patch, image.shape[1] // patch
        tiles = (image.float() / 255).view(rows, patch, columns, patch, 3).permute(0, 2, 1, 3, 4)
        places = torch.tensor([[column, row] for row in range(rows) for column in range(columns)])
        return {"pixel_values": tiles.reshape(1, rows * columns, -1), "image_position_ids": places[None]}

    def masks(self, torch, model, ids, first):
        return {"attention_mask": model.create_masks_for_generate(
            model.config, inputs_embeds=torch.zeros(1, len(ids), 1), attention_mask=None, cache=None,
            position_ids=torch.arange(len(ids))[None], **self.more(torch, ids, first))}


class Gemma4Unified(Gemma4):
    """Patches as large as a token."""

    def patch(self, vision):
        return vision["patch_size"] * vision["pooling_kernel_size"]

    def merge(self, vision):
        return 1


class Tile(Qwen):
    """One tile: a square whose patches merge, one token after the other as in text.

    `tiles(image)` are arguments of the model for an image twice as large, `tiled(first)` its tokens."""

    shape = [64, 64, 3]
    numbers = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]

    def tokens(self, first, rows, columns):
        return [first + 1] + [first] * (rows * columns) + [first + 2]

    def inputs(self, torch, image, vision):
        return {"pixel_values": normed(image, *self.numbers).permute(2, 0, 1)[None]}

    def more(self, torch, ids, first):
        return {}


class InternVL(Tile):
    def config(self, first):
        return {"image_token_id": first, "downsample_ratio": 0.5}

    def merge(self, vision):
        return 2

    def tiles(self, image):
        from transformers import GotOcr2ImageProcessorPil
        mean, std = self.numbers
        processor = GotOcr2ImageProcessorPil(size={"height": 64, "width": 64}, crop_to_patches=True,
                                             image_mean=mean, image_std=std)
        return {"pixel_values": processor(images=[image], return_tensors="pt")["pixel_values"]}

    def tiled(self, first):
        return self.tokens(first, 5, 16)


class Idefics3(Tile):
    """Tiles have a place in a list of each prompt's images, and tokens that name their row and column."""

    numbers = [0.5] * 3, [0.5] * 3

    def config(self, first):
        return {"image_token_id": first, "scale_factor": 4}

    def merge(self, vision):
        return 4

    def tokens(self, first, rows, columns):
        return [first + 1, first + 2] + [first] * (rows * columns) + [first + 1]

    def inputs(self, torch, image, vision):
        return {"pixel_values": super().inputs(torch, image, vision)["pixel_values"][None]}

    def tiles(self, image):
        from transformers import SmolVLMImageProcessorPil
        processor = SmolVLMImageProcessorPil(size={"longest_edge": 128}, max_image_size={"longest_edge": 64})
        return dict(processor(images=[image], return_tensors="pt"))

    def tiled(self, first):
        tiles = [[first + 1, first + 3 + i] + [first] * 16 for i in range(4)]
        return sum(tiles, []) + self.tokens(first, 1, 16)


class Lfm2(Qwen):
    """Patches row by row, of an image of any ratio. Its processor needs the package torchvision."""

    files = {"encoder_patch_size": 8, "tile_size": 64, "min_image_tokens": 4, "max_image_tokens": 24}

    def config(self, first):
        return {"image_token_id": first, "projector_hidden_size": 20}

    def merge(self, vision):
        return 2

    def tokens(self, first, rows, columns):
        return [first + 1] + [first] * (rows * columns) + [first + 2]

    def inputs(self, torch, image, vision):
        patch = vision["patch_size"]
        rows, columns = image.shape[0] // patch, image.shape[1] // patch
        tiles = normed(image, self.mean, self.std).view(rows, patch, columns, patch, 3).permute(0, 2, 1, 3, 4)
        return {"pixel_values": tiles.reshape(1, rows * columns, -1),
                "spatial_shapes": torch.tensor([[rows, columns]]),
                "pixel_attention_mask": torch.ones(1, rows * columns, dtype=torch.int64)}

    def more(self, torch, ids, first):
        return {}

    def tiles(self, image):
        from transformers import Lfm2VlImageProcessor
        return dict(Lfm2VlImageProcessor(**self.files)(images=[image], return_tensors="pt"))

    def tiled(self, first):
        tiles = [[first + 4 + i] + [first] * 16 for i in range(6)]
        return [first + 1] + sum(tiles, []) + [first + 3] + [first] * 24 + [first + 2]
