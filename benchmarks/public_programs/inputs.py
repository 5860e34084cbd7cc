"""What the programs train on, made up once for each: photographs with boxes, sentences with a small language model."""

from __future__ import annotations

import importlib
import json
import random
from pathlib import Path

import numpy as np
from PIL import Image

WORDS = 600
CLASSES = "abc"


def sentences(number: int, words: int, seed: int) -> list[str]:
    """Made-up sentences of so many made-up words each, out of `WORDS`."""
    source = random.Random(seed)
    known = ["".join(source.choices("abcdefghijklmnop", k=source.randint(3, 8))) for _ in range(WORDS)]
    return [" ".join(source.choices(known, k=words)) + " ." for _ in range(number)]


def photograph(width: int, height: int, source: np.random.Generator) -> Image.Image:
    """Soft blotches with some grain: about as many bytes as a JPEG of a photograph has."""
    blotches = source.integers(0, 255, (height // 16 + 1, width // 16 + 1, 3), dtype=np.uint8)
    smooth = np.asarray(Image.fromarray(blotches).resize((width, height), Image.Resampling.BICUBIC), dtype=np.int16)
    grain = source.integers(-12, 12, (height, width, 3), dtype=np.int16)
    return Image.fromarray((smooth + grain).clip(0, 255).astype(np.uint8))


def nothing(folder: Path) -> None:
    """For programs that make up their own."""


def boxes(folder: Path) -> None:
    """`data.yaml` with 64 photographs to train on and 8 to validate, four boxes each."""
    source = np.random.default_rng(0)
    for split, number in (("train", 64), ("val", 8)):
        images, labels = folder / "images" / split, folder / "labels" / split
        images.mkdir(parents=True)
        labels.mkdir(parents=True)
        for index in range(number):
            photograph(640, 480, source).save(images / f"{index:04d}.jpg", quality=90)
            places = source.uniform([0.3, 0.3, 0.1, 0.1], [0.7, 0.7, 0.4, 0.4], (4, 4))
            kinds = source.integers(0, len(CLASSES), 4)
            told = zip(kinds, places, strict=True)
            rows = [f"{kind} " + " ".join(f"{value:.4f}" for value in place) for kind, place in told]
            (labels / f"{index:04d}.txt").write_text("\n".join(rows))
    names = "".join(f"  {number}: {name}\n" for number, name in enumerate(CLASSES))
    (folder / "data.yaml").write_text(f"path: {folder}\ntrain: images/train\nval: images/val\nnames:\n{names}")


def photographs(folder: Path) -> None:
    """`photos` with 60 photographs."""
    source = np.random.default_rng(1)
    (folder / "photos").mkdir()
    for index in range(60):
        photograph(480, 360, source).save(folder / "photos" / f"{index:04d}.jpg", quality=90)


def language(folder: Path) -> None:
    """`text/train.jsonl` with 240 sentences, and in `model` a GPT-2 of 4 layers with its tokenizer, both untrained."""
    text, model = folder / "text", folder / "model"
    text.mkdir()
    told = sentences(240, 100, seed=2)
    (text / "train.jsonl").write_text("".join(json.dumps({"text": sentence}) + "\n" for sentence in told))
    tokenizers, transformers = importlib.import_module("tokenizers"), importlib.import_module("transformers")
    special = ["<unk>", "<pad>", "<eos>"]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(told, tokenizers.trainers.WordLevelTrainer(special_tokens=special))
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", pad_token="<pad>", bos_token="<eos>", eos_token="<eos>"
    )
    fast.save_pretrained(model)
    transformers.utils.logging.disable_progress_bar()
    transformers.set_seed(0)
    sizes = {"vocab_size": len(fast), "n_positions": 128, "n_embd": 128, "n_layer": 4, "n_head": 4}
    config = transformers.GPT2Config(**sizes, bos_token_id=2, eos_token_id=2, pad_token_id=1)
    transformers.GPT2LMHeadModel(config).save_pretrained(model)


def corpus(folder: Path) -> None:
    """`data/wikitext-2.txt` with 400 sentences."""
    (folder / "data").mkdir()
    (folder / "data" / "wikitext-2.txt").write_text("\n".join(sentences(400, 20, seed=3)))
