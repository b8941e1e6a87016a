"""What the browser is sent, as plain data: replays, comparisons, the catalogue of recorded runs."""
