"""Four exercises for a course: write the core of an engine yourself, and check it against the engine's own decisions."""
