"""What a terminal or a page looks like, as a small picture: for screenshots.py."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO, StringIO
from pathlib import Path

from PIL import Image, ImageChops
from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Span, Text

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
LARGEST = 200_000
"""Bytes of a picture."""
SCALE = 1.5
"""Pixels of the picture a CSS pixel."""

DARK = TerminalTheme(
    (24, 27, 31),
    (214, 218, 224),
    [(24, 27, 31), (224, 108, 117), (126, 188, 124), (229, 192, 123), (97, 160, 224), (190, 130, 220)]
    + [(86, 182, 194), (190, 196, 204)],
    [(110, 118, 129), (240, 128, 136), (150, 208, 146), (240, 208, 144), (124, 182, 240), (208, 154, 234)]
    + [(112, 204, 214), (240, 243, 246)],
)


class Missing(Exception):
    """What the pictures need is not there."""


def environment() -> dict[str, str]:
    return os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}


@contextmanager
def terminal(command: str, columns: int, rows: int) -> Iterator[Callable[[], str]]:
    """A command in a terminal of its own; gives a function that tells what is on the screen, colours included."""
    with tempfile.TemporaryDirectory() as folder:
        tmux = ["tmux", "-L", "whyidle-pictures", "-f", "/dev/null"]
        shell = f"PS1='$ ' COLORTERM=truecolor PATH={BIN}:$PATH exec bash --norc --noprofile -i"
        subprocess.run(
            [*tmux, "new-session", "-d", "-x", str(columns), "-y", str(rows), "-s", "picture", "-c", str(ROOT), shell],
            env=environment() | {"TMUX_TMPDIR": folder, "TERM": "screen-256color", "LC_ALL": "C.UTF-8"},
            check=True,
        )
        env = environment() | {"TMUX_TMPDIR": folder}
        try:
            time.sleep(1)
            subprocess.run([*tmux, "send-keys", "-t", "picture", command, "Enter"], env=env, check=True)
            yield (
                lambda: (
                    subprocess.run(
                        [*tmux, "capture-pane", "-e", "-p", "-N", "-t", "picture"],
                        env=env,
                        check=True,
                        capture_output=True,
                        text=True,
                    ).stdout
                )
            )
        finally:
            subprocess.run([*tmux, "send-keys", "-t", "picture", "C-c"], env=env, check=False)
            time.sleep(1)
            subprocess.run([*tmux, "kill-server"], env=env, check=False, capture_output=True)


def drawn(ansi: str, columns: int, path: Path) -> None:
    """A picture of what a terminal shows."""
    console = Console(record=True, width=columns, file=StringIO(), force_terminal=True, color_system="truecolor")
    for line in ansi.rstrip().splitlines():
        console.print(_turned(Text.from_ansi(line)), no_wrap=True, crop=True)
    code = console.export_html(theme=DARK, inline_styles=True, code_format="{code}")
    # A sign that the font lacks comes from another one, and may be wider there.
    code = re.sub(r"[\u2000-\uffff]", lambda sign: f"<i>{sign[0]}</i>", code)
    back, front = DARK.background_color.hex, DARK.foreground_color.hex
    # A cell is 8 pixels wide in this size: bars have no seams.
    style = f"""body {{ margin: 0; background: {back} }}
        pre {{ margin: 0; padding: 14px 18px; width: {columns}ch; color: {front};
          font: 13.288px/16px 'DejaVu Sans Mono', monospace }}
        i {{ display: inline-block; width: 8px; height: 16px; vertical-align: top; overflow: hidden;
          font-style: normal }}"""
    page = f"<!doctype html><meta charset=utf-8><style>{style}</style><pre>{code}</pre>"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "terminal.html"
        file.write_text(page, encoding="utf-8")
        picture = shot(file, 1400, 1600)
    saved(_cropped(picture), path)


def _turned(line: Text) -> Text:
    """With the colours of reversed signs told: rich leaves those of the terminal's own as they are."""
    back, front = (Color.from_rgb(*colour) for colour in (DARK.background_color, DARK.foreground_color))
    for number, span in enumerate(line.spans):
        style = span.style
        if isinstance(style, Style) and style.reverse:
            turned = Style(color=style.bgcolor or back, bgcolor=style.color or front, bold=style.bold)
            line.spans[number] = Span(span.start, span.end, turned)
    return line


def _cropped(picture: Image.Image) -> Image.Image:
    """Without the empty space to the right and below."""
    box = ImageChops.difference(picture, Image.new("RGB", picture.size, picture.getpixel((0, 0)))).getbbox()
    if box is None:
        raise Missing("the terminal was empty")
    edge = int(18 * SCALE)
    return picture.crop((0, 0, min(picture.width, box[2] + edge), min(picture.height, box[3] + edge)))


def shot(page: Path, width: int, height: int, dark: bool = False) -> Image.Image:
    """How chromium shows a page."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.png"
        command = [chromium(), "--headless=new", "--no-sandbox", "--hide-scrollbars", "--disable-gpu"]
        command += [f"--user-data-dir={folder}/profile", f"--force-device-scale-factor={SCALE}"]
        command += ["--virtual-time-budget=4000", f"--window-size={width},{height}", f"--screenshot={file}"]
        command += ["--blink-settings=preferredColorScheme=0"] if dark else []
        subprocess.run([*command, page.resolve().as_uri()], check=True, capture_output=True, timeout=120)
        return Image.open(BytesIO(file.read_bytes())).convert("RGB")


def phone(page: Path, width: int, height: int) -> Image.Image:
    """The same on a narrow screen: chromium's own window has a least width, a frame in it has none."""
    with tempfile.TemporaryDirectory() as folder:
        around = Path(folder) / "around.html"
        source = html.escape(page.resolve().as_uri())
        frame = f'<iframe src="{source}" width={width} height={height} style="border:0"></iframe>'
        around.write_text(f"<!doctype html><body style='margin:0'>{frame}", encoding="utf-8")
        whole = shot(around, width + 120, height)
    return whole.crop((0, 0, int(width * SCALE), int(height * SCALE)))


def acted(page: Path, script: str) -> Path:
    """A copy of a page on which a script does what a reader would."""
    text = page.read_text(encoding="utf-8")
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    copy = page.with_name(f"{page.stem}-acted.html")
    copy.write_text(text.replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
    return copy


def chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if (found := shutil.which(name)) is not None:
            return found
    raise Missing("chromium is not installed (Debian, Ubuntu: apt install chromium)")


def saved(picture: Image.Image, path: Path) -> None:
    """As a small PNG: as many colours as fit into the largest size."""
    for colours in (256, 128, 64, 32):
        picture.quantize(colours, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE).save(path, optimize=True)
        if path.stat().st_size <= LARGEST:
            break
    else:
        raise Missing(f"{path.name} has {path.stat().st_size} bytes, more than {LARGEST}")
    print(
        f"  {path.relative_to(ROOT)}  {picture.width} x {picture.height}, {path.stat().st_size / 1000:.0f} kB",
        flush=True,
    )
