"""The package `inflight-vllm`: one file that a vLLM process imports. Nothing here imports the rest
of this project.
"""
