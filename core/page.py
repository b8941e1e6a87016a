"""Pages and pictures of runs. Nothing in `core` draws: whatever can draw sets `draw`, `plot` and
`animate`, as `visualizer` does when it is imported.
"""

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
the HTML of one file, which fetches nothing. Raises InflightError for a run that cannot be shown.
"""
plot: Callable[[Any, str, int | None], Any] | None = None
"""(a `Trace`, a `Comparison` or a `Plan`, the view, a step) → a Plotly figure. Raises InflightError
for an unknown view.
"""
animate: Callable[[Any, Path, slice, float], None] | None = None
"""Writes (a `Trace`) to (a file), with (these of its steps), each shown for (so many seconds).
Raises InflightError for a file that cannot be made.
"""
_Drawing = TypeVar("_Drawing", bound=Callable[..., Any])


@dataclass(frozen=True)
class Page:
    """The page of a run or a comparison, opened at a place such as a step. A notebook shows it,
    `height` pixels high, if it is the last expression of a cell.
    """

    what: Any
    place: dict[str, Any]
    height: int = 820

    def html(self, in_cell: bool = False) -> str:
        """The page as one file, which opens from disk without a network or a server. Raises
        InflightError if there is nothing to show.
        """
        return provided(draw)(self.what, in_cell, self.place)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file. Raises InflightError if it cannot be made or written."""
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


def provided(drawing: _Drawing | None) -> _Drawing:
    """The drawing function itself; raises InflightError if none has been set."""
    if drawing is None:
        raise InflightError("Nothing here draws pages: `import inflight` brings what does.")
    return drawing


class OnPage:
    """A mixin for what has a page, which a notebook shows for the last line of a cell."""

    def show(self) -> Page:
        """The page, for a notebook's cell or to be saved as a file."""
        return Page(self, {})

    def save_html(self, path: str | os.PathLike[str]) -> None:
        """Write the page as one file. Raises InflightError if there is nothing to show."""
        self.show().save(path)

    def _repr_html_(self) -> str | None:
        return None if draw is None else self.show()._repr_html_()
