"""vLLM and transformers on our presets, beside our engine: how the comparisons of engines that ship
with the page are recorded.
"""
