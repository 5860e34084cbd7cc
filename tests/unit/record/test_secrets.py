"""What is never recorded: secrets in commands and in lines of source; and what must not be taken for one."""

from __future__ import annotations

import json
import random
import secrets
import shlex
import string
import sys
from pathlib import Path

import pytest

from whyidle.record.run import create_run, describe_process, open_run, processes
from whyidle.record.secret import LEFT_OUT, line_without_secrets, without_secrets
from whyidle.record.stacks import Call, StackNames, left_out_of, read_stacks

KEYS = {
    "openai": "sk-proj-Ab12Cd34Ef56Gh78Ij90",
    "hugging face": "hf_" + "abCDefGHijKLmnOPqrSTuvWXyz01234567",
    "github": "ghp_" + "0123456789abcdefghijABCDEFGHIJ012345",
    "github, fine": "github_pat_" + "11ABCDEFG0123456789_abcdefghijklmnop",
    "aws": "AKIA" + "IOSFODNN7EXAMPLE",
    "slack": "xoxb-" + "123456789012-abcdefABCDEF",
    "gitlab": "glpat-" + "abcDEF123456ghiJKL78",
    "google": "AIza" + "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q",
    "wandb": "fedcba9876543210" * 2 + "01234567",
}
NAMES = (
    "facebook/dinov2-base-imagenet1k-1-layer",
    "timm/vit_base_patch16_clip_224.openai_ft_in12k_in1k",
    "exp-20240131T153000Z_lr1e-4_bs32_wd0.05_ep100_s42",
    "2024-01-31T15:30:00.123456+00:00",
    "torchvision.models.convnext_large.ConvNeXt_Large_Weights.IMAGENET1K_V1",
    "Qwen3OmniMoeThinkerForConditionalGeneration",
    "Wav2Vec2ConformerForCTC",
    "/data/imagenet-21k/train/n01440764/n01440764_10026.JPEG",
    "/cache/4f2a9c1e7b4d4e2a9c1f0a1b2c3d4e5f60718293.pt",
    "/cache/models--x/snapshots/0123456789abcdef0123456789abcdef01234567/model.safetensors",
    "resnet50-0676ba61.pth",
    "12345678901234567890123",
    "a_very_long_name_of_a_run_with_many_words_in_it",
)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("train.py --hf-token X1 --lr 3", ["train.py", "--hf-token", LEFT_OUT, "--lr", "3"]),
        ("train.py --hf-token=X1", ["train.py", f"--hf-token={LEFT_OUT}"]),
        ("env HF_TOKEN=X1 train.py", ["env", f"HF_TOKEN={LEFT_OUT}", "train.py"]),
        ("train.py token=X1 ++a.b.token=X1", ["train.py", f"token={LEFT_OUT}", f"++a.b.token={LEFT_OUT}"]),
        ("x --api-key X1 --apikey X1", ["x", "--api-key", LEFT_OUT, "--apikey", LEFT_OUT]),
        ("x -api_key X1", ["x", "-api_key", LEFT_OUT]),
        ("x --db.password 'X 1' --a-secret='X 1'", ["x", "--db.password", LEFT_OUT, f"--a-secret={LEFT_OUT}"]),
        ("sh -c 'A_TOKEN=X1 t.py --token X1'", ["sh", "-c", f"A_TOKEN={LEFT_OUT} t.py --token {LEFT_OUT}"]),
        ("psql postgres://me:X1@host/db", ["psql", f"postgres://me:{LEFT_OUT}@host/db"]),
    ],
)
def test_the_value_of_an_option_that_is_named_like_a_secret_is_left_out(given: str, kept: list[str]) -> None:
    assert without_secrets(shlex.split(given)) == kept
    assert without_secrets(kept) == kept


@pytest.mark.parametrize(
    "given",
    [
        "train.py --max-tokens 512 --token 512 token=1e-3 --tokens abc --tokenizer bert --secret-dir /x",
        "train.py --use-auth-token true --password --lr 3 --pad-token '[PAD]' --token-file /run/secrets/x",
        *(f"train.py {option}{name}" for name in NAMES for option in ("", "--x ", "--x=", "x=")),
    ],
)
def test_numbers_paths_and_names_stay(given: str) -> None:
    assert without_secrets(shlex.split(given)) == shlex.split(given)


