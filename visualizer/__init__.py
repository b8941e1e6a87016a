"""The page on which a run is watched. Reads traces and events; starts and stops engines only through core's public names.

Importing it gives runs and comparisons their pages, in files and in notebooks.
"""

from typing import Any

from core import page


def draw(what: Any, in_cell: bool, place: dict[str, Any]) -> str:
    """See `core.page.draw`."""
    from visualizer.page.one_file import html_of  # read from disk when a page is wanted

    return html_of(what, in_cell, place)


page.draw = draw
