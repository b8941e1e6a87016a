"""Four exercises for a course: write the heart of an engine yourself, and have it checked against the engine's own decisions."""
