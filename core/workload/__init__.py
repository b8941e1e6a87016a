"""What is asked of an engine: requests, workloads, presets. Knows no engine."""
