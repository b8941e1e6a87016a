"""Schedule, execute, update, and an event for every step."""
