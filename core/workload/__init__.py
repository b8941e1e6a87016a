"""What an engine is given to do: requests, workloads, presets."""
