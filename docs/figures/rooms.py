"""`python docs/figures/rooms.py` draws `rooms.svg`, the packages of the map in architecture.md."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDERS = {"core/": "#0072B2", "visualizer/": "#D55E00", "assets/player/": "#009E73"}
WIDTH, ROW = 380, 40
FITS = 44  # characters
_NO_TORCH = "torch begins below; above, the standard library alone"


def rooms(folder: str) -> list[tuple[str, str]]:
    """The names of a folder's packages and, of what the map says of each, what fits into a row."""
    text = (HERE.parent / "architecture.md").read_text(encoding="utf-8")
    table = re.search(rf"^\| `{re.escape(folder)}` \| \|\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.M)
    assert table, f"architecture.md has no map of {folder}"
    found = re.findall(r"^\| `(\w+)/?` \| (.*) \|$", table[1], re.M)
    firsts = [(n, re.split(r"[:;(]|\. |, (?=\w+ \w+ \w+ \w+)", says)[0]) for n, says in found]
    return [
        (name, says if len(says) <= FITS else says[:FITS].rpartition(",")[0])
        for name, says in firsts
    ]


def written(x: float, y: float, size: float, color: str, text: str, bold: str = "400") -> str:
    """A line of text."""
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" font-weight="{bold}" fill="{color}"'
        f' text-anchor="start">{escape(text)}</text>'
    )


def column(x: int, folder: str, color: str) -> list[str]:
    """A folder's packages, one below the other, each of which imports only those above it."""
    drawn = [written(x, 40, 18, color, folder, "650")]
    for row, (name, says) in enumerate(rooms(folder)):
        y = 58 + ROW * row
        if name == "torch_engine":
            drawn.append(f'<path d="M{x} {y - 4} h{WIDTH}" stroke="{color}" stroke-width="2"/>')
        drawn.append(
            f'<rect x="{x}" y="{y}" width="{WIDTH}" height="33" rx="8" fill="#ffffff"'
            ' stroke="#e3ddd2" stroke-width="1.5"/>'
        )
        drawn.append(written(x + 12, y + 21, 14, "#1b1b1f", name, "600"))
        drawn.append(written(x + 122, y + 21, 11, "#5c5a55", says))
    return drawn


def main() -> None:
    """Write the file."""
    most = max(len(rooms(folder)) for folder in FOLDERS)
    height, width = 100 + ROW * most, 24 + (WIDTH + 20) * len(FOLDERS)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"'
        ' aria-labelledby="t d" font-family="system-ui, -apple-system, Segoe UI, sans-serif">',
        '<title id="t">The packages of Inflight</title>',
        '<desc id="d">Three columns: core, visualizer and the player. Each package imports only'
        " those above it.</desc>",
        f'<rect width="{width}" height="{height}" fill="#faf8f4"/>',
    ]
    for number, (folder, color) in enumerate(FOLDERS.items()):
        lines += column(24 + (WIDTH + 20) * number, folder, color)
    lines += [written(24, height - 16, 11.5, "#0072B2", f"Blue line: {_NO_TORCH}."), "</svg>"]
    (HERE / "rooms.svg").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
