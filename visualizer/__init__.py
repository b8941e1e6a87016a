"""The page on which a run is watched. Reads traces and events; starts and stops engines only through core's public names.

Importing it gives traces a picture in notebooks.
"""

from core.trace.trace import Trace


def _repr_html_(self: Trace) -> str:
    from visualizer.page.notebook import inline_html  # read from disk when a notebook asks

    return inline_html(self)


Trace._repr_html_ = _repr_html_  # type: ignore[attr-defined]  # core does not know this package
