"""Schedule, execute, update, and an event for every step: wires the rooms above together."""
