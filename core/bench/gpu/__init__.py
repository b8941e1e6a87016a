"""The benchmark of the CUDA path: one command of at most eight minutes on an H200, in parts that stand for themselves.

    python -m core bench gpu --out gpu.json                         all parts, the most important first
    python -m core bench gpu --out gpu.json --resume                what is not done yet
    python -m core bench gpu --parts accuracy,ablation              some of them
    python -m core bench gpu --quick                                tiny shapes: proves within a minute that everything runs

Models have the shapes of published ones (`shapes`) and random weights in bfloat16; the requests are those of nano-vllm's benchmark
(`scale`). Every contender runs in this process, alone in memory.

The result, as `--out` writes it after every part:

    schema    1
    created   when it began
    quick     true: the shapes were tiny, and no number means anything
    key       what two results must share to be one: device, its name, memory and capability, versions, and the whole `Scale`
    parts     by name: title, status (done, failed, not run), why (a sentence, if not done), where (calls that led to a failure), took_s,
              and result (if done):
      accuracy                 workload; greedy: requests, tokens, different_requests, differences (see `core.measure.compare`); logits: tokens,
                               packed_rms, alone_rms, logits_rms, packed_max, alone_max, same_best_token, ratio
      qwen3-0.6b               parameters; all and compared: a run of this engine (below), with runs_tok_s, time_s by part, metrics,
                               workload and peak_bytes; recording: slowdown against runs without events
                               (median, and slowdowns pair by pair), host_share of the steps' time, steps
      transformers-continuous  a run; probes: attention, use_cuda_graph, use_async_batching and step_s or error; chosen: its settings;
                               failed: settings chosen before it that did not last; steps, workload, peak_bytes
      NAME-decode              steps timed, lanes, context (mean), seconds (of a step), floor_s, share (floor ÷ time), idle,
                               bandwidth_bytes_s, weight_bytes, kv_bytes_per_token, run (of this engine), workload, parameters, peak_bytes
      ablation                 workload; rows: name, off (fields of `Execution`), and a run of this engine or error
      generate-waves           a run; steps, lanes, attention, workload, peak_bytes
    report    the bars, a `core.bench.report.Report`: seconds by contender, ratios, limits

A run is seconds, output_tokens, output_tok_s and cut (its time was up before all was written); of this engine also execution, memory
and notes as its trace tells them, and idle: of the time over decode steps, the share between passes. A workload is requests,
prompt_tokens, output_tokens. Ratios divide output tok/s over the same requests. Seconds of a decode step are the device's, those of a
run the host's.
"""

from __future__ import annotations

from core.bench.gpu.device import Device
from core.bench.gpu.scale import FULL, TINY, Scale
from core.bench.gpu.session import run

__all__ = ["FULL", "TINY", "Device", "Scale", "run"]
