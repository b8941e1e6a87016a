"""Builds figures for plotly.js as JSON, without Plotly's Python package and numpy, so that it works
wherever an engine runs. It checks nothing: tests check every figure against Plotly's schema.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self


class Figure:
    """data: the traces in order. layout: everything else. Numbers and texts are kept as given."""

    def __init__(self) -> None:
        self.data: list[dict[str, Any]] = []
        self.layout: dict[str, Any] = {"xaxis": {}, "yaxis": {}}

    @classmethod
    def side_by_side(cls, gap: float, shared: bool = False) -> Self:
        """Cells 1 and 2 in a row. gap: a share of the width. shared: they share a y axis."""
        half = (1.0 - gap) / 2
        figure = cls._of_cells(
            [((0.0, half), (0.0, 1.0)), ((half + gap, half + gap + half), (0.0, 1.0))]
        )
        if shared:
            figure.layout["yaxis2"] |= {"matches": "y", "showticklabels": False}
        return figure

    @classmethod
    def stacked(cls, heights: Sequence[float], gap: float) -> Self:
        """One cell for each height, cell 1 on top. gap: between two, as a share of the height."""
        room, total = 1.0 - gap * (len(heights) - 1), sum(heights)
        shares = [room * (height / total) for height in reversed(heights)]
        bottoms = [sum(shares[:i]) + i * gap for i in range(len(shares))]
        return cls._of_cells(
            [((0.0, 1.0), (y, y + share)) for y, share in zip(bottoms, shares, strict=True)][::-1]
        )

    @classmethod
    def _of_cells(cls, domains: Sequence[tuple[tuple[float, float], tuple[float, float]]]) -> Self:
        figure = cls()
        for cell, (x, y) in enumerate(domains, 1):
            for letter, other, (low, high) in (("x", "y", x), ("y", "x", y)):
                settings = {"anchor": f"{other}{_number(cell)}", "domain": [low, min(1.0, high)]}
                figure.layout[_axis(letter, cell)] = settings
        return figure

    def add_bar(self, cell: int | None = None, **trace: Any) -> None:
        self._add("bar", cell, trace)

    def add_scatter(self, cell: int | None = None, **trace: Any) -> None:
        self._add("scatter", cell, trace)

    def add_box(self, cell: int | None = None, **trace: Any) -> None:
        self._add("box", cell, trace)

    def add_heatmap(self, cell: int | None = None, **trace: Any) -> None:
        self._add("heatmap", cell, trace)

    def update_xaxes(self, cell: int | None = None, **settings: Any) -> None:
        """Update the x axis of one cell, or of all."""
        self._update_axes("x", cell, settings)

    def update_yaxes(self, cell: int | None = None, **settings: Any) -> None:
        """Update the y axis of one cell, or of all."""
        self._update_axes("y", cell, settings)

    def update_layout(self, **settings: Any) -> None:
        """Update settings of the layout; other settings are kept."""
        self.layout = _merged(self.layout, settings)

    def to_json(self) -> dict[str, Any]:
        """{"data", "layout"}, as plotly.js takes it."""
        return {
            "data": self.data,
            "layout": {name: value for name, value in self.layout.items() if value != {}},
        }

    def _add(self, kind: str, cell: int | None, trace: dict[str, Any]) -> None:
        axes = {} if cell is None else {"xaxis": f"x{_number(cell)}", "yaxis": f"y{_number(cell)}"}
        self.data.append({"type": kind, **trace, **axes})

    def _update_axes(self, letter: str, cell: int | None, settings: dict[str, Any]) -> None:
        every = [name for name in self.layout if name.startswith(f"{letter}axis")]
        for name in every if cell is None else [_axis(letter, cell)]:
            self.layout[name] = _merged(self.layout[name], settings)


def _number(cell: int) -> str:
    """The number of an axis in plotly.js, which is empty for the first."""
    return str(cell) if cell > 1 else ""


def _axis(letter: str, cell: int) -> str:
    return f"{letter}axis{_number(cell)}"


def _merged(kept: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(kept)
    for name, value in settings.items():
        if name == "title" and isinstance(value, str):
            value = {"text": value}
        merged[name] = _merged(merged.get(name, {}), value) if isinstance(value, Mapping) else value
    return merged
