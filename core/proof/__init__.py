"""How a recorded run is proved: replayed, computed again, compared with `generate`."""
