"""Animates a run for slides: its lanes as they fill, one picture per step, drawn by Pillow."""

from __future__ import annotations

import io
import shutil
import subprocess
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import InflightError, first_sentence, require, shown
from core.files import require_writable
from core.trace.phrases import letters
from core.trace.trace import Trace
from core.workload.request import is_number
from visualizer.charts.plots import cell_of, name_of
from visualizer.charts.step_figure import CELLS
from visualizer.charts.theme import EMPTY, GROUND, HUES, INK, MUTED, deal
from visualizer.words.captions import captions, plain

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_STEPS = 500
_WIDTH, _LEFT, _TOP, _BELOW, _MARGIN = 960, 64, 128, 52, 24
_LETTERS_A_LINE, _NAMED = 104, 24


def animated(trace: Trace, path: Path, steps: slice, seconds: float) -> None:
    """Write the file; see `Trace.animate`."""
    kind = path.suffix.lower()
    if kind not in (".gif", ".mp4"):
        raise InflightError(f"An animation is a .gif or an .mp4, not {path.name!r}.")
    if kind == ".mp4" and shutil.which("ffmpeg") is None:
        raise InflightError("An .mp4 needs the program ffmpeg, which is not here; a .gif does not.")
    if not (is_number(seconds) and 0.02 <= seconds <= 60):
        raise InflightError(f"A step is shown for 0.02 to 60 seconds, not {shown(seconds)}.")
    try:
        places = range(len(trace))[require(steps, slice, "Steps are chosen by a slice")]
    except (TypeError, ValueError):  # of its bounds
        raise InflightError(f"No steps can be chosen by {steps}.") from None
    if not 0 < len(places) <= MOST_STEPS:
        raise InflightError(
            f"An animation has 1 to {MOST_STEPS} steps, and these are {len(places):,}: choose some"
            " by steps=slice(first, end)."
        )
    require_writable(path)
    made = _gif if kind == ".gif" else _mp4
    path.write_bytes(made(_pictures(trace, places), seconds))


def _pictures(trace: Trace, places: range) -> Iterator[Image]:
    """One picture for each step: number, sentence, the lanes so far, waiting requests."""
    from PIL import Image, ImageDraw, ImageFont  # a dependency of Gradio

    small, plainly, large = (ImageFont.load_default(size) for size in (14, 17, 26))
    frames, said = [*trace.frames()], captions(trace)
    hues, names = deal(trace), letters(trace)
    count = 1 + max((row.lane for frame in frames for row in frame.lanes), default=0)
    pitch = max(4, min(36, 420 // count))
    size = (_WIDTH, _TOP + 2 * (pitch * count // 2) + _BELOW)  # even, as a film has to be
    width = (_WIDTH - _LEFT - _MARGIN) / len(places)
    canvas = Image.new("RGB", size, GROUND)
    ink = ImageDraw.Draw(canvas)
    ink.text((_MARGIN, 14), name_of(trace), MUTED, small)
    for lane in range(count):
        top = _TOP + lane * pitch
        ink.rectangle((_LEFT, top, _WIDTH - _MARGIN, top + pitch - 3), EMPTY)
    for column, place in enumerate(places):
        frame, left = frames[place], _LEFT + column * width
        for row in frame.lanes:
            top, colour = _TOP + row.lane * pitch, CELLS[cell_of(row, hues)]
            ink.rectangle(
                (left, top, max(left, left + width - (2 if width >= 5 else 1)), top + pitch - 3),
                colour,
            )
        shown = canvas.copy()
        ink_now = ImageDraw.Draw(shown)
        ink_now.text((_MARGIN, 38), f"Step {frame.step}", INK, large)
        sentence = plain(said[place]["say"], lambda request: names.get(request, "?"))
        lines = textwrap.wrap(sentence, _LETTERS_A_LINE)
        ink_now.text((_MARGIN, 74), "\n".join(lines), INK, plainly)
        for row in frame.lanes if pitch >= 14 else ():
            middle = _TOP + (row.lane + 0.5) * pitch - 1
            hue = HUES[hues.get(row.request, 0)]
            ink_now.text((_LEFT - 14, middle), names[row.request], hue, plainly, anchor="rm")
        if frame.waiting:
            queue = [names[row.request] for row in frame.waiting]
            more = f" and {len(queue) - _NAMED:,} more" if len(queue) > _NAMED else ""
            told = f"waiting: {' '.join(queue[:_NAMED])}{more}"
            ink_now.text((_LEFT, size[1] - 34), told, MUTED, plainly)
        yield shown


def _gif(pictures: Iterator[Image], seconds: float) -> bytes:
    from PIL import Image, ImageColor

    ground, *drawn = (ImageColor.getrgb(colour) for colour in (GROUND, INK, MUTED, *CELLS))
    shades = [  # shades between a colour and the background, for the edges of letters
        g + (c - g) * eighth // 8
        for colour in drawn
        for eighth in range(9)
        for g, c in zip(ground, colour, strict=True)
    ]
    palette = Image.new("P", (1, 1))
    palette.putpalette(shades)
    first, *rest = (p.quantize(palette=palette, dither=Image.Dither.NONE) for p in pictures)
    out = io.BytesIO()
    first.save(
        out, "GIF", save_all=True, append_images=rest, duration=round(1000 * seconds), loop=0
    )
    return out.getvalue()


def _mp4(pictures: Iterator[Image], seconds: float) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        for number, picture in enumerate(pictures):
            picture.save(Path(folder) / f"{number:03}.png")
        film = Path(folder) / "film.mp4"
        told = ["-loglevel", "error", "-framerate", f"{1 / seconds:g}", "-i", f"{folder}/%03d.png"]
        done = subprocess.run(
            ["ffmpeg", *told, "-r", "25", "-pix_fmt", "yuv420p", film],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise InflightError(f"ffmpeg failed: {first_sentence(ValueError(done.stderr))}.")
        return film.read_bytes()
