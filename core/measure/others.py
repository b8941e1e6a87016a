"""What `check` enforces of another engine's run, and what it believes: the one list, which the console and docs/checks.md both show."""

from __future__ import annotations

OTHERS: dict[str, tuple[str, str]] = {
    "header.engine, source, created, device, device_name, dtype, tensor_parallel, versions, notes": ("a rank is one of its ranks", "which engine ran, when, where and how; its KV connector and how many tokens it proposes, which excuse preemptions with blocks free and blocks to spare"),
    "header.policy, batching": ("first come, first served, and that the newest gives way, where it says so; the layout", "any other order and any other rule for who gives way; whatever else it says of the policy"),
    "header.config, num_blocks": ("lanes, budget, blocks and their size are those that every step and every reason fits", "sizes of limits that never bound, switches that never mattered, and a limit made larger where reasons are said not to be recorded"),
    "header.kv_groups": ("tables cover every position and no more, and what a window has passed has left", "layers, kinds and sizes that no table contradicts"),
    "header.inferred, absent": ("lanes, queue and reasons follow from the rules that it names; what it says is absent is absent", "that a number which it does not call absent was measured"),
    "header.model": ("prompts and tokens inside the vocabulary, positions inside the context, windows those of its groups", "its name, type, layers and sizes"),
    "header.threads, leak, execution, cost, memory": ("there are none", ""),
    "header.workload, arrival_unit, request": ("whoever ends by its length has as many tokens as it asked for", "that these are all: a request left out with all its records does not show; when each was due, how it was sampled, and what prompt it had"),
    "event.step, resumed": ("steps follow each other, or it says which are missing, and the run goes on from a state that fits", "what happened in the steps that are missing"),
    "event.t_start, t_end, timings": ("in order; scheduling and the pass take as long as the times say", "the times themselves"),
    "event.arrived": ("once, before anything else of the request", "when"),
    "event.admitted, waiting, preempted, stalled": ("the lowest free lane; the queue's length, its head and its order; a preemption only for want of blocks, or of all; each reason, with less left than was needed", "that a reason was not recorded, such as why the engine skipped a request"),
    "event.passes, segments, budget": ("every running request computes or stalls; positions follow its cache; rows, tokens and budget add up", "how much of a prompt is computed where its reason is not recorded"),
    "event.kv": ("how many blocks are in use, who holds each, and whoever has too few or too many", "which block by number, and that a prefix found had the same tokens"),
    "event.sampled, drafts, overrun": ("who gets how many tokens; no probability higher than its margin allows", "which tokens, probabilities and margins; how many tokens were proposed"),
    "event.finished, released": ("length at the limit; lanes and blocks are given back then and only then", "that it stopped, was cancelled or failed"),
    "event.warnings": ("found again, whatever the file says", ""),
    "texts, end": ("one piece for each token; how many steps there are", "texts whose tokenizer is not here; that a run was cut after its last request had ended"),
}  # fmt: skip
"""By fact: what is enforced, by a refusal or a warning, and what is taken on trust, if anything is."""
