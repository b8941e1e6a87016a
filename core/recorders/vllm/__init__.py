"""The package `inflight-vllm` for vLLM's process; it imports nothing else of this project."""
