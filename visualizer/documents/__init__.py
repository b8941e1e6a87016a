"""The data sent to the browser: replays, comparisons, the catalogue of recorded runs."""
