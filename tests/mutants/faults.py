"""Faults that the tests have to notice: edits of the sources, each with the tests that fail under it.

`make mutants` makes each in a copy and runs its tests; a fault under which they all pass has survived. The table in CONTRIBUTING.md is made from
this list.
"""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """`old` occurs once in `file`. tests: of tests/, each a file or a test of it."""

    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


POOL, SCHEDULER, BLOCKS, PROPERTIES = (
    "core/test_block_pool.py",
    "core/test_scheduler.py",
    "core/test_scheduler_kv.py",
    "core/test_properties.py::test_pressure_preempts_and_stays_exact",
)
RULES, SAMPLING, METRICS = "core/test_rules.py", "core/test_sampling.py", "core/test_metrics.py"
VERIFY, OTHERS = "core/test_verify.py", "core/test_verify_others.py"
COMPARISON, SERVING = "core/test_comparison_faults.py", "core/test_serving_metrics.py"
OWN_POLICY, CAPTIONS = "core/test_own_policy.py", "visualizer/test_captions.py"
ENGINE, ERRORS, ASYNC = "core/test_engine.py", "core/test_engine_errors.py", "core/test_async.py"

FAULTS = (
    # -- the scheduler's books
    Fault("prefix blocks are registered though not full", "core/scheduler/scheduler_state.py",
          "range(start // size, end // size)", "range(start // size, -(-end // size))", (BLOCKS, PROPERTIES)),
    Fault("a prefix's key leaves out its parent", "core/scheduler/block_pool.py",
          "        key = hash((parent, tokens))\n        self._content", "        key = hash((0, tokens))\n        self._content", (POOL,)),
    Fault("a prefix is found by its key alone", "core/scheduler/block_pool.py",
          "!= CachedBlock(key, parent, tokens)", "is None", (POOL,)),
    Fault("a prefix hit leaves nothing to compute", "core/scheduler/block_pool.py",
          "range(0, len(token_ids) - size, size)", "range(0, len(token_ids) - size + 1, size)", (POOL, BLOCKS)),
    Fault("eviction takes a prefix's head first", "core/scheduler/block_pool.py",
          "for block in reversed(blocks):", "for block in blocks:", (POOL,)),
    Fault("a shared block is freed with its first holder", "core/scheduler/block_pool.py",
          "if self._references[block] == 0:", "if self._references[block] >= 0:", (POOL,)),
    Fault("computed tokens are kept through a preemption", "core/scheduler/scheduler_state.py",
          "state.num_computed_tokens = state.num_cached_tokens = 0", "state.num_cached_tokens = 0", (BLOCKS, PROPERTIES)),
    Fault("the oldest makes room", "core/policy.py",
          "return candidates[-1]", "return candidates[0]", (BLOCKS,)),
    Fault("the scheduler does not ask the policy who gives way", "core/scheduler/passes.py",
          "state = run.policy.select_victim((*candidates,))", "state = (*candidates,)[-1]", (OWN_POLICY,)),
    Fault("a policy may select any request to give way", "core/scheduler/passes.py",
          "if not any(state is candidate for candidate in candidates):", "if False:", (OWN_POLICY,)),
    Fault("a policy may stall every request forever", "core/scheduler/passes.py",
          "if is_idle and not in_flight:", "if False:", (OWN_POLICY,)),
    Fault("a policy admits a request without room", "core/scheduler/passes.py",
          "return room.lacks(state)", "return None", (OWN_POLICY,)),
    Fault("an unknown policy is treated as the default one", "core/trace/header.py",
          "    if found is None:\n        return RecordedPolicy(name=name, own=own, **", "    if found is None:\n        return Policy(name=name, **", (OWN_POLICY,)),
    Fault("the page always says that the newest gives way", "visualizer/words/reasons.py",
          "*_gives_way(m.config.policy.victim),", '*_gives_way("newest"),', (CAPTIONS, OWN_POLICY)),
    Fault("a preempted request goes to the end of the queue", "core/scheduler/scheduler_state.py",
          "move_to_end(state, last=False)", "move_to_end(state, last=True)", (SCHEDULER, PROPERTIES)),
    Fault("blocks are allocated without counting those held", "core/scheduler/scheduler_state.py",
          "more = self.blocks_for(state.num_computed_tokens + count) - len(held)", "more = self.blocks_for(state.num_computed_tokens + count)",
          (BLOCKS,)),
    # -- who computes
    Fault("the highest free lane is taken", "core/scheduler/scheduler_state.py",
          "lane = heappop(self._returned)", "lane = self._returned.pop()", (SCHEDULER,)),
    Fault("admission looks beyond the lanes", "core/policy.py",
          "if len(room.held) >= room.num_lanes:\n            return Why(\"lanes\", 0, 1, room.num_lanes)\n        if self.one", "if self.one", (SCHEDULER,)),
    Fault("admission ignores blocks that decodes are about to need", "core/scheduler/scheduler_state.py",
          "pool.num_unused(cached) - growing", "pool.num_unused(cached)", (BLOCKS, PROPERTIES)),
    Fault("a policy that reserves room for the output reserves only the prompt's", "core/policy.py",
          "need = room.blocks_for(request.max_num_tokens)", "need = room.blocks_for(request.num_tokens)", (SCHEDULER,)),
    Fault("the budget is exceeded by one", "core/scheduler/passes.py",
          "        if count > left:\n", "        if count > left + 1:\n", (SCHEDULER, PROPERTIES)),
    Fault("static refills a lane before the barrier", "core/policy.py",
          'if self.admission == "barrier" and room.wave:', "if False:", (SCHEDULER,)),
    Fault("static leaves finished rows out", "core/scheduler/passes.py",
          "for s in run.lanes if s.finish_reason is not None]", "for s in run.lanes if s.finish_reason is None and False]", (SCHEDULER,)),
    Fault("the packed row is in order of admission", "core/scheduler/passes.py",
          "in sorted(plan):", "in plan:", (SCHEDULER,)),
    Fault("a split step decodes newly prefilled requests beyond its budget", "core/scheduler/passes.py",
          "and s.is_decoding][:left])", "and s.is_decoding])", (SCHEDULER,)),
    Fault("a request that stops is reported to have reached its length", "core/scheduler/scheduler.py",
          'self._finish(state, "stop", facts)', 'self._finish(state, "length", facts)', (SCHEDULER, PROPERTIES)),
    Fault("ignore_eos is ignored", "core/scheduler/scheduler.py",
          " and not state.request.sampling.ignore_eos)", ")", (SCHEDULER, PROPERTIES, ERRORS)),
    Fault("only the largest end token ends a request", "core/scheduler/scheduler.py",
          "token in self.eos_token_ids and", "token == max(self.eos_token_ids, default=None) and", (SCHEDULER,)),
    Fault("a model's list of end tokens is cut to its first", "core/models/adapter.py",
          "frozenset(ids if isinstance(ids, (list, tuple)) else [ids])", "frozenset(ids[:1] if isinstance(ids, (list, tuple)) else [ids])",
          ("core/test_models.py",)),
    # -- what is computed
    Fault("a window is one key wider", "core/attention/batch.py",
          "mask &= queries - keys < window", "mask &= queries - keys <= window", ("core/test_attention.py",)),
    Fault("a query sees the key after it", "core/attention/batch.py",
          "mask = (keys <= queries) &", "mask = (keys <= queries + 1) &", ("core/test_attention.py",)),
    Fault("positions of a chunk start at zero", "core/attention/batch.py",
          "positions += range(start, kv_len)", "positions += range(length)", (ENGINE,)),
    Fault("the recorded mask ignores the window", "core/trace/mask.py",
          "lowest = 0 if window is None else last - window + 1", "lowest = 0", ("core/test_trace.py",)),
    Fault("top-p leaves out the token that reaches it", "core/runner/sampling.py",
          "drop = (before >= top_p[:, None])", "drop = (before + probabilities >= top_p[:, None])", (SAMPLING,)),
    Fault("noise does not depend on the position", "core/engine/runner.py",
          "(self.position + 1) *", "1 *", (SAMPLING,)),
    Fault("the margin is measured to the best token itself", "core/runner/sampling.py",
          "return tokens, logprobs, best - runner_up", "return tokens, logprobs, best - best", (SAMPLING,)),
    Fault("a pass ends before its tokens are sampled", "core/runner/eager.py",
          "t_end=t3, prepare", "t_end=t2, prepare", (ENGINE,)),
    Fault("the forward pass is charged with the sampling", "core/runner/eager.py",
          "forward=t2 - t1, sample", "forward=t3 - t1, sample", (ENGINE,)),
    # -- what is on record
    Fault("any running request may be preempted", "core/trace/step_rules.py",
          'elif self._own and self._policy.victim == "newest" and request != state.running[-1]:', "elif False:", (RULES,)),
    Fault("any request may be admitted", "core/trace/step_rules.py",
          "if request not in self._next():", "if request not in self.state.waiting:", (RULES,)),
    Fault("tokens need not be counted against the budget", "core/trace/step_rules.py",
          "if limit is not None and (unused < 0 or decode + prefill + unused != limit):", "if False:", (RULES,)),
    Fault("a cache may have holes", "core/trace/step_rules.py",
          "if s.start != state.computed[s.request]:", "if False:", (RULES,)),
    # -- what is said of it
    Fault("padding waste is divided by tokens", "core/measure/metrics.py",
          '_ratio(positions["padding"], positions["computed"])', '_ratio(positions["padding"], positions["tokens"])', (METRICS,)),
    Fault("prompts of requests that never ran are counted", "core/measure/metrics.py",
          "life.num_prompt_tokens for life in lives if life.num_tokens)", "life.num_prompt_tokens for life in lives)", (METRICS,)),
    Fault("TTFT is counted from the first pass", "core/measure/metrics.py",
          "return None if first is None or self.arrival is None else first - self.arrival",
          "return None if first is None or self.first_pass is None else first - self.first_pass", (METRICS,)),
    Fault("an overrun is counted as useful work", "core/measure/metrics.py",
          "tokens, padding = sum(p.tokens for p in passes) - overrun,", "tokens, padding = sum(p.tokens for p in passes),", (METRICS, ASYNC)),
    Fault("only the first run of a contender is compared", "core/measure/compare.py",
          "differences += [d for d in first_differences(reference, turn.run, turn.contender) if d not in differences]",
          "differences += first_differences(reference, turn.run, turn.contender) if number == 0 else []", ("core/test_compare.py",)),
    Fault("statements about a comparison need not follow from its rounds", "core/measure/compare.py",
          "if recorded.get(name) != follows[name]:", "if name not in recorded:", (COMPARISON,)),
    Fault("a comparison's shares need not be its run's", "core/measure/compare.py",
          "if not _same(comparison.medians[name].get(key), value)]", "if key not in comparison.medians[name]]", (COMPARISON,)),
    Fault("the time in the queue lasts to the first token", "core/serving/metrics.py",
          "self._queue.observe(max(0.0, times.admitted - times.arrived))", "self._queue.observe(max(0.0, times.first_token - times.arrived))",
          (SERVING,)),
    Fault("time per output token is divided by all tokens", "core/serving/metrics.py",
          "(stream.num_tokens - 1))", "stream.num_tokens)", (SERVING,)),
    Fault("the gap to the previous token is measured to the first", "core/serving/metrics.py",
          "self._itl.observe(t - times.last_token)", "self._itl.observe(t - (times.first_token or t))", (SERVING,)),
    Fault("a metric counts pads as tokens", "core/serving/metrics.py",
          "observe(sum(p.tokens for p in event.passes))", "observe(sum(p.rows * p.width for p in event.passes))", (SERVING,)),
    Fault("only Python rounds durations to even", "visualizer/words/vocabulary.py",
          "ms.quantize(Decimal(places), ROUND_HALF_UP)", "ms.quantize(Decimal(places))", ("visualizer/test_captions.py",)),
    # -- what check asks
    Fault("timings need not be the passes'", "core/trace/bounds.py",
          "return abs(prepare + forward + sample - passes) <= rounding and", "return", (VERIFY,)),
    Fault("a graph may be of any size", "core/trace/bounds.py",
          "min(most, max(least, 2 * positions - 1))", "most", (VERIFY,)),
    Fault("a limit that never bound is not named", "core/measure/verify.py",
          "for limit in limits if not absent.get(limit)])", "for limit in limits if absent.get(limit)])", (VERIFY,)),
    Fault("a rerun does not compare the model's sizes", "core/measure/verify.py",
          "if recorded is not None and recorded != found:", "if recorded is None:", (VERIFY,)),
    Fault("another engine's reasons may have any numbers", "core/trace/bounds.py",
          "(why.total == totals.get(why.limit) and 0 <= why.have <= why.total and why.need > 0)", "why.limit in totals", (OTHERS,)),
    Fault("drafts may lie within a prompt", "core/trace/step_rules.py",
          " or (drafted and s.kv_len - drafted < num_tokens))", ")", (OTHERS,)),
    Fault("facts declared absent may be present", "core/trace/step_rules.py",
          "for name in self._numbers_absent):", "for name in ()):", (OTHERS,)),
    Fault("a character is returned before it is complete", "core/trace/detokenize.py",
          "return text[: len(text) - self._held]", "return text", ("core/test_detokenize.py",)),
)  # fmt: skip


def table() -> str:
    """The faults as CONTRIBUTING.md shows them."""
    rows = [f"| {fault.what} | `{fault.file}` | {', '.join(f'`{test}`' for test in fault.tests)} |" for fault in FAULTS]
    return "\n".join(["| fault | in | noticed by tests of |", "|---|---|---|", *rows])
