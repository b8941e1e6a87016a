"""Pages and pictures of what is made here. Nothing in `core` draws: who can says so in `draw`,
`plot` and `animate`, as `visualizer` does when it is imported.
"""

from __future__ import annotations

import html
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from core.errors import InflightError
from core.files import written

draw: Callable[[Any, bool, dict[str, Any]], str] | None = None
"""(a `Trace` or a `Comparison`, whether it is for a cell of a notebook, the place where it opens) →
one file, which fetches nothing. Raises InflightError for one that cannot be shown.
"""
plot: Callable[[Any, str, int | None], Any] | None = None
"""(a `Trace`, a `Comparison` or a `Plan`, the view, a step) → a Plotly figure. Raises InflightError
for a view that there is not.
"""
animate: Callable[[Any, Path, slice, float], None] | None = None
"""Writes (a `Trace`) to (a file), with (these of its steps), each shown for (so many seconds).
Raises InflightError for a file that cannot be made.
"""
_Drawing = TypeVar("_Drawing", bound=Callable[..., Any])


@dataclass(frozen=True)
class Page:
    """A run or a comparison to look at, at a place. As the last expression of a notebook's cell it
    is shown, `height` pixels high.
    """

    what: Any
    place: dict[str, Any]
    height: int = 820

    def html(self, in_cell: bool = False) -> str:
        """One file with everything in it: it opens from disk, without network or server. Raises
        InflightError if there is nothing to show.
        """
        return brought(draw)(self.what, in_cell, self.place)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write that file; raises InflightError if it cannot be made or written."""
        text = self.html()
        with written(path) as out:
            out.write(text)

    def _repr_html_(self) -> str:
        try:
            inside = html.escape(self.html(in_cell=True))
        except InflightError as error:
            return f"<p>{html.escape(str(error))}</p>"
        return (
            f'<iframe title="Inflight" srcdoc="{inside}" sandbox="allow-scripts allow-downloads" '
            f'style="width:100%;height:{self.height}px;border:0;border-radius:10px"></iframe>'
        )


def brought(drawing: _Drawing | None) -> _Drawing:
    """One of the functions above; raises InflightError where none was given."""
    if drawing is None:
        raise InflightError("Nothing here draws pages: `import inflight` brings what does.")
    return drawing


class OnPage:
    """What has a page. In notebooks it is shown where it is the last expression of a cell."""

    def show(self) -> Page:
        """It in a notebook's cell, or as a file once that is saved."""
        return Page(self, {})

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Write it as one file, which opens from disk. Raises InflightError for nothing to show."""
        self.show().save(path)

    def _repr_html_(self) -> str | None:
        return None if draw is None else self.show()._repr_html_()