@pytest.mark.parametrize(
    "line",
    [f'load("{name}")' for name in NAMES]
    + [
        'pad_token = tokenizer.eos_token or "<pad>"',
        'columns = ["token", "label"]; batch["token"], batch["mask"]',
        "tokens = tokenizer(text, max_length=512)",
        "class PPDocLayoutV4RepVggBlock(nn.Module):",
        'token="512"',
    ],
)
def test_lines_without_secrets_stay(line: str) -> None:
    assert line_without_secrets(line) == line


@pytest.mark.parametrize(
    "line",
    [
        'login(token="{}")',
        "client = Client(api_key = '{}', n=3)",
        'os.environ["HF_TOKEN"] = "{}"',
        'os.environ.get("HF_TOKEN", "{}")',
        'parser.add_argument("--hf-token", type=str, default="{}")',
        '{{"password": "{}", "n": 3}}',
        'hfToken: str = f"{}"',
        'secret = """{}',
    ],
)
def test_a_literal_that_is_given_to_such_a_name_is_left_out(line: str) -> None:
    assert line_without_secrets(line.format("hunter 2")) == line.format(LEFT_OUT)


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_what_begins_as_keys_do_is_left_out_wherever_it_stands(key: str) -> None:
    assert without_secrets(["x", "--y", key]) == ["x", "--y", LEFT_OUT]
    assert line_without_secrets(f'wandb_login(key="{key}")  # {key}') == f'wandb_login(key="{LEFT_OUT}")  # {LEFT_OUT}'


def test_random_signs_are_left_out() -> None:
    """By chance a few of them look like words; of the shortest, one in ten may."""
    drawn = random.Random(7)
    signs = string.ascii_letters + string.digits
    made = [
        *("".join(drawn.choices(signs, k=count)) for count in (20, 24, 32, 64) for _ in range(250)),
        *("".join(drawn.choices("0123456789abcdef", k=count)) for count in (32, 40, 64) for _ in range(250)),
        *(secrets.token_urlsafe(32) for _ in range(250)),
    ]
    kept = [key for key in made if without_secrets(["x", "--y", key])[2] == key]
    assert len(kept) < 0.05 * len(made)


def test_no_secret_reaches_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["python", "train.py", "--hf-token", "ARGSECRET", "--max-tokens", "512"]
    folder = create_run(tmp_path / "run", {"command": command})
    monkeypatch.setattr(sys, "argv", command[1:])
    describe_process(folder, 0, 7, {})
    names = StackNames(folder, lambda file, line: f'wandb_login(key="{KEYS["wandb"]}", n={line}){" " * 1000}')
    long = StackNames(folder, lambda file, line: f'{"x" * 290}("{KEYS["openai"]}")')
    numbers = [names.number([Call("main", "/a.py", 1), Call("f", "/b.py", line)]) for line in (2, 2, 3)]
    long.number([Call("g", "/c.py", 1)])
    written = b"".join(path.read_bytes() for path in folder.iterdir())
    for secret in (b"ARGSECRET", *(key[:9].encode() for key in (KEYS["wandb"], KEYS["openai"]))):
        assert secret not in written
    assert open_run(folder).info["command"] == [*command[:3], LEFT_OUT, *command[4:]]
    assert processes(folder)[0].info["command"] == [*command[1:3], LEFT_OUT, *command[4:]]
    assert read_stacks(folder).stack(numbers[-1])[-1].text == f'wandb_login(key="{LEFT_OUT}", n=3)'.ljust(300)
    # Each line once, however often it was seen, and the command in its fullest form.
    assert left_out_of(folder, [["x"], [LEFT_OUT, f"a={LEFT_OUT}"]]) == 3 + 2
    assert json.loads((folder / "run.json").read_text())["command"][3] == LEFT_OUT


@pytest.mark.parametrize(
    "word", ["token:" * 20000, "sk-" * 40000, "-" * 60000, "://" * 30000, "x='" * 30000, "Aa1" * 40000]
)
def test_a_long_word_is_gone_through_in_about_its_length(word: str) -> None:
    """What took time by the square of it would not end."""
    assert without_secrets(["x", word])[0] == "x"
