"""Faults that the tests have to notice: edits of the sources, each with the tests that fail under
it.

`make mutants` makes each in a copy and runs its tests; a fault under which they all pass has
survived.
"""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """`old` occurs once in `file`. tests: of tests/, each a file or a test of it; `.js` is run by
    Node.
    """

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
RULES, SAMPLING, COMPILED, METRICS = (
    "core/test_rules.py",
    "core/test_sampling.py",
    "core/test_cpu_kernels.py",
    "core/test_metrics.py",
)
VERIFY, OTHERS, RERUN = (
    "core/test_verify.py",
    "core/test_verify_others.py",
    "core/test_check_rerun.py",
)
RECORDED_RULES, PLACES = "core/test_recorded_rules.py", "visualizer/test_places.py"
COMPARISON, SERVING = "core/test_comparison_faults.py", "core/test_serving_metrics.py"
OWN_POLICY, CAPTIONS = "core/test_own_policy.py", "visualizer/test_captions.py"
ENGINE, ERRORS, ASYNC = "core/test_engine.py", "core/test_engine_errors.py", "core/test_async.py"
CLOCK, CLIENT_TEXT, CLASSROOM = (
    "core/test_serving_clock.py",
    "core/test_serving_text.py",
    "core/test_classroom.py",
)
SERVED = "core/test_serving_http.py::test_several_prompts_and_choices_each_with_a_seed_of_its_own"
RECORDING = "core/test_recorders.py::test_what_a_preemption_took_and_who_is_held_is_told_as_it_was"
SNAPSHOT = "core/test_recorders.py::test_a_snapshot_has_every_queue_and_counts_no_rejected_draft"
STREAM, STAND_INS = "core/test_stream.py", "core/test_cpu_blocks.py"
MASKS = "core/test_attention.py::test_a_window_that_slips_in_one_row_is_private"
ROOFLINE, SIMULATED = "core/test_roofline.py", "core/test_simulated_commands.py"
TOTALS = (
    "core/test_simulate.py::test_totals_count_whoever_ends_by_itself_and_nobody_who_is_sent_away"
)
PACKED = "core/test_gguf.py::test_a_packed_file_is_computed_as_torch_computes_the_folder"
SERVED_RERUN = "core/test_served_rerun.py"
TURNS, SITES, REFUSALS = (
    "core/test_turns.py",
    "core/test_serving_sites.py",
    "core/test_serving_refusals.py",
)
LIBRARY, CALLS, ONE_FILE = (
    "core/test_library.py",
    "visualizer/test_calls.py",
    "visualizer/test_one_file.py",
)
REPLAY, LIVE, VIEWS = (
    "visualizer/test_replay.py",
    "visualizer/test_live.py",
    "visualizer/test_comparison_views.py",
)
RUN_JS, LANES_JS, MASK_JS, SHOWN = (
    "js/run.test.js",
    "js/lanes.test.js",
    "js/mask.test.js",
    "visualizer/test_shown.py",
)
PRELOADED = "page/test_first_minute.py::test_what_the_first_picture_is_made_of_is_on_its_way_before_the_player_is"  # noqa: E501
PANELS = "page/test_panels.py::test_the_panels_say_what_ran"
DOOR = (
    "page/test_panels.py::test_the_door_counts_who_waits_and_no_word_is_drawn_before_it_was_written"
)
RACE = "page/test_compare_tab.py::test_it_opens_where_the_first_is_done_and_every_run_says_how_far_it_is"  # noqa: E501

FAULTS = (
    # -- the scheduler's books
    Fault(
        "prefix blocks are registered though not full",
        "core/scheduler/scheduler_state.py",
        "range(start // size, end // size)",
        "range(start // size, -(-end // size))",
        (BLOCKS, PROPERTIES),
    ),
    Fault(
        "a prefix's key leaves out its parent",
        "core/scheduler/block_pool.py",
        "        key = hash((parent, tokens))\n        self._content",
        "        key = hash((0, tokens))\n        self._content",
        (POOL,),
    ),
    Fault(
        "a prefix is found by its key alone",
        "core/scheduler/block_pool.py",
        "if not holders or self._content[block := next(iter(holders))] != CachedBlock(\n"
        "                key, parent, tokens\n"
        "            ):",
        "if not holders or self._content[block := next(iter(holders))] is None:",
        (POOL,),
    ),
    Fault(
        "a prefix hit leaves nothing to compute",
        "core/scheduler/block_pool.py",
        "range(0, len(token_ids) - size, size)",
        "range(0, len(token_ids) - size + 1, size)",
        (POOL, BLOCKS),
    ),
    Fault(
        "eviction takes a prefix's head first",
        "core/scheduler/block_pool.py",
        "for block in reversed(blocks):",
        "for block in blocks:",
        (POOL,),
    ),
    Fault(
        "a shared block is freed with its first holder",
        "core/scheduler/block_pool.py",
        "if self._references[block] == 0:",
        "if self._references[block] >= 0:",
        (POOL,),
    ),
    Fault(
        "computed tokens are kept through a preemption",
        "core/scheduler/scheduler_state.py",
        "state.num_computed_tokens = state.num_cached_tokens = 0",
        "state.num_cached_tokens = 0",
        (BLOCKS, PROPERTIES),
    ),
    Fault(
        "the oldest makes room",
        "core/policy.py",
        "return candidates[-1]",
        "return candidates[0]",
        (BLOCKS,),
    ),
    Fault(
        "the scheduler does not ask the policy who gives way",
        "core/scheduler/passes.py",
        "request = state.policy.select_victim((*candidates,))",
        "request = (*candidates,)[-1]",
        (OWN_POLICY,),
    ),
    Fault(
        "a policy may select any request to give way",
        "core/scheduler/passes.py",
        "raise PolicyFailed(\n"
        '        f"The policy {state.policy.name} lets {shown(request)} give way, which '
        'is none of the"\n'
        '        " requests that can."\n'
        "    )",
        'return request  # {shown(request)} give way, which is none of the requests that can.")',
        (OWN_POLICY,),
    ),
    Fault(
        "a policy may stall every request forever",
        "core/scheduler/passes.py",
        "if is_idle and not in_flight:",
        "if False:",
        (OWN_POLICY,),
    ),
    Fault(
        "a policy admits a request without room",
        "core/scheduler/passes.py",
        "return capacity.lacks(request)",
        "return None",
        (OWN_POLICY,),
    ),
    Fault(
        "an unknown policy is treated as the default one",
        "core/trace/header.py",
        "    if found is None:\n        return RecordedPolicy(name=name, own=own, **",
        "    if found is None:\n        return Policy(name=name, **",
        (OWN_POLICY,),
    ),
    Fault(
        "the page always says that the newest gives way",
        "visualizer/words/reasons.py",
        "*_gives_way(m.config.policy.victim),",
        '*_gives_way("newest"),',
        (CAPTIONS, OWN_POLICY),
    ),
    Fault(
        "a preempted request goes to the end of the queue",
        "core/scheduler/scheduler_state.py",
        "move_to_end(state, last=False)",
        "move_to_end(state, last=True)",
        (SCHEDULER, PROPERTIES),
    ),
    Fault(
        "blocks are allocated without counting those held",
        "core/scheduler/scheduler_state.py",
        "more = self.blocks_for(state.num_computed_tokens + count) - len(held)",
        "more = self.blocks_for(state.num_computed_tokens + count)",
        (BLOCKS,),
    ),
    # -- who computes
    Fault(
        "the highest free lane is taken",
        "core/scheduler/scheduler_state.py",
        "lane = heappop(self._returned)",
        "lane = self._returned.pop()",
        (SCHEDULER,),
    ),
    Fault(
        "a request for which no lane is free is told that it lacks something else",
        "core/policy.py",
        "if len(capacity.held) >= capacity.num_lanes:\n"
        '            return LimitReached("lanes", 0, 1, capacity.num_lanes)\n'
        "        if self.one",
        "if self.one",
        (SCHEDULER,),
    ),
    Fault(
        "where requests are passed over, lanes are named last",
        "core/scheduler/passes.py",
        "over = (\n"
        '            "budget"\n'
        "            if not left\n"
        '            else "reads"\n'
        "            if reads <= 0\n"
        '            else "lanes"\n'
        "            if len(plan) == state.lanes.count\n"
        "            else None\n"
        "        )",
        'over = "budget" if not left else "reads" if reads <= 0 else None',
        (SCHEDULER,),
    ),
    Fault(
        "a policy lets a request join that no lane is free for",
        "core/policy.py",
        "if len(self.held) >= self.num_lanes:\n"
        '            return LimitReached("lanes", 0, 1, self.num_lanes)\n'
        "        cached",
        "cached",
        (OWN_POLICY,),
    ),
    Fault(
        "a policy lets a request join once the budget is spent",
        "core/policy.py",
        "        if self.tokens_left <= 0:\n",
        "        if False:\n",
        (OWN_POLICY,),
    ),
    Fault(
        "admission ignores blocks that decodes are about to need",
        "core/scheduler/scheduler_state.py",
        "pool.num_unused(cached) - growing",
        "pool.num_unused(cached)",
        (BLOCKS, PROPERTIES),
    ),
    Fault(
        "a policy that reserves room for the output reserves only the prompt's",
        "core/policy.py",
        "need = capacity.blocks_for(request.max_num_tokens)",
        "need = capacity.blocks_for(request.num_tokens)",
        (SCHEDULER,),
    ),
    Fault(
        "the budget is exceeded by one",
        "core/scheduler/passes.py",
        "        if count > left:\n",
        "        if count > left + 1:\n",
        (SCHEDULER, PROPERTIES),
    ),
    Fault(
        "static refills a lane before the barrier",
        "core/policy.py",
        'if self.admission == "barrier" and capacity.wave:',
        "if False:",
        (SCHEDULER,),
    ),
    Fault(
        "static leaves finished rows out",
        "core/scheduler/passes.py",
        "for s in state.lanes if s.finish_reason is not None]",
        "for s in state.lanes if s.finish_reason is None and False]",
        (SCHEDULER,),
    ),
    Fault(
        "the packed row is in order of admission",
        "core/scheduler/passes.py",
        "in sorted(plan):",
        "in plan:",
        (SCHEDULER,),
    ),
    Fault(
        "a split step decodes newly prefilled requests beyond its budget",
        "core/scheduler/passes.py",
        "and s.is_decoding][:left])",
        "and s.is_decoding])",
        (SCHEDULER,),
    ),
    Fault(
        "a request that stops is reported to have reached its length",
        "core/scheduler/scheduler.py",
        'self._finish(state, "stop", facts)',
        'self._finish(state, "length", facts)',
        (SCHEDULER, PROPERTIES),
    ),
    Fault(
        "ignore_eos is ignored",
        "core/scheduler/scheduler.py",
        "if request in stopped or (\n"
        "            token in self.eos_token_ids and not state.request.sampling.ignore_eos\n"
        "        ):",
        "if request in stopped or (token in self.eos_token_ids):",
        (SCHEDULER, PROPERTIES, ERRORS),
    ),
    Fault(
        "only the largest end token ends a request",
        "core/scheduler/scheduler.py",
        "token in self.eos_token_ids and",
        "token == max(self.eos_token_ids, default=None) and",
        (SCHEDULER,),
    ),
    Fault(
        "a model's list of end tokens is cut to its first",
        "core/torch_engine/models/adapter.py",
        "frozenset(ids if isinstance(ids, (list, tuple)) else [ids])",
        "frozenset(ids[:1] if isinstance(ids, (list, tuple)) else [ids])",
        ("core/test_models.py",),
    ),
    # -- what is computed
    Fault(
        "a window is one key wider",
        "core/torch_engine/attention/batch.py",
        "mask &= queries - keys < window",
        "mask &= queries - keys <= window",
        ("core/test_attention.py",),
    ),
    Fault(
        "a query sees the key after it",
        "core/torch_engine/attention/batch.py",
        "mask = (keys <= queries) &",
        "mask = (keys <= queries + 1) &",
        ("core/test_attention.py",),
    ),
    Fault(
        "positions of a chunk start at zero",
        "core/torch_engine/attention/batch.py",
        "positions += range(start, kv_len)",
        "positions += range(length)",
        (ENGINE,),
    ),
    Fault(
        "the recorded mask ignores the window",
        "core/trace/mask.py",
        "lowest = 0 if window is None else last - window + 1",
        "lowest = 0",
        ("core/test_trace.py",),
    ),
    Fault(
        "top-p leaves out the token that reaches it",
        "core/torch_engine/sampling.py",
        "drop = (before >= top_p[:, None])",
        "drop = (before + probabilities >= top_p[:, None])",
        (SAMPLING,),
    ),
    Fault(
        "noise does not depend on the position",
        "core/engine/runner.py",
        "(self.position + 1) *",
        "1 *",
        (SAMPLING,),
    ),
    Fault(
        "the margin is measured to the best token itself",
        "core/torch_engine/sampling.py",
        "return first, best[:, 0] - runner_up,",
        "return first, best[:, 0] - best[:, 0],",
        (SAMPLING,),
    ),
    Fault(
        "the best logit is not put back",
        "core/torch_engine/sampling.py",
        "    logits.scatter_(1, place, best)\n",
        "",
        (SAMPLING,),
    ),
    Fault(
        "a decode does not see its own key",
        "core/torch_engine/cpu/decodes.py",
        "_softmax(at(weights, head * room), length, room)",
        "_softmax(at(weights, head * room), length - 1, room)",
        (COMPILED,),
    ),
    Fault(
        "positions that only fill up four count",
        "core/torch_engine/cpu/decodes.py",
        "        weights[position] = np.float32(0.0)\n",
        "        pass\n",
        (COMPILED,),
    ),
    Fault(
        "a query of a chunk sees the key after it",
        "core/torch_engine/cpu/chunks.py",
        "range(max(first, query + 1), end)",
        "range(max(first, query + 2), end)",
        (COMPILED,),
    ),
    Fault(
        "a chunk's window is one key wider",
        "core/torch_engine/cpu/chunks.py",
        "range(max(place - query + window, 0), _QUERIES)",
        "range(max(place - query + window, 0) + 1, _QUERIES)",
        (COMPILED,),
    ),
    Fault(
        "a block of queries begins after its first key",
        "core/torch_engine/cpu/chunks.py",
        "max(query - window + 1, 0) // _TOGETHER",
        "(max(query - window + 1, 0) + _TOGETHER) // _TOGETHER",
        (COMPILED,),
    ),
    Fault(
        "a chunk's heads share the keys of the first",
        "core/torch_engine/cpu/chunks.py",
        "at(s.keys, kv_head * key_size)",
        "s.keys",
        (COMPILED,),
    ),
    Fault(
        "pads of a chunk attend to keys",
        "core/torch_engine/cpu/chunks.py",
        "for lane in range(pads):",
        "for lane in range(0):",
        (COMPILED,),
    ),
    Fault(
        "a block of queries at the end of a thread's stretch is left to nobody",
        "core/torch_engine/cpu/chunks.py",
        "work * (thread + 1) // threads",
        "work // threads * (thread + 1)",
        (COMPILED,),
    ),
    Fault(
        "a rerun in float32 takes drawn tokens on trust",
        "core/proof/rerun.py",
        " and self._rounding == _ROUNDED_SHORT",
        "",
        (RERUN,),
    ),
    Fault(
        "what threads cannot share evenly is left to nobody",
        "core/torch_engine/cpu/decodes.py",
        "work * (thread + 1) // threads",
        "work // threads * (thread + 1)",
        (COMPILED,),
    ),
    Fault(
        "a decode is written to the first column",
        "core/torch_engine/cpu/decodes.py",
        "(row * s.width + column) * s.heads",
        "(row * s.width) * s.heads",
        (COMPILED,),
    ),
    Fault(
        "a tie is rounded up",
        "core/torch_engine/cpu/formats.py",
        "builder.add(odd, _INT(0x7FFF))",
        "builder.add(_INT(1), _INT(0x7FFF))",
        (COMPILED,),
    ),
    Fault(
        "the last of equal logits is chosen",
        "core/torch_engine/cpu/rows.py",
        "wide(logits[place]) != top:",
        "wide(logits[place]) != top or place == winner * _BLOCK:",
        (COMPILED,),
    ),
    Fault(
        "blocks of logits are added up unscaled",
        "core/torch_engine/cpu/rows.py",
        "exact += sums[index] * np.exp(np.float64(highest[index]) - top)",
        "exact += sums[index]",
        (COMPILED,),
    ),
    Fault(
        "the runner-up is of another block than the best",
        "core/torch_engine/cpu/rows.py",
        "                second = max(second, wide(logits[i]))\n",
        "                pass\n",
        (COMPILED,),
    ),
    Fault(
        "keys are not turned by their positions",
        "core/torch_engine/cpu/heads.py",
        "_turned(source, cos, sin, turned, size, target, like)",
        "_turned(source, cos, sin, turned if head < heads else 0, size, target, like)",
        (STAND_INS,),
    ),
    Fault(
        "values go to the slot of the position before",
        "core/torch_engine/cpu/heads.py",
        "at(values, slot * kv_heads * value_size)",
        "at(values, slots[max(position - 1, 0)] * kv_heads * value_size)",
        (STAND_INS,),
    ),
    Fault(
        "a gated MLP with another activation is taken for one with SiLU",
        "core/torch_engine/cpu/blocks.py",
        '_ACTIVATIONS.get(type(parts["act_fn"]))',
        "_ACTIVATIONS.get(SiLUActivation)",
        (STAND_INS,),
    ),
    Fault(
        "softcaps are not asked for",
        "core/torch_engine/cpu/blocks.py",
        "block.spec.softcap is not None or",
        "",
        (STAND_INS,),
    ),
    Fault(
        "no stand-in is tried far from the start",
        "core/torch_engine/cpu/blocks.py",
        "max(0, (adapter.max_model_len or 0) - 3)",
        "0",
        (STAND_INS,),
    ),
    Fault(
        "what stands in is not tried",
        "core/torch_engine/cpu/blocks.py",
        "if _agrees(block, args, given, own):",
        "if True:",
        (STAND_INS,),
    ),
    Fault(
        "what stands in for a module passes over whoever watches those within",
        "core/torch_engine/cpu/blocks.py",
        "not any(self.hooks) and",
        "True and",
        (STAND_INS,),
    ),
    Fault(
        "a stand-in takes no notice of a module that has been exchanged",
        "core/torch_engine/cpu/blocks.py",
        " and all([*now.values()] == then for now, then in self.parts)",
        "",
        (STAND_INS,),
    ),
    Fault(
        "rotations of other positions are read",
        "core/torch_engine/cpu/heads.py",
        "== (rows, width, cos.shape[-1])",
        "",
        (STAND_INS,),
    ),
    Fault(
        "a stand-in keeps the weights that it was tried with",
        "core/torch_engine/cpu/modules.py",
        "lambda rows: found.product(rows)",
        "found.product",
        (STAND_INS,),
    ),
    Fault(
        "a layer takes what was computed of other rows",
        "core/torch_engine/cpu/modules.py",
        "if not kept or kept[0][0] is not rows:",
        "if not kept:",
        ("core/test_cpu_modules.py",),
    ),
    Fault(
        "a pass ends before its tokens are sampled",
        "core/torch_engine/eager.py",
        "t_end=t3, prepare",
        "t_end=t2, prepare",
        (ENGINE,),
    ),
    Fault(
        "the forward pass is charged with the sampling",
        "core/torch_engine/eager.py",
        "forward=t2 - t1, sample",
        "forward=t3 - t1, sample",
        (ENGINE,),
    ),
    # -- what is on record
    Fault(
        "any running request may be preempted",
        "core/trace/rules/steps.py",
        'elif self._own and self._policy.victim == "newest" and request != state.running[-1]:',
        "elif False:",
        (RULES,),
    ),
    Fault(
        "any request may be admitted",
        "core/trace/rules/steps.py",
        "if request not in self._next():",
        "if request not in self.state.waiting:",
        (RULES,),
    ),
    Fault(
        "tokens need not be counted against the budget",
        "core/trace/rules/steps.py",
        "if limit is not None and (unused < 0 or decode + prefill + unused != limit):",
        "if False:",
        (RULES,),
    ),
    Fault(
        "a cache may have holes",
        "core/trace/rules/steps.py",
        "if s.start != state.computed[s.request]:",
        "if False:",
        (RULES,),
    ),
    # -- what is said of it
    Fault(
        "padding waste is divided by tokens",
        "core/account/metrics.py",
        '_ratio(positions["padding"], positions["computed"])',
        '_ratio(positions["padding"], positions["tokens"])',
        (METRICS,),
    ),
    Fault(
        "prompts of requests that never ran are counted",
        "core/account/metrics.py",
        "life.num_prompt_tokens for life in lives if life.num_tokens)",
        "life.num_prompt_tokens for life in lives)",
        (METRICS,),
    ),
    Fault(
        "TTFT is counted from the first pass",
        "core/account/request_times.py",
        "return None if first is None or self.arrival is None else first - self.arrival",
        "return None if first is None or self.first_pass is None else first - self.first_pass",
        (METRICS,),
    ),
    Fault(
        "an overrun is counted as useful work",
        "core/account/metrics.py",
        "sum(p.tokens for p in passes) - overrun\n",
        "sum(p.tokens for p in passes)\n",
        (METRICS, ASYNC),
    ),
    Fault(
        "only the first run of a contender is compared",
        "core/measure/compare.py",
        "self._differences += [d for d in found if d not in self._differences]",
        "self._differences += found if turn.round == 0 else []",
        ("core/test_compare.py",),
    ),
    Fault(
        "statements about a comparison need not follow from its rounds",
        "core/measure/compare.py",
        "if recorded.get(name) != follows[name]:",
        "if name not in recorded:",
        (COMPARISON,),
    ),
    Fault(
        "a comparison's shares need not be its run's",
        "core/measure/compare.py",
        "not _same(medians.get(key), value)",
        "key not in medians",
        (COMPARISON,),
    ),
    Fault(
        "the time in the queue lasts to the first token",
        "core/serving/metrics.py",
        '"request_queue_time_seconds", times.admitted - times.arrived)',
        '"request_queue_time_seconds", times.first_token - times.arrived)',
        (SERVING,),
    ),
    Fault(
        "time per output token is divided by all tokens",
        "core/serving/metrics.py",
        "(stream.num_tokens - 1))",
        "stream.num_tokens)",
        (SERVING,),
    ),
    Fault(
        "the gap to the previous token is measured to the first",
        "core/serving/metrics.py",
        '"inter_token_latency_seconds", t - times.last_token)',
        '"inter_token_latency_seconds", t - (times.first_token or t))',
        (SERVING,),
    ),
    Fault(
        "a metric counts pads as tokens",
        "core/serving/metrics.py",
        '"iteration_tokens_total", sum(p.tokens for p in event.passes))',
        '"iteration_tokens_total", sum(p.rows * p.width for p in event.passes))',
        (SERVING,),
    ),
    Fault(
        "only Python rounds durations to even",
        "visualizer/words/vocabulary.py",
        "ms.quantize(Decimal(places), ROUND_HALF_UP)",
        "ms.quantize(Decimal(places))",
        ("visualizer/test_captions.py",),
    ),
    # -- what check asks
    Fault(
        "timings need not be the passes'",
        "core/trace/rules/bounds.py",
        "return (\n"
        "        abs(prepare + forward + sample - passes) <= rounding\n"
        "        and schedule + passes <= whole + rounding\n"
        "    )",
        "return schedule + passes <= whole + rounding",
        (VERIFY,),
    ),
    Fault(
        "a graph may be of any size",
        "core/trace/rules/bounds.py",
        "forward.bucket == bucket <=",
        "(forward.bucket or 0) <=",
        (VERIFY,),
    ),
    Fault(
        "a limit that never bound is not named",
        "core/proof/verify.py",
        "for limit in limits if not absent.get(limit)])",
        "for limit in limits if absent.get(limit)])",
        (VERIFY,),
    ),
    Fault(
        "a preemption does not show how large the pool is",
        "core/proof/verify.py",
        "bound = {event.budget.binding, *[why.limit for why in reasons if why]} | (\n"
        '            {"blocks"} if event.preempted else set()\n'
        "        )",
        "bound = {event.budget.binding, *[why.limit for why in reasons if why]}",
        (f"{VERIFY}::test_a_preemption_shows_how_large_the_pool_is",),
    ),
    Fault(
        "a rerun does not compare the model's sizes",
        "core/proof/rerun.py",
        "if recorded != found and not (",
        "if False and not (",
        (VERIFY,),
    ),
    Fault(
        "a request may end before the model ends it",
        "core/proof/rerun.py",
        'if ended in ("length", "stop") and len(ours)',
        "if False and len(ours)",
        (RERUN,),
    ),
    Fault(
        "logits may be said to have not been finite",
        "core/proof/rerun.py",
        'if ended == "error" and ends_here',
        "if False and ends_here",
        (RERUN,),
    ),
    Fault(
        "tokens of steps that are not shown are not run again",
        "core/proof/rerun.py",
        "for request, token, facts in [*((r, t, (None, None)) for r, t in unseen), *sampled]:",
        "for request, token, facts in sampled:",
        ("core/test_requeue.py",),
    ),
    Fault(
        "another engine's drawn tokens count as compared",
        "core/proof/rerun.py",
        "if not self._own and request.sampling.temperature > 0:",
        "if False:",
        (RERUN,),
    ),
    Fault(
        "a run of ours is another engine's by its name",
        "core/trace/header.py",
        "if self.engine and (ours := [*self._ours()]):",
        "if self.engine and (ours := []):",
        ("core/test_header.py",),
    ),
    Fault(
        "a line may have fields that nobody knows",
        "core/trace/file.py",
        "if unknown := data.keys() - _FIELDS.get(str(kind), data.keys()):",
        "if unknown := set():",
        (VERIFY,),
    ),
    Fault(
        "an idle engine numbers a step early",
        "core/proof/replay.py",
        "max(first, math.ceil(next_one.request.arrival))",
        "max(first, math.floor(next_one.request.arrival))",
        (f"{VERIFY}::test_an_idle_engine_goes_on_at_the_step_of_the_next_arrival_and_no_other",),
    ),
    Fault(
        "a request may not leave while the engine is idle",
        "core/proof/replay.py",
        "first = first if cancelled else last",
        "first = last",
        (f"{VERIFY}::test_an_idle_engine_tells_a_step_between_only_for_a_request_that_leaves",),
    ),
    Fault(
        "an idle engine tells steps in which nothing happens",
        "core/proof/replay.py",
        "                first = first if cancelled else last\n",
        "",
        (f"{VERIFY}::test_an_idle_engine_tells_a_step_between_only_for_a_request_that_leaves",),
    ),
    Fault(
        "arrivals one by one may be told in another unit",
        "core/proof/replay.py",
        "if not self._header.counts_steps and times.get(request) != plan:",
        "if not self._header.counts_steps and not self._header.is_interactive and "
        "times.get(request) != plan:",
        (VERIFY,),
    ),
    Fault(
        "an imported request waits at the front when it was preempted",
        "core/recorders/conversion.py",
        "RunState.of({}, self._config.policy.requeue)",
        "RunState.of({}, False)",
        ("core/test_requeue.py",),
    ),
    Fault(
        "a recording with a hole and no snapshot goes on",
        "core/recorders/convert.py",
        "elif not recording.snapshots:",
        "elif False:",
        ("core/test_gaps.py",),
    ),
    Fault(
        "another engine's reasons may have any numbers",
        "core/trace/rules/bounds.py",
        "return (\n"
        "        why is None\n"
        "        or why in (NOTHING_BINDS, SKIPPED, UNRECORDED)\n"
        "        or (\n"
        "            why.total == totals.get(why.limit)\n"
        "            and 0 <= why.have < why.need\n"
        "            and why.have <= why.total\n"
        "        )\n"
        "    )",
        "return why is None or why in (NOTHING_BINDS, SKIPPED, UNRECORDED) or why.limit in totals",
        (OTHERS,),
    ),
    Fault(
        "another engine may preempt with blocks free",
        "core/trace/rules/recorded.py",
        "if not self._holds_blocks and free - kept >=",
        "if False and free - kept >=",
        (OTHERS,),
    ),
    Fault(
        "another engine's request may have blocks to spare",
        "core/trace/rules/blocks.py",
        "if (\n"
        "                group.kind in BY_POSITION\n"
        "                and not self._own\n"
        "                and len(table) // units > -(-(needed + ahead) // size)\n"
        "            ):",
        "if group.kind in BY_POSITION and not self._own and len(table) < 0:",
        (OTHERS,),
    ),
    Fault(
        "another engine's lanes need not be the lowest",
        "core/trace/rules/recorded.py",
        "if lane != lowest_free(taken):",
        "if lane in taken:",
        (OTHERS,),
    ),
    Fault(
        "another engine's header may name rules of its own",
        "core/trace/rules/recorded.py",
        "for fact in [*rules, *stated]",
        "for fact in rules",
        (OTHERS,),
    ),
    Fault(
        "anything may be said to be absent",
        "core/trace/rules/recorded.py",
        "if unknown := [fact for fact in header.absent if fact not in _MAY_BE_ABSENT]:",
        "if unknown := []:",
        (OTHERS,),
    ),
    Fault(
        "another engine's scheduling may take any time",
        "core/trace/rules/recorded.py",
        "if (\n"
        "            max(abs(event.timings.schedule - scheduling), "
        "abs(event.timings.forward - computing))\n"
        "            > ROUNDING\n"
        "        ):",
        "if abs(event.timings.forward - computing) > ROUNDING:",
        (OTHERS,),
    ),
    Fault(
        "another engine may propose more than it says",
        "core/trace/rules/recorded.py",
        "if self._proposes is not None and max(drafted.values(), default=0) > self._proposes:",
        "if False:",
        (OTHERS,),
    ),
    Fault(
        "any of another engine's requests may give way",
        "core/trace/rules/recorded.py",
        'if self._policy.victim == "newest" and gone != set(running[-len(gone) :]):',
        "if False:",
        (OTHERS,),
    ),
    Fault(
        "another engine's requests may join in any order",
        "core/trace/rules/recorded.py",
        "if (\n"
        '            self._policy.order_by == "arrival"\n'
        "            and not skips\n"
        "            and not joining <= set(list(state.waiting)[: len(joining)])\n"
        "        ):",
        "if False and not skips and not joining <= set(list(state.waiting)[: len(joining)]):",
        (OTHERS,),
    ),
    Fault(
        "another engine preempts as if no blocks were kept",
        "core/trace/rules/recorded.py",
        "kept = int(self._policy.watermark * (self._header.num_blocks + 1))",
        "kept = 0",
        (RECORDED_RULES,),
    ),
    Fault(
        "another engine's share of the pool leaves out its null block",
        "core/trace/rules/recorded.py",
        "self._policy.watermark * (self._header.num_blocks + 1)",
        "self._policy.watermark * self._header.num_blocks",
        (RECORDED_RULES,),
    ),
    Fault(
        "another engine may preempt with just enough blocks free",
        "core/trace/rules/recorded.py",
        "if not self._holds_blocks and free - kept >= (",
        "if not self._holds_blocks and free - kept > (",
        (RECORDED_RULES,),
    ),
    Fault(
        "an engine may not take back the blocks of all",
        "core/trace/rules/recorded.py",
        "if not gone or gone == set(running):",
        "if not gone:",
        (RECORDED_RULES,),
    ),
    Fault(
        "a shared block is in use once for each holder",
        "core/trace/rules/recorded.py",
        "free = self._header.num_blocks - len(\n"
        "            {block for request in state.tables for block in "
        "state.blocks_of(request)}",
        "free = self._header.num_blocks - sum(\n"
        "            len(state.blocks_of(request)) for request in state.tables",
        (RECORDED_RULES,),
    ),
    Fault(
        "a connector's blocks must be free",
        "core/trace/rules/recorded.py",
        "if not self._holds_blocks and free - kept",
        "if free - kept",
        (RECORDED_RULES,),
    ),
    Fault(
        "drafts of one step have blocks, not of two",
        "core/trace/rules/recorded.py",
        "self.ahead = 2 * (self._proposes or 0)",
        "self.ahead = self._proposes or 0",
        (RECORDED_RULES,),
    ),
    Fault(
        "drafts that no header announces have blocks for one step",
        "core/trace/rules/recorded.py",
        "*(2 * draft.drafted for draft",
        "*(draft.drafted for draft",
        (RECORDED_RULES,),
    ),
    Fault(
        "a preemption makes no room for drafts",
        "core/trace/rules/recorded.py",
        "most = (\n"
        "            max(\n"
        "                [\n"
        "                    state.num_tokens[request],\n"
        "                    *(s.kv_len for s in event.segments if s.request == request),\n"
        "                ]\n"
        "            )\n"
        "            + self.ahead",
        "most = max(\n"
        "            [state.num_tokens[request], *(s.kv_len for s in event.segments "
        "if s.request == request)]",
        (RECORDED_RULES,),
    ),
    Fault(
        "a state of a preempting engine has no blocks for drafts",
        "core/trace/rules/recorded.py",
        "else 1 + self.ahead)",
        "else 1)",
        (RECORDED_RULES,),
    ),
    Fault(
        "one request's spare blocks are another's",
        "core/trace/rules/recorded.py",
        "max(needed, 0 if group.kind",
        "max(needed, -99 if group.kind",
        (RECORDED_RULES,),
    ),
    Fault(
        "a ring grows with its request",
        "core/trace/rules/recorded.py",
        'kept = min(most, group.window or most) if group.kind == "ring" else most',
        "kept = most",
        (RECORDED_RULES,),
    ),
    Fault(
        "a group's blocks have the size of all others",
        "core/trace/rules/recorded.py",
        "(group.block_size or self._config.block_size)) - len",
        "self._config.block_size) - len",
        (RECORDED_RULES,),
    ),
    Fault(
        "a gap may begin where steps are on record",
        "core/trace/rules/recorded.py",
        "and (before < 0 or resumed.first == before + 1)",
        "",
        (RECORDED_RULES,),
    ),
    Fault(
        "a gap may end before the step that follows it",
        "core/trace/rules/recorded.py",
        "resumed.last + 1 == event.step and ",
        "",
        (RECORDED_RULES,),
    ),
    Fault(
        "who had finished before a gap has its lane after it",
        "core/trace/rules/recorded.py",
        "held = {\n"
        "            request: lane\n"
        "            for lane, request in before.lanes.items()\n"
        "            if request not in before.finished\n"
        "        }",
        "held = {request: lane for lane, request in before.lanes.items()}",
        (RECORDED_RULES,),
    ),
    Fault(
        "who comes in a gap may have a lane that is held",
        "core/trace/rules/recorded.py",
        "((c.request, c.lane) for c in resumed.running if c.request not in kept), kept.values()",
        "((c.request, c.lane) for c in resumed.running if c.request not in kept), ()",
        (RECORDED_RULES,),
    ),
    Fault(
        "a request may change its lane in a gap",
        "core/trace/rules/recorded.py",
        ") or next(\n"
        "            (\n"
        "                self._elsewhere(c.request)\n"
        "                for c in resumed.running\n"
        "                if kept.get(c.request, c.lane) != c.lane\n"
        "            ),\n"
        "            None,\n"
        "        )",
        ") or next((self._elsewhere(c.request) for c in resumed.running if False), None)",
        (RECORDED_RULES,),
    ),
    Fault(
        "nobody is ever passed over in another engine's queue",
        "core/trace/rules/recorded.py",
        "if (\n"
        '            self._policy.order_by == "arrival"\n'
        "            and not skips\n"
        "            and not joining <= set(list(state.waiting)[: len(joining)])",
        'if self._policy.order_by == "arrival" and not joining <= set(\n'
        "            list(state.waiting)[: len(joining)]",
        (RECORDED_RULES,),
    ),
    Fault(
        "whoever was passed over stays next",
        "core/trace/rules/recorded.py",
        "self._next = None if event.waiting.why in (SKIPPED, UNRECORDED) else head",
        "self._next = head",
        (RECORDED_RULES,),
    ),
    Fault(
        "who was next before a gap is next after it",
        "core/trace/rules/recorded.py",
        "            self._next = None\n            follows",
        "            follows",
        (RECORDED_RULES,),
    ),
    Fault(
        "who is held by a connector may not be next",
        "core/trace/rules/recorded.py",
        "if head is None or self._holds_blocks or",
        "if head is None or",
        (RECORDED_RULES,),
    ),
    Fault(
        "an order that is not recorded is some order",
        "core/trace/rules/recorded.py",
        " or self._policy.order_by == NOT_RECORDED:",
        ":",
        (RECORDED_RULES,),
    ),
    Fault(
        "others may join before who is next",
        "core/trace/rules/recorded.py",
        "is_next = not stays or (\n"
        "                head in {before, *new} and {a.request for a in "
        "event.admitted} <= new\n"
        "            )",
        "is_next = not stays or head in {before, *new}",
        (RECORDED_RULES,),
    ),
    Fault(
        "anybody may be next in an order of its own",
        "core/trace/rules/recorded.py",
        "is_next = not stays or (\n"
        "                head in {before, *new} and {a.request for a in "
        "event.admitted} <= new\n"
        "            )",
        "is_next = not stays or ({a.request for a in event.admitted} <= new)",
        (RECORDED_RULES,),
    ),
    Fault(
        "a request alone is cut into chunks",
        "core/trace/rules/recorded.py",
        "alone = len(state.running) + len(state.waiting) < 2",
        "alone = False",
        (RECORDED_RULES,),
    ),
    Fault(
        "who runs alone is alone though others wait",
        "core/trace/rules/recorded.py",
        "alone = len(state.running) + len(state.waiting) < 2",
        "alone = len(state.running) < 2",
        (RECORDED_RULES,),
    ),
    Fault(
        "positions in vain are within the context",
        "core/trace/rules/recorded.py",
        "            if s.request in over:\n                continue\n",
        "",
        (RECORDED_RULES,),
    ),
    Fault(
        "drafts count as tokens of another engine's request",
        "core/trace/rules/recorded.py",
        "end = s.kv_len - drafted.get(s.request, 0)",
        "end = s.kv_len",
        (RECORDED_RULES,),
    ),
    Fault(
        "drafts make a chunk too long",
        "core/trace/rules/recorded.py",
        "s.length - drafted.get(s.request, 0) > longest",
        "s.length > longest",
        (RECORDED_RULES,),
    ),
    Fault(
        "blocks are kept for nobody",
        "core/trace/inferred.py",
        "kept = 0 if alone else int",
        "kept = int",
        (RECORDED_RULES,),
    ),
    Fault(
        "another engine waits as if no blocks were kept",
        "core/trace/inferred.py",
        "kept = 0 if alone else int(config.policy.watermark * (blocks[1] + 1))",
        "kept = 0",
        (RECORDED_RULES,),
    ),
    Fault(
        "another engine reserves all of a prompt, whatever it says",
        "core/trace/inferred.py",
        'tokens if config.policy.reserve == "prompt" else min(tokens, budget[0])',
        "tokens",
        (RECORDED_RULES,),
    ),
    Fault(
        "any first chunk is the longest",
        "core/trace/inferred.py",
        "if longest and length == longest\n",
        "if longest\n",
        (RECORDED_RULES,),
    ),
    Fault(
        "who stalls beside nobody who gave way lacks blocks",
        "core/trace/inferred.py",
        "if blocks[0] <= 0 and gives_way else",
        "if blocks[0] <= 0 else",
        (RECORDED_RULES,),
    ),
    Fault(
        "a request without a block is never skipped",
        "core/trace/inferred.py",
        ' or config.policy.victim == "blocked"',
        "",
        (RECORDED_RULES,),
    ),
    Fault(
        "drafts may lie within a prompt",
        "core/trace/rules/steps.py",
        "if (\n"
        "            s.kv_len - drafted > num_tokens or (drafted and s.kv_len - "
        "drafted < num_tokens)\n"
        "        ) and not late:",
        "if (s.kv_len - drafted > num_tokens) and not late:",
        (OTHERS,),
    ),
    Fault(
        "facts declared absent may be present",
        "core/trace/rules/steps.py",
        "for name in self._numbers_absent):",
        "for name in ()):",
        (OTHERS,),
    ),
    Fault(
        "a character is returned before it is complete",
        "core/trace/detokenize.py",
        "return text[: len(text) - self._held]",
        "return text",
        ("core/test_detokenize.py",),
    ),
    # -- clocks: of serving, of the engine, of a simulation
    Fault(
        "a request has arrived once the engine's thread sees it",
        "core/serving/engine_thread.py",
        "to_microseconds(max(0.0, stream.times.arrived - engine.began)), engine.now\n",
        "engine.now, engine.now\n",
        (CLOCK,),
    ),
    Fault(
        "a request may have arrived before its run",
        "core/serving/engine_thread.py",
        "max(0.0, stream.times.arrived - engine.began)",
        "stream.times.arrived - engine.began",
        (CLOCK,),
    ),
    Fault(
        "a client's times are counted from the beginning of a run",
        "core/serving/output_processor.py",
        "stream.times.admitted = self._began + event.t_start",
        "stream.times.admitted = event.t_start",
        (CLOCK,),
    ),
    Fault(
        "preparing the passes is on the clock of the run",
        "core/engine/engine.py",
        "        self._runner().begin()\n        self._loop.origin = self._clock()\n",
        "        self._runner().begin()\n",
        (CLOCK,),
    ),
    Fault(
        "the wall time has the time before the first arrival",
        "core/account/metrics.py",
        "- min([first.t_start, *(a.t for a in first.arrived)])",
        "- 0.0",
        (CLOCK,),
    ),
    Fault(
        "the wall time begins with the first step",
        "core/account/metrics.py",
        "- min([first.t_start, *(a.t for a in first.arrived)])",
        "- first.t_start",
        (CLOCK,),
    ),
    Fault(
        "a stream that is never read keeps the engine at work",
        "core/engine/engine.py",
        "        next(steps)",
        "        # ",
        (STREAM,),
    ),
    Fault(
        "the steps of a new run are told as the old one's",
        "core/engine/engine.py",
        "while trace is self.trace and self.has_work:",
        "while self.has_work:",
        (STREAM,),
    ),
    Fault(
        "who leaves before arriving arrives after now",
        "core/engine/arrivals.py",
        "round(min(planned, loop.now), 6)",
        "round(planned, 6)",
        (f"{ENGINE}::test_who_leaves_before_the_planned_arrival_arrived_when_leaving",),
    ),
    Fault(
        "a pass of a device's clock ends before it begins",
        "core/engine/step.py",
        "max(result.t_start, time), max(result.t_end, time)",
        "max(result.t_start, time), result.t_end",
        (f"{ENGINE}::test_a_clock_of_the_devices_own_never_goes_back",),
    ),
    Fault(
        "attention's own work is free by data sheet",
        "core/simulate/roofline.py",
        "per_pair_s=self.flops_per_pair / flops,",
        "per_pair_s=0.0,",
        (ROOFLINE,),
    ),
    Fault(
        "cards that share a model talk for nothing",
        "core/simulate/roofline.py",
        "if self.card.link is not None and self.cards > 1:",
        "if False:",
        (ROOFLINE,),
    ),
    Fault(
        "a simulated comparison takes the stopwatch's time",
        "core/measure/rounds.py",
        "wall_s(trace) if trace.header.is_simulated else None",
        "None",
        (SIMULATED,),
    ),
    Fault(
        "a simulation's totals leave out who ends by itself",
        "core/simulate/totals.py",
        'if reason in ("length", "stop"):',
        'if reason == "length":',
        (TOTALS,),
    ),
    # -- what a client is answered
    Fault(
        "the offsets of a later choice go on from the first's",
        "core/serving/http/openai.py",
        "offsets.append(self._offsets.get(index, 0))\n            self._offsets[index]",
        "offsets.append(self._offsets.get(0, 0))\n            self._offsets[0]",
        (SERVED,),
    ),
    Fault(
        "text held back is lost at an end without a token",
        "core/serving/output_processor.py",
        "(\n"
        "                        stream,\n"
        "                        Piece(\n"
        "                            stream.num_tokens,\n"
        "                            None,\n"
        "                            answer.shown.finish(answer.text.finish()),\n"
        "                            None,\n"
        "                            reason,\n"
        "                        ),\n"
        "                    )",
        "(stream, Piece(stream.num_tokens, None, answer.text.finish(), None, reason))",
        (CLIENT_TEXT,),
    ),
    Fault(
        "a broken character is lost at an end without a token",
        "core/serving/output_processor.py",
        "(\n"
        "                        stream,\n"
        "                        Piece(\n"
        "                            stream.num_tokens,\n"
        "                            None,\n"
        "                            answer.shown.finish(answer.text.finish()),\n"
        "                            None,\n"
        "                            reason,\n"
        "                        ),\n"
        "                    )",
        '(stream, Piece(stream.num_tokens, None, answer.shown.finish(""), None, reason))',
        (CLIENT_TEXT,),
    ),
    Fault(
        "a request that could never run is counted as a failure",
        "core/serving/output_processor.py",
        "        if not isinstance(error, InvalidRequest):\n",
        "        if True:\n",
        (SERVING,),
    ),
    # -- who may ask a server, for how much, and what a refusal says
    Fault(
        "who has left the line still stands in it",
        "core/serving/turns.py",
        "                line.remove(turn)\n"
        "                if not line:\n"
        "                    del self._waiting[address]\n",
        "                pass\n",
        (TURNS,),
    ),
    Fault(
        "a failure keeps its place",
        "core/serving/turns.py",
        "        try:\n            yield\n        finally:\n            self.free(address)\n",
        "        yield\n        self.free(address)\n",
        (TURNS,),
    ),
    Fault(
        "a name is known only as it was typed",
        "core/serving/http/sites.py",
        '{name.lower().rstrip(".") for name in',
        "{name for name in",
        (SITES,),
    ),
    Fault(
        "a server does not know the name of its machine",
        "core/serving/http/sites.py",
        "(*names, socket.gethostname())",
        "names",
        (SITES,),
    ),
    Fault(
        "a full stop after a name makes it another",
        "core/serving/http/sites.py",
        '(_split(f"//{host}").hostname or "").rstrip(".")',
        '(_split(f"//{host}").hostname or "")',
        (SITES,),
    ),
    Fault(
        "an origin of any scheme is the host's",
        "core/serving/http/sites.py",
        "        implied is not None\n        and bool",
        "        bool",
        (SITES,),
    ),
    Fault(
        "a body that says its length has a byte fewer",
        "core/serving/http/guard.py",
        "int(announced) > most",
        "int(announced) >= most",
        (REFUSALS,),
    ),
    Fault(
        "a body in chunks has a byte fewer",
        "core/serving/http/guard.py",
        "if received > most:",
        "if received >= most:",
        (REFUSALS,),
    ),
    Fault(
        "the type of a body is known in small letters alone",
        "core/serving/http/guard.py",
        '.partition(";")[0].strip().lower()',
        '.partition(";")[0].strip()',
        (REFUSALS,),
    ),
    Fault(
        "the type of a body may not name its characters",
        "core/serving/http/guard.py",
        '.partition(";")[0].strip().lower()',
        ".strip().lower()",
        (REFUSALS,),
    ),
    Fault(
        "a scheme is known with a capital alone",
        "core/serving/http/guard.py",
        'scheme.lower() != "bearer"',
        'scheme != "Bearer"',
        (REFUSALS,),
    ),
    Fault(
        "a body given up does not end its connection",
        "core/serving/http/guard.py",
        '{408: {"connection": "close"}, 503: ',
        "{503: ",
        (REFUSALS,),
    ),
    Fault(
        "too many requests have no code",
        "core/serving/http/errors.py",
        ', 429: "rate_limit_exceeded"}',
        "}",
        (REFUSALS,),
    ),
    Fault(
        "a server that takes nothing calls the request invalid",
        "core/serving/http/errors.py",
        ', 503: "server_error"}',
        "}",
        (REFUSALS,),
    ),
    Fault(
        "a refusal of HTTP's is no sentence",
        "core/serving/http/errors.py",
        'str(error.detail).rstrip(".") + "."',
        "str(error.detail)",
        (REFUSALS,),
    ),
    Fault(
        "a refusal of HTTP's loses its headers",
        "core/serving/http/errors.py",
        "return error_response(\n"
        '            error.status_code, str(error.detail).rstrip(".") + ".", '
        "headers=error.headers\n"
        "        )",
        'return error_response(error.status_code, str(error.detail).rstrip(".") + ".")',
        (REFUSALS,),
    ),
    Fault(
        "a refusal of HTTP's is not counted",
        "core/serving/http/errors.py",
        "        refused(error.status_code)\n",
        "",
        (REFUSALS,),
    ),
    Fault(
        "a refused model is not counted",
        "core/serving/http/errors.py",
        "            refused(404)\n",
        "",
        (REFUSALS,),
    ),
    Fault(
        "an unforeseen failure is not counted",
        "core/serving/http/errors.py",
        "        refused(500)\n",
        "",
        (REFUSALS,),
    ),
    Fault(
        "an unforeseen failure does not say that its connection ends",
        "core/serving/http/errors.py",
        "# uvicorn closes it\n"
        "        return error_response(\n"
        '            500, "Something went wrong in the server.", '
        'headers={"connection": "close"}\n'
        "        )",
        'return error_response(500, "Something went wrong in the server.")  # uvicorn closes it',
        (REFUSALS,),
    ),
    Fault(
        "a place is given back as often as it is freed",
        "core/serving/limits.py",
        "            if place.is_taken:\n",
        "            if True:\n",
        (TURNS,),
    ),
    Fault(
        "a name is repeated however long it is",
        "core/serving/http/errors.py",
        "len(name) <= _LONGEST_NAME and name",
        "name",
        (REFUSALS,),
    ),
    # -- what a recorder tells
    Fault(
        "a preemption is told once its counters are zero",
        "core/recorders/vllm/inflight_vllm/schedulers.py",
        "        self._tell(Recorder.preempted, request)  # before: preemption sets "
        "its counters to zero\n"
        "        super()._preempt_request(request, *args, **kwargs)\n",
        "        super()._preempt_request(request, *args, **kwargs)\n"
        "        self._tell(Recorder.preempted, request)\n",
        (RECORDING,),
    ),
    Fault(
        "requests held by a connector do not count as waiting",
        "core/recorders/vllm/inflight_vllm/recorder.py",
        "len(waiting) + len(holding)",
        "len(waiting)",
        (RECORDING,),
    ),
    Fault(
        "a request held by a connector is not the head",
        "core/recorders/vllm/inflight_vllm/recorder.py",
        "queue = holding or waiting",
        "queue = waiting",
        (RECORDING,),
    ),
    Fault(
        "a snapshot leaves out who is held by a connector",
        "core/recorders/vllm/inflight_vllm/snapshot.py",
        'queues = getattr(scheduler, "kv_holding_waiting", ()), scheduler.waiting',
        "queues = (), scheduler.waiting",
        (SNAPSHOT,),
    ),
    Fault(
        "a snapshot has no blocks of who is held by a connector",
        "core/recorders/vllm/inflight_vllm/snapshot.py",
        "holding = self.num_running + self.num_waiting[0]",
        "holding = self.num_running",
        (SNAPSHOT,),
    ),
    Fault(
        "rejected drafts are counted in a snapshot, all but the last",
        "core/recorders/vllm/inflight_vllm/snapshot.py",
        "self.computed[at] -= len(guessed) - len(got) + 1",
        "self.computed[at] -= len(guessed) - len(got)",
        (SNAPSHOT,),
    ),
    Fault(
        "a mask is not read beside multiples of its window",
        "core/torch_engine/attention/observe.py",
        "for m in (1, 2, 3) for d",
        "for m in (1,) for d",
        (MASKS,),
    ),
    Fault(
        "a mask is read only at multiples of its window",
        "core/torch_engine/attention/observe.py",
        "for d in (-2, -1, 0, 1)",
        "for d in (0,)",
        (MASKS,),
    ),
    # -- what is asked and taken away: calls, files, tables
    Fault(
        "true is taken for a step",
        "visualizer/jobs/calls.py",
        "isinstance(value, bool) or (isinstance",
        "(isinstance",
        (CALLS,),
    ),
    Fault(
        "a call may be given what is no number",
        "visualizer/jobs/calls.py",
        "not abs(value) < _MOST",
        "abs(value) >= _MOST",
        (CALLS,),
    ),
    Fault(
        "a call may be given more than it takes",
        "visualizer/jobs/calls.py",
        "len(given) > len(kinds) or not",
        "not",
        (CALLS,),
    ),
    Fault(
        "anything is a list without arguments",
        "visualizer/jobs/calls.py",
        "else [None] * (len(kinds) + 1)",
        "else []",
        (CALLS,),
    ),
    Fault(
        "what may be left out has to be there",
        "visualizer/jobs/calls.py",
        "    given += [None] * (len(kinds) - len(given))\n",
        "",
        (CALLS,),
    ),
    Fault(
        "a call that nobody answers is made",
        "visualizer/jobs/calls.py",
        "if kinds is None or name not in functions:",
        "if kinds is None:",
        (CALLS,),
    ),
    Fault(
        "a run without steps has a page",
        "visualizer/page/one_file.py",
        "    if not what.events:\n",
        "    if False:\n",
        (ONE_FILE,),
    ),
    Fault(
        "a page that fills its window has a frame",
        "visualizer/page/one_file.py",
        '{"embedded": in_cell}',
        '{"embedded": True}',
        (ONE_FILE,),
    ),
    Fault(
        "a comparison without traces has a page",
        "visualizer/page/one_file.py",
        "    if not traces:\n",
        "    if False:\n",
        (ONE_FILE,),
    ),
    Fault(
        "anything has a page",
        "visualizer/page/one_file.py",
        "    if not isinstance(what, Trace):\n",
        "    if False:\n",
        (ONE_FILE,),
    ),
    Fault(
        "a name may be a mark of the page",
        "visualizer/page/bundle.py",
        'return re.sub("|".join(map(re.escape, parts)), lambda found: parts[found.group()], page)',
        "for mark, text in parts.items():\n"
        "        page = page.replace(mark, text)\n"
        "    return page",
        (ONE_FILE,),
    ),
    Fault(
        "a lesson's file offers languages that it does not have",
        "visualizer/page/one_file.py",
        'made | {"languages": {}}',
        "made",
        (ONE_FILE,),
    ),
    Fault(
        "a comparison's page tells the load of the moment",
        "visualizer/page/one_file.py",
        ' | {"load_average": comparison.load}',
        "",
        (ONE_FILE,),
    ),
    Fault(
        "a table counts a request for each of its passes",
        "core/account/tables.py",
        "len(event.running)",
        "len(event.segments)",
        (LIBRARY,),
    ),
    Fault(
        "a table counts who joins as arrived",
        "core/account/tables.py",
        '"arrived": len(event.arrived)',
        '"arrived": len(event.admitted)',
        (LIBRARY,),
    ),
    Fault(
        "a table counts the first of those who wait",
        "core/account/tables.py",
        '"waiting": event.waiting.count',
        '"waiting": int(event.waiting.request is not None)',
        (LIBRARY,),
    ),
    Fault(
        "a table has no pads",
        "core/account/tables.py",
        "sum(p.padding for p in event.passes)",
        "0",
        (LIBRARY,),
    ),
    Fault(
        "a table has the size of the pool for what is in use",
        "core/account/tables.py",
        '"kv_blocks": event.kv.used',
        '"kv_blocks": event.kv.total',
        (LIBRARY,),
    ),
    Fault(
        "a table has another part of the time",
        "core/account/tables.py",
        '"schedule_s": event.timings.schedule',
        '"schedule_s": event.timings.prepare',
        (LIBRARY,),
    ),
    Fault(
        "policies are compared under one",
        "core/measure/policies.py",
        "engine.under(engine.config.under(policy))",
        "engine.under(engine.config)",
        (LIBRARY,),
    ),
    Fault(
        "policies are compared as often as by default",
        "core/measure/policies.py",
        "else (repeats, 1)",
        "else (5, 1)",
        (LIBRARY,),
    ),
    Fault(
        "nobody is told which policy runs",
        "core/measure/policies.py",
        ", on_run=on_run)",
        ")",
        (LIBRARY,),
    ),
    # -- what the page is sent
    Fault(
        "a broken character at the end of an answer is not sent",
        "visualizer/documents/replay.py",
        "found[finished.request][-1] += detokenizer.finish()",
        "pass",
        (REPLAY,),
    ),
    Fault(
        "an answer begins with the prompt's broken character",
        "visualizer/documents/replay.py",
        "                detokenizer.add(token)\n            detokenizer.finish()",
        "                detokenizer.add(token)",
        (REPLAY,),
    ),
    Fault(
        "letters of ranks go by rank",
        "visualizer/documents/replay.py",
        "enumerate(sorted(arrived))",
        "enumerate(arrived)",
        (REPLAY,),
    ),
    Fault(
        "letters do not go by arrival",
        "core/trace/phrases.py",
        "dict.fromkeys([*arrived, *trace.asked])",
        "dict.fromkeys([*trace.asked, *arrived])",
        (REPLAY,),
    ),
    Fault(
        "a prompt that is done is not said to be",
        "visualizer/words/reasons.py",
        "if s.kv_len < end else",
        "if s.kv_len <= end else",
        (CAPTIONS,),
    ),
    # -- what a shared engine keeps in order
    Fault(
        "what a refused burst had queued goes on",
        "core/serving/classroom.py",
        "            for stream in streams:\n"
        "                stream.cancel()\n"
        "            raise refused",
        "            raise refused",
        (f"{CLASSROOM}::test_a_burst_that_does_not_fit_leaves_nothing_behind",),
    ),
    Fault(
        "who comes back after a preemption is admitted for the first time",
        "core/serving/output_processor.py",
        "if stream.times.admitted is None:",
        "if True:",
        (SERVING,),
    ),
    Fault(
        "a recording is opened at its latest part",
        "core/recorders/growing.py",
        ")\n    return min(",
        ")\n    return max(",
        (
            "core/test_follow.py::test_a_folder_is_followed_from_one_start_of_the_engine_to_the_next",
        ),
    ),
    Fault(
        "a newcomer has a round from before the present one",
        "visualizer/server/jobs.py",
        "job.round = self._last_round[job.address] = max(\n"
        "            served, self._last_round.get(job.address, 0) + 1\n"
        "        )",
        "job.round = self._last_round[job.address] = self._last_round.get(job.address, 0) + 1",
        ("visualizer/test_runs.py::test_who_comes_late_has_no_round_from_before_the_present_one",),
    ),
    Fault(
        "a request goes on when its last reader has left",
        "visualizer/server/live_requests.py",
        "                ask.readers -= 1\n                self._expect_reader(ask)\n",
        "                ask.readers -= 1\n",
        (
            "visualizer/test_live_requests.py::test_a_request_that_nobody_reads_ends_and_frees_its_lane",
        ),
    ),
    Fault(
        "the response kept first goes first, however often it is asked for",
        "visualizer/server/response_cache.py",
        "            self._kept.move_to_end(name)\n",
        "",
        ("visualizer/test_response_cache.py::test_the_oldest_goes_when_there_is_no_room",),
    ),
    Fault(
        "a stay in a lane that a preemption ended is a step longer",
        "visualizer/documents/live.py",
        "        for preempted in event.preempted:\n"
        "            lives[preempted.request].lane_spans[-1][2] = step - 1",
        "        for preempted in event.preempted:\n"
        "            lives[preempted.request].lane_spans[-1][2] = step",
        (f"{LIVE}::test_a_beginning_has_the_lanes_that_each_held_so_far",),
    ),
    Fault(
        "who is over and still computed was there with newcomers",
        "visualizer/documents/live.py",
        "here = {\n"
        "            r: life\n"
        "            for r, life in self._lives.items()\n"
        "            if life.holds_lane and (life.reason is None or r in until_now)\n"
        "        }",
        "here = {r: life for r, life in self._lives.items() if life.holds_lane}",
        (f"{LIVE}::test_how_a_request_went_is_counted_from_the_steps",),
    ),
    Fault(
        "bots lose their names where nicknames are hidden",
        "visualizer/documents/live.py",
        'asked["by"] if asked["isBot"] else ""',
        '""',
        (f"{LIVE}::test_a_bots_name_is_nobodys",),
    ),
    Fault(
        "traces of an earlier comparison stay beside the new",
        "tests/worlds/saved_comparison.py",
        "        old.unlink()\n",
        "        pass\n",
        (f"{VIEWS}::test_saved_and_loaded_it_is_the_same_document",),
    ),
    Fault(
        "most of the waste is called all of it",
        "visualizer/words/findings.py",
        'how = "all" if counts[most] == wasted else',
        'how = "all" if counts[most] >= wasted - 1 else',
        (f"{VIEWS}::test_the_waste_of_running_ahead_is_called_so",),
    ),
    Fault(
        "a simulated run is called what its folder is",
        "visualizer/documents/replay.py",
        '"header": (\n'
        "            header\n"
        '            if source is None or header.get("source") == "simulated"\n'
        '            else header | {"source": source}\n'
        "        ),",
        '"header": header if source is None else header | {"source": source},',
        (REPLAY,),
    ),
    Fault(
        "a page opens before its run",
        "visualizer/documents/places.py",
        'min(offset + event["t_start"]',
        'min(event["t_start"]',
        (PLACES,),
    ),
    Fault(
        "a page opens after its run",
        "visualizer/documents/places.py",
        'max(offset + event["t_end"]',
        'max(event["t_end"]',
        (PLACES,),
    ),
    Fault(
        "a page opens at a step of another rank",
        "visualizer/documents/places.py",
        "ranks.values() if rank is None else [ranks[rank]]",
        "ranks.values()",
        (PLACES,),
    ),
    Fault(
        "a page does not open at the first step",
        "visualizer/documents/places.py",
        "return {\n"
        "        name: value\n"
        '        for name, value in (("step", step), ("rank", rank), ("at", at))\n'
        "        if value is not None\n"
        "    }",
        'return {name: value for name, value in (("step", step), ("rank", rank), '
        '("at", at)) if value}',
        (PLACES,),
    ),
    Fault(
        "a rank without steps is not opened",
        "visualizer/documents/places.py",
        'return {} if rank is None else {"rank": rank}',
        "return {}",
        (PLACES,),
    ),
    Fault(
        "the step before the first is the last",
        "visualizer/lessons/places.py",
        "steps[index if index >= 0 else len(steps)]",
        "steps[index]",
        (PLACES,),
    ),
    Fault(
        "the third time is the first",
        "visualizer/lessons/places.py",
        "[int(given or 1) - 1]",
        "[0]",
        (PLACES,),
    ),
    Fault(
        "a prompt's last chunk is its first",
        "visualizer/lessons/places.py",
        '-1 if name.startswith("last") else 0',
        "0",
        (PLACES,),
    ),
    Fault(
        "only a step's first pass can be mixed",
        "visualizer/lessons/places.py",
        "for i in range(len(e.passes)))",
        "for i in range(1))",
        (PLACES,),
    ),
    Fault(
        "a prompt found in part is a chunk",
        "visualizer/lessons/places.py",
        '"chunks": (\n'
        '        lambda e: any(s.phase == "prefill" and s.start for s in e.segments) '
        "and not e.kv.prefix_hits\n"
        "    ),",
        '"chunks": lambda e: any(s.phase == "prefill" and s.start for s in e.segments),',
        (PLACES,),
    ),
    Fault(
        "one who joins is two",
        "visualizer/lessons/places.py",
        "len(e.admitted) > 1 and any",
        "len(e.admitted) > 0 and any",
        (PLACES,),
    ),
    Fault(
        "one who waits is several",
        "visualizer/lessons/places.py",
        "e.waiting.count > 1",
        "e.waiting.count > 0",
        (PLACES,),
    ),
    Fault(
        "a budget is short though nobody waits for it",
        "visualizer/lessons/places.py",
        '"budget" and e.waiting.count',
        '"budget"',
        (PLACES,),
    ),
    # -- a chat model in the visitor's tab
    Fault(
        "the rows of packed heads stay where llama.cpp turned them",
        "core/torch_engine/models/gguf_for_tab.py",
        "            if turn:\n",
        "            if turn < 0:\n",
        (PACKED,),
    ),
    Fault(
        "a tab reads digits together",
        "core/browser/tokenizer.py",
        r'r"\p{N}|[^\p{N}]+"',
        r'r"\p{N}+|[^\p{N}]+"',
        (PACKED,),
    ),
    Fault(
        "a tab takes what a template writes first for what it writes between",
        "core/browser/chat.py",
        'pairwise(("", *(m["role"] for m in messages), ""))',
        'pairwise(("", *("" for _ in messages), ""))',
        (PACKED,),
    ),
    Fault(
        "a large model is fetched where a server has it",
        "assets/player/engine/engines.js",
        'LARGE.includes(model) ? "server" : "tab"',
        '"tab"',
        ("js/engines.test.js",),
    ),
    Fault(
        "a site's old copy of a large model stays",
        "visualizer/page/engine_files.py",
        '*folder.glob("engine/*/weights.gz")',
        "",
        ("visualizer/test_engine_files.py",),
    ),
    # -- what the browser draws
    Fault(
        "rejected drafts stay in the cache",
        "assets/player/run/run.js",
        "laneSpan.kvLen -= drafted - accepted;",
        "laneSpan.kvLen -= 0;",
        (RUN_JS,),
    ),
    Fault(
        "a cache begins a step where the last one's guesses ended",
        "assets/player/run/run.js",
        "(laneSpan && starts.get(laneSpan.request.id)) ?? kvLen",
        "this.kvLens[i - 1]?.[lane] ?? 0",
        (RUN_JS, SHOWN),
    ),
    Fault(
        "those preempted in one step wait in reverse",
        "assets/player/run/waiting.js",
        "turn(b) - turn(a)",
        "turn(a) - turn(b)",
        (SHOWN,),
    ),
    Fault(
        "the device's idle time before a step is that after it",
        "assets/player/run/run.js",
        "this.events[i].tStart - this.events[i - 1].tEnd;",
        "(this.events[i + 1]?.tStart ?? 0) - this.events[i].tEnd;",
        (RUN_JS, SHOWN),
    ),
    Fault(
        "whoever comes after an idle time was waiting in it",
        "assets/player/run/run.js",
        "this.numWaiting[i - 1] > 0",
        "this.numWaiting[i] > 0",
        (RUN_JS,),
    ),
    Fault(
        "whoever left before an idle time could have been served in it",
        "assets/player/run/run.js",
        "this.laneSpans[index].to >= i);",
        "this.laneSpans[index].to >= i - 1);",
        (RUN_JS,),
    ),
    Fault(
        "blocks found in the prefix cache are drawn as new",
        "assets/player/views/kv.js",
        "from === frame.i && at * blockSize >= (lane.laneSpan.hit || 0)",
        "from === frame.i",
        (SHOWN,),
    ),
    Fault(
        "a query is drawn with the weights of the next one",
        "assets/player/views/mask/cells.js",
        "found.weights[q - first]",
        "found.weights[Math.min(q - first + 1, item.length - 1)]",
        (MASK_JS,),
    ),
    Fault(
        "pads are missing from the budget's bar",
        "assets/player/views/queue.js",
        "if (limit === null && pads) parts",
        "if (limit !== null && pads) parts",
        (SHOWN,),
    ),
    Fault(
        "only the last of a step's new tokens is marked",
        "assets/player/run/run.js",
        "this.numGenerated(request, i - 1),",
        "this.numGenerated(request, i) - 1,",
        (SHOWN,),
    ),
    Fault(
        "a wait after a preemption begins when its step ends",
        "assets/player/run/delays.js",
        "run.events[from].tStart : request.arrived",
        "run.events[from].tEnd : request.arrived",
        (SHOWN,),
    ),
    Fault(
        "a prompt that is computed whole is a chunk",
        "assets/player/run/run.js",
        "segment.kvLen < this.promptLength(request)",
        "segment.kvLen <= this.promptLength(request)",
        (SHOWN,),
    ),
    Fault(
        "columns of the queue go on where nothing could run",
        "assets/player/run/lane_layout.js",
        "while (\n"
        "      end < run.length &&\n"
        "      run.numWaiting[end] === waiting &&\n"
        "      run.events[end].step === run.events[end - 1].step + 1\n"
        "    )\n"
        "      end += 1;",
        "while (end < run.length && run.numWaiting[end] === waiting) end += 1;",
        (LANES_JS,),
    ),
    Fault(
        "a window's last block counts as full",
        "assets/player/run/holdings.js",
        "const end = Math.min(first + blockSize, lane.kvLen);",
        "const end = first + blockSize;",
        (SHOWN,),
    ),
    Fault(
        "a viewer who comes late needs the step of a preemption",
        "assets/player/run/waiting.js",
        "run.events[since]?.preempted",
        "run.events[since].preempted",
        (RUN_JS,),
    ),
    Fault(
        "a cache's KiB have 1000 bytes",
        "assets/player/views/request_card.js",
        "`${(total / 2 ** 10).toFixed",
        "`${(total / 1000).toFixed",
        (RUN_JS,),
    ),
    Fault(
        "the queue's steps are indices",
        "assets/player/views/queue.js",
        "const since = run.stepOf(wait.since);",
        "const since = wait.since;",
        (PANELS,),
    ),
    Fault(
        "lanes write the word of the next step",
        "assets/player/views/lane_ink.js",
        "written(run, request, i)",
        "written(run, request, i + 1)",
        (LANES_JS,),
    ),
    Fault(
        "a block is filled one position too far",
        "assets/player/views/kv.js",
        "clamp((length - at * blockSize) / blockSize, 0, 1)",
        "clamp((length + 1 - at * blockSize) / blockSize, 0, 1)",
        (SHOWN,),
    ),
    Fault(
        "tokens fly to the rows of pads",
        "assets/player/run/passes.js",
        "item.q0 + item.pads + position - item.start;",
        "item.q0 + position - item.start;",
        (MASK_JS,),
    ),
    Fault(
        "the mask's queries are named from the prompt's start",
        "assets/player/views/mask/labels.js",
        "item.start + q - first), 8)",
        "q - first), 8)",
        (MASK_JS,),
    ),
    Fault(
        "the door counts one too few behind",
        "assets/player/views/door.js",
        "const rest = waiting.length - shown.length;",
        "const rest = Math.max(0, waiting.length - most);",
        (DOOR,),
    ),
    Fault(
        "a figure's lanes write the step to come",
        "assets/player/figure/lanes.js",
        "words: words ? WORDS : 0, until: index })",
        "words: words ? WORDS : 0, until: index + 1 })",
        ("page/test_figure.py",),
    ),
    Fault(
        "the opening is fetched only when the player wants it",
        "visualizer/ui.py",
        "(*server.catalogue[:1], *filter(None, [opening]))",
        "server.catalogue[:1]",
        (PRELOADED,),
    ),
    Fault(
        "a run is prepared for with the page's first file",
        "visualizer/server/api.py",
        "min(self._served + _QUIET_S, latest)",
        "min(self._served, latest)",
        ("visualizer/test_start.py::test_a_run_is_prepared_for_once_the_page_has_its_files",),
    ),
    Fault(
        "a racer's tokens a second are of the slowest one's time",
        "assets/player/compare/racer.js",
        "Math.round(tokens / Math.min(now, this.seconds))",
        "Math.round(tokens / now)",
        (RACE,),
    ),
    Fault(
        "a race opens where the last is done",
        "assets/player/compare/race.js",
        "return Math.min(...this.racers.map((r) => r.length), this.span);",
        "return Math.max(...this.racers.map((r) => r.length));",
        (RACE,),
    ),
    Fault(
        "from a second on a time is in seconds",
        "assets/player/parts/format.js",
        "if (ms >= 10000) return",
        "if (ms >= 1000) return",
        ("js/parts.test.js",),
    ),
    # -- what got past everything once
    Fault(
        "the blocks in use are those of the last pass",
        "core/scheduler/passes.py",
        "max(facts.blocks_used, state.pool.num_used)",
        "state.pool.num_used",
        (BLOCKS,),
    ),
    Fault(
        "what is cached is asked for again",
        "core/policy.py",
        "        cached = self.cached_blocks * self.block_size\n        if self.tokens_left",
        "        cached = 0\n        if self.tokens_left",
        (OWN_POLICY,),
    ),
    Fault(
        "scheduling may take as long as the step, whatever its passes take",
        "core/trace/rules/bounds.py",
        "and schedule + passes <= whole",
        "and schedule <= whole",
        (RULES,),
    ),
    Fault(
        "nothing is asked of a budget",
        "core/trace/rules/steps.py",
        "            StepRule(None, self._budget, None),\n",
        "",
        (RULES,),
    ),
    Fault(
        "all of a pass that computes something again is computed again",
        "core/account/delays.py",
        "life.again += own.again",
        "life.again += own.segment.length",
        ("core/test_delays.py",),
    ),
    Fault(
        "what was computed of a refused draft is kept",
        "core/account/walk.py",
        "            end -= rejected.get(request, 0)\n",
        "",
        (METRICS,),
    ),
    Fault(
        "an answer is cut at the first stop string of the list",
        "core/serving/output_processor.py",
        "text[: min(found)]",
        "text[: found[0]]",
        (CLIENT_TEXT,),
    ),
    Fault(
        "the host's parts are counted beside a device's",
        "core/account/metrics.py",
        'counted = ("forward", "sample") if trace.header.is_asynchronous else tuple(parts)',
        "counted = tuple(parts)",
        (METRICS,),
    ),
    Fault(
        "decodes always have their share of the budget first",
        "visualizer/words/reasons.py",
        "(0 if m.config.prefill_first else len(m.old_decodes))",
        "len(m.old_decodes)",
        (CAPTIONS,),
    ),
    Fault(
        "slow is a step above the mean",
        "assets/player/run/delays.js",
        "const median = [...took].sort((a, b) => a - b)[(took.length - 1) >> 1];",
        "const median = took.reduce((a, b) => a + b, 0) / took.length;",
        (RUN_JS,),
    ),
    Fault(
        "what was waited has waits to come in it",
        "assets/player/run/delays.js",
        "    .filter(([from]) => from <= i)\n    .reduce((sum, [, to]) => sum + (waitedBy",
        "    .reduce((sum, [, to]) => sum + (waitedBy",
        (RUN_JS,),
    ),
    Fault(
        "a card tells what will be lost",
        "assets/player/views/request_card.js",
        "    lost: run.events\n      .slice(0, i + 1)\n",
        "    lost: run.events\n",
        (RUN_JS,),
    ),
    Fault(
        "sampling is no part of a step's time",
        "assets/player/views/queue.js",
        "tEnd - tStart - forward - sample - ",
        "tEnd - tStart - forward - ",
        (RUN_JS,),
    ),
    Fault(
        "the blocks that are free are all there are",
        "core/account/perfetto.py",
        '"free": event.kv.total - event.kv.used',
        '"free": event.kv.total',
        ("core/test_perfetto.py",),
    ),
    Fault(
        "who ends without a lane is marked on the first",
        "core/account/perfetto.py",
        "lane.get(f.request, _ENGINE - 1) + 1",
        "lane.get(f.request, _ENGINE) + 1",
        ("core/test_perfetto.py",),
    ),
    Fault(
        "a pass may end before its step begins",
        "core/engine/step.py",
        "max(result.t_start, time), max(result.t_end, time)",
        "max(result.t_start, time), result.t_end",
        ("core/test_step.py",),
    ),
    Fault(
        "without chunks a prompt may not take the whole budget",
        "core/engine/requests.py",
        "not config.chunked_prefill and len(ids) > budget:",
        "not config.chunked_prefill and len(ids) >= budget:",
        (ERRORS,),
    ),
    Fault(
        "of two sizes as near a pass is compared with the smaller",
        "core/account/pass_sizes.py",
        "key=lambda n: (abs(n - rows), -n)",
        "key=lambda n: (abs(n - rows), n)",
        ("core/test_delays.py",),
    ),
    Fault(
        "a weight that is off the scale sets it",
        "assets/player/views/mask/cells.js",
        "item.k0 + n < onScale ? m : Math.max(m, w)",
        "Math.max(m, w)",
        (MASK_JS,),
    ),
    Fault(
        "progress of a run is told of the next one",
        "visualizer/jobs/measured.py",
        "if run is not None and run.turn is progress else progress",
        "if run is not None else progress",
        ("page/test_compare_tab.py::test_a_comparison_says_how_far_the_run_at_work_has_come",),
    ),
    Fault(
        "an answer loses its last token whoever ended it",
        "core/trace/trace.py",
        "if written[request] and written[request][-1] in ends:",
        "if written[request]:",
        ("core/test_trace.py",),
    ),
    Fault(
        "a message changed in an opened row is not what the row says",
        "assets/player/watch/messages.js",
        "      row.prompt.value = said[placeOfLast(said)].content;\n",
        "",
        ("page/test_edit_messages.py",),
    ),
    Fault(
        "a plan counts simulated requests from their arrival where the recorder could not",
        "core/measure/plan.py",
        "found = found if is_ours else _as_recorded(found)",
        "found = found",
        ("core/test_plan.py",),
    ),
    Fault(
        "a plan counts requests that did not end by themselves",
        "core/measure/plan.py",
        "if request in requests]",
        "if True]",
        ("core/test_plan.py",),
    ),
    Fault(
        "a run that is a workload forgets who left",
        "core/trace/trace.py",
        "leaves_after=None if got else stayed",
        "leaves_after=None",
        ("core/test_priorities.py",),
    ),
    Fault(
        "what a step took up comes one by one",
        "core/trace/trace.py",
        "a.request: a.t if is_planned else min(a.t for a in event.newcomers)",
        "a.request: a.t",
        ("core/test_plan.py",),
    ),
    Fault(
        "a recorded queue ignores priorities",
        "core/recorders/conversion.py",
        "ordered = sorted(waiting, key=places.__getitem__)",
        "ordered = list(waiting)",
        ("core/test_priorities.py",),
    ),
    Fault(
        "whoever came earlier overtakes, too",
        "core/account/delays.py",
        "if self._number(r) > life.number]",
        "]",
        ("core/test_priorities.py",),
    ),
    Fault(
        "whoever gave way loses its place by priority",
        "core/scheduler/scheduler_state.py",
        "self._put_in_order(state, self._policy.order(state))",
        "pass",
        ("core/test_priorities.py",),
    ),
    Fault(
        "a recording is followed on a clock of its own",
        "core/recorders/follow.py",
        "self._set_clock(step, snapshot)",
        "pass",
        ("core/test_priorities.py",),
    ),
    Fault(
        "the page draws a recorded queue by arrival",
        "assets/player/run/run.js",
        "if (event.queue?.length) this._order(event.queue, i);",
        "",
        ("page/test_other_engines.py::test_a_queue_stands_as_the_engine_had_it",),
    ),
    Fault(
        "settings are ranked where the median or the worst is simulated well",
        "core/measure/plan.py",
        "return all(abs(self.errors",
        "return any(abs(self.errors",
        (
            "core/test_plan.py::test_others_are_ranked_only_if_both_the_median_and_the_worst_are_simulated_well",
        ),
    ),
    Fault(
        "a plan counts the steps that preempt",
        "core/measure/plan.py",
        "sum(len(event.preempted) for",
        "sum(bool(event.preempted) for",
        ("core/test_plan.py::test_throughput_and_preemptions_are_of_all_requests",),
    ),
    Fault(
        "a plan's throughput is of those that ended by themselves",
        "core/measure/plan.py",
        "tokens = sum(len(event.sampled) for event in trace.events)",
        "tokens = sum(one.num_tokens for one in times)",
        ("core/test_plan.py::test_throughput_and_preemptions_are_of_all_requests",),
    ),
    Fault(
        "a plan takes one setting fewer than it says",
        "core/measure/plan.py",
        "if (total := math.prod(map(len, axes))) > MOST_SETTINGS",
        "if (total := math.prod(map(len, axes))) >= MOST_SETTINGS",
        ("core/test_plan.py::test_as_many_settings_as_are_said_are_simulated",),
    ),
    Fault(
        "no prefix is said to be found where none was looked for",
        "core/measure/plan.py",
        'if config.prefix_caching and "prompts" in header.absent',
        'if "prompts" in header.absent',
        ("core/test_plan.py::test_that_no_prefix_is_found_is_said_where_one_could_have_been",),
    ),
    Fault(
        "a run begins with its first step, whoever came before",
        "core/account/metrics.py",
        "return trace.events[-1].t_end - min([first.t_start, *(a.t for a in first.arrived)])",
        "return trace.events[-1].t_end - first.t_start",
        ("core/test_delays.py::test_a_run_begins_with_whoever_came_before_its_first_step",),
    ),
    Fault(
        "the opening step is of any size",
        "assets/player/run/run.js",
        "(tokens > 8 && tokens < 64 ? 2 : 0)",
        "0",
        (RUN_JS,),
    ),
    Fault(
        "an idle device is worth a word from a tenth of a step on",
        "assets/player/run/run.js",
        "worth: seconds > 0.01 * step",
        "worth: seconds > 0.1 * step",
        (RUN_JS,),
    ),
    Fault(
        "the last piece of a prompt is no chunk",
        "assets/player/run/run.js",
        "return segment.start > 0 || segment",
        "return segment",
        (RUN_JS,),
    ),
    Fault(
        "everybody who joins a lane resumes",
        "assets/player/run/happenings.js",
        "some((span) => span.from < i)",
        "some((span) => span.from <= i)",
        (RUN_JS,),
    ),
    Fault(
        "a shared block holds what its last holder has in it",
        "assets/player/run/holdings.js",
        "Math.max(held.get(block) || 0, Math.min(",
        "Math.max(0, Math.min(",
        (RUN_JS,),
    ),
    Fault(
        "who was preempted before the first step here waits from its start",
        "assets/player/run/delays.js",
        "const since = preempted && from >= 0 ? run.events[from].tStart : request.arrived;",
        "const since = preempted ? run.events[Math.max(0, from)].tStart : request.arrived;",
        (RUN_JS,),
    ),
    Fault(
        "a block that was not full is lost to the cache",
        "assets/player/run/happenings.js",
        ">= (at + 1) * run.blockSize",
        ">= at * run.blockSize",
        (RUN_JS,),
    ),
    Fault(
        "what is pinned goes before what is lit",
        "assets/player/watch/store.js",
        "isLit ? lit || (one && [one])",
        "isLit ? (one && [one]) || lit",
        ("js/store.test.js",),
    ),
    Fault(
        "all are told of a change that is none",
        "assets/player/watch/store.js",
        "    if (!changed.size) return;\n",
        "",
        ("js/store.test.js",),
    ),
    Fault(
        "a decode owes something to prompts that come after its end",
        "core/account/delays.py",
        "if label == DECODE and any(forward.prompts for forward in passes[: last + 1]):",
        "if label == DECODE and any(forward.prompts for forward in passes):",
        (
            "core/test_delays.py::test_a_request_that_ends_before_others_prompts_are_computed_owes_them_nothing",
        ),
    ),
    Fault(
        "who waits as long as a step takes has waited",
        "core/account/delays.py",
        "d.us[QUEUED] > step]",
        "d.us[QUEUED] >= step]",
        ("core/test_delays.py::test_who_waits_no_longer_than_a_step_takes_has_not_waited",),
    ),
    Fault(
        "an endless template is run again for each text",
        "core/workload/template.py",
        "        if time.monotonic() < until:\n            return answer\n",
        "",
        (
            "core/test_chat_template.py::test_a_template_that_has_passed_a_bound_is_not_run_for_a_while",
        ),
    ),
    Fault(
        "clients are told where the model lies",
        "core/serving/session.py",
        "            header = replace(header, model=replace(header.model, name=self._model))\n",
        "",
        ("core/test_serving_http.py::test_clients_learn_a_models_name_and_not_where_it_lies",),
    ),
    Fault(
        "a bug between two steps ends the engine's thread",
        "core/serving/engine_thread.py",
        "                except Exception as error:  # as of a step\n",
        "                except InflightError as error:  # as of a step\n",
        (
            "core/test_serving_failures.py::test_a_bug_between_two_steps_ends_the_request_that_met_it",
        ),
    ),
    Fault(
        "what a file names may speak to the terminal",
        "core/cli/output.py",
        "text if control else text.translate(_CONTROLS)",
        "text",
        ("core/test_cli.py::test_what_a_file_names_says_nothing_to_the_terminal",),
    ),
    Fault(
        "a client's patience is counted from when the engine sees it",
        "core/engine/arrivals.py",
        "(state.request.arrival + leaves, state.id)",
        "(loop.now + leaves, state.id)",
        ("core/test_priorities.py",),
    ),
    Fault(
        "an engine sleeps until the next request, however long",
        "core/engine/engine.py",
        "self._sleep(min(_MOST_SLEEP, max(0.0, wait)))",
        "self._sleep(max(0.0, wait))",
        (STREAM,),
    ),
    Fault(
        "whoever reads the answers is told of no end",
        "core/engine/engine.py",
        "            self.outputs.end(finished.request)\n",
        "            pass\n",
        (STREAM,),
    ),
    Fault(
        "a step on a device's clock begins before the last one ended",
        "core/engine/engine.py",
        "            start = max(start, self._last_end)\n",
        "",
        (STREAM,),
    ),
    Fault(
        "a window keeps a step more than its tokens need",
        "core/engine/recorder.py",
        "_weight(events[gone]) >= self._most:",
        "_weight(events[gone]) > self._most:",
        (STREAM,),
    ),
    Fault(
        "a window counts no step without a token",
        "core/engine/recorder.py",
        "return max(1, len(event.sampled))",
        "return len(event.sampled)",
        (STREAM,),
    ),
    Fault(
        "several who give way in one step wait in reverse",
        "core/scheduler/passes.py",
        "for request in reversed(leaving):",
        "for request in leaving:",
        (BLOCKS,),
    ),
    Fault(
        "a prompt that goes on is not cut by the budget where requests are passed over",
        "core/scheduler/passes.py",
        '            state.facts.cut = "budget" if count < pending else state.facts.cut\n',
        "",
        (SCHEDULER,),
    ),
    Fault(
        "whoever comes back decodes before all that it had is read",
        "core/scheduler/scheduler_state.py",
        "state.num_to_prefill = state.num_tokens\n",
        "state.num_to_prefill = state.num_prompt_tokens\n",
        (BLOCKS,),
    ),
    Fault(
        "of several who stall the last is named",
        "core/scheduler/output.py",
        "binding = self.stalled[0].why.limit",
        "binding = self.stalled[-1].why.limit",
        (SCHEDULER,),
    ),
    Fault(
        "a budget that is just spent binds",
        "core/scheduler/output.py",
        "if used == limit and held_back:",
        "if used == limit:",
        (SCHEDULER,),
    ),
    Fault(
        "shared blocks in use are taken from those that are free",
        "core/scheduler/block_pool.py",
        "return sum(block in self._cached for block in blocks)",
        "return len(blocks)",
        (BLOCKS,),
    ),
    Fault(
        "lanes are given back in the order of admission",
        "core/scheduler/scheduler.py",
        "for state in sorted(leaving, key=lambda s: s.held_lane):",
        "for state in leaving:",
        (SCHEDULER,),
    ),
    Fault(
        "of those who end together the last admitted loses its cache first",
        "core/scheduler/scheduler.py",
        "        for blocks in tables:\n",
        "        for blocks in reversed(tables):\n",
        (BLOCKS,),
    ),
    Fault(
        "preemptions are counted over the whole run",
        "core/scheduler/scheduler.py",
        "            self._state.num_preempted_since = 0\n",
        "            pass\n",
        (BLOCKS,),
    ),
    Fault(
        "a prompt of one token is a decode",
        "core/scheduler/state.py",
        " == 1 and len(self.token_ids) > len(\n            self.prompt_token_ids\n        )",
        " == 1",
        (SCHEDULER,),
    ),
    Fault(
        "of the limits that stalled a request in a gap the last is told",
        "core/account/delays.py",
        "why = why or next((s.why for s in event.stalled if s.request == gap.request), None)",
        "why = next((s.why for s in event.stalled if s.request == gap.request), why)",
        ("core/test_delays.py",),
    ),
    Fault(
        "a cause has to be half of a gap",
        "core/account/delays.py",
        "4 * max(outside) >= self.whole_us",
        "2 * max(outside) >= self.whole_us",
        ("core/test_delays.py",),
    ),
    Fault(
        "what a graph has beyond its rows is not counted",
        "core/account/metrics.py",
        "padding = sum(p.padding for p in passes) + overrun + beyond",
        "padding = sum(p.padding for p in passes) + overrun",
        (METRICS,),
    ),
    Fault(
        "of an even number the larger in the middle is the median",
        "core/account/pass_sizes.py",
        "return ordered[(len(ordered) - 1) // 2]",
        "return ordered[len(ordered) // 2]",
        ("core/test_delays.py",),
    ),
    Fault(
        "a step just so far from its kind is far",
        "tests/worlds/hiccups.py",
        "if times > FAR)",
        "if times >= FAR)",
        ("core/test_delays.py",),
    ),
    Fault(
        "a limit that is just kept is missed",
        "core/account/request_times.py",
        "time is None or time <= limit for",
        "time is None or time < limit for",
        (METRICS,),
    ),
    Fault(
        "a pass reads only what it computes",
        "core/account/request_times.py",
        "mine.num_read += segment.kv_len",
        "mine.num_read += segment.length",
        (METRICS,),
    ),
    Fault(
        "whoever was preempted in steps that are not shown has not run",
        "core/account/request_times.py",
        "has_run = carried.lane is not None or carried.was_preempted",
        "has_run = carried.lane is not None",
        ("core/test_delays.py",),
    ),
    Fault(
        "what was computed before steps that are not shown is forgotten in them",
        "core/account/walk.py",
        "max(reached.get(carried.request, 0), carried.computed)",
        "carried.computed",
        ("core/test_delays.py",),
    ),
    Fault(
        "a simulated pass may take longer than its cost model says",
        "core/proof/verify.py",
        "if abs(one.seconds - said) > _ROUNDED:",
        "if one.seconds - said > _ROUNDED:",
        ("core/test_retimed.py",),
    ),
    Fault(
        "a simulated pass may have been prepared",
        "core/proof/verify.py",
        "if schedule or prepare or sample or any(",
        "if schedule or sample or any(",
        ("core/test_retimed.py",),
    ),
    Fault(
        "a simulated run may name another accelerator",
        "core/proof/verify.py",
        "((header, hardware_of(self._cost)), (header.model, sizes))",
        "((header.model, sizes),)",
        ("core/test_retimed.py",),
    ),
    Fault(
        "who shares a model is not asked how much of it each has",
        "core/proof/rerun.py",
        "recorded *= on_record.tensor_parallel",
        "recorded = found if on_record.tensor_parallel > 1 else recorded",
        (RERUN,),
    ),
    Fault(
        "a client may stay as long as it likes in an asynchronous run",
        "core/proof/replay.py",
        "self._now = before * (1 - _DRIFT) - _AHEAD",
        "self._now = 0.0",
        (ASYNC,),
    ),
    Fault(
        "a graph of decodes may be as large as one of prompts",
        "core/trace/rules/bounds.py",
        "least if mixed else 1)",
        "least)",
        (VERIFY,),
    ),
    Fault(
        "a request may have a token more than the model's context",
        "core/engine/requests.py",
        "len(ids) + new > context",
        "len(ids) + new > context + 1",
        (ERRORS,),
    ),
    Fault(
        "rows of who has finished do not count for the size of a pass",
        "core/account/pass_sizes.py",
        "else len(own) + len(event.passes[j].finished_rows)",
        "else len(own)",
        ("core/test_delays.py",),
    ),
    Fault(
        "an end is marked where its step begins",
        "core/account/perfetto.py",
        "lane.get(f.request, _ENGINE - 1) + 1, event.t_end)",
        "lane.get(f.request, _ENGINE - 1) + 1, event.t_start)",
        ("core/test_perfetto.py",),
    ),
    Fault(
        "a run's time begins with its first step, whoever came before",
        "core/account/metrics.py",
        "min([first.t_start, *(a.t for a in first.arrived)])",
        "first.t_start",
        (METRICS,),
    ),
    Fault(
        "a comparison may be as sure as it likes",
        "core/measure/compare.py",
        '"outputs_identical", "warnings"):',
        '"outputs_identical"):',
        (COMPARISON,),
    ),
    Fault(
        "a contender may have run under other limits than its run",
        "core/measure/compare.py",
        "*(k for k in {**config, **about} if about.get(k, ...) != config.get(k, ...)),",
        "",
        (COMPARISON,),
    ),
    Fault(
        "a recorded rate need not follow from its counts",
        "core/measure/compare.py",
        "if not math.isclose(found[rate], follows,",
        "if False and not math.isclose(found[rate], follows,",
        (COMPARISON,),
    ),
    Fault(
        "percentiles need not rise",
        "core/measure/compare.py",
        "if [*rising, seconds + _ROUNDED] != sorted([*rising, seconds + _ROUNDED]):",
        "if max(rising) > seconds + _ROUNDED:",
        (COMPARISON,),
    ),
    Fault(
        "a comparison may say what nobody writes there",
        "visualizer/documents/comparison.py",
        "json.loads(json.dumps(written(loaded, files))) == plain",
        "True",
        (COMPARISON,),
    ),
    Fault(
        "a metric may be left out of a comparison",
        "core/measure/compare.py",
        "for key in {**seen, **told}:",
        "for key in told:",
        (COMPARISON,),
    ),
    Fault(
        "a part of the time may be longer than the run",
        "core/measure/compare.py",
        'return "time_s" if max(parts, default=0) > seconds + _ROUNDED else None',
        "return None",
        (COMPARISON,),
    ),
    Fault(
        "a comparison may be of a run that was made after it",
        "visualizer/documents/comparison.py",
        "made >= datetime.fromisoformat(header.created)",
        "True",
        (COMPARISON,),
    ),
    Fault(
        "a batch may have written otherwise than its run",
        "visualizer/documents/comparison.py",
        '{"batched": list(trace.outputs[known]), "batched_text": trace.text(known)}',
        "{}",
        (COMPARISON,),
    ),
    Fault(
        "an equivalence may count other tokens than differ",
        "visualizer/documents/comparison.py",
        "found[name] == sum(r[name] or 0 for r in requests)",
        "name in found",
        (COMPARISON,),
    ),
    Fault(
        "the passes of a fork count from nought in words",
        "core/trace/divergence.py",
        "in pass {work[0][0] + 1} of",
        "in pass {work[0][0]} of",
        ("core/test_divergence.py",),
    ),
    Fault(
        "ranks that do not know how many there are do not count",
        "core/trace/ranks.py",
        "max(p.engine.ranks or 1, p.rank + 1)",
        "p.engine.ranks or 1",
        ("core/test_ranks.py",),
    ),
    Fault(
        "a file of one line without its end is empty",
        "core/trace/file.py",
        'if not line.endswith(b"\\n") and number > 1 and',
        'if not line.endswith(b"\\n") and',
        ("core/test_trace_files.py",),
    ),
    Fault(
        "letters of ranks go by each one's own clock",
        "visualizer/documents/replay.py",
        "(rank.offset + arrived.t, rank.number, arrived.request)",
        "(arrived.t, rank.number, arrived.request)",
        (REPLAY,),
    ),
    Fault(
        "white space before a message is part of it",
        "visualizer/documents/replay.py",
        "        if pieces[start].isspace():\n            continue\n",
        "",
        ("visualizer/test_conversations.py",),
    ),
    Fault(
        "a step counts as computing from its start, whenever the stretch began",
        "assets/player/run/moments.js",
        "Math.max(from, offset + e.tStart)",
        "(offset + e.tStart)",
        ("js/moments.test.js",),
    ),
    Fault(
        "an order of the queue holds for who comes back later, too",
        "assets/player/run/waiting.js",
        "order && from <= order.from ?",
        "order ?",
        (RUN_JS,),
    ),
    Fault(
        "a simulated run may have any texts",
        "core/proof/verify.py",
        "(self._is_simulated and not any(of_one.output))",
        "self._is_simulated",
        (RERUN,),
    ),
    Fault(
        "penalties excuse another token",
        "core/proof/rerun.py",
        "not (sampling.temperature or sampling.looks_back or self._header.leak)",
        "not (sampling.temperature or self._header.leak)",
        (RERUN,),
    ),
    Fault(
        "a token that one of two answers lacks does not differ",
        "core/proof/equivalence.py",
        "return max(len(one), len(other)) - sum",
        "return min(len(one), len(other)) - sum",
        ("core/test_equivalence.py",),
    ),
    Fault(
        "a setting is near within an error in seconds",
        "core/measure/plan.py",
        "- least) <= error * least",
        "- least) <= error",
        ("core/test_plan.py",),
    ),
    Fault(
        "a plan keeps no blocks free where a recorded policy does",
        "core/measure/plan.py",
        "reserve=old.reserve, watermark=old.watermark)",
        "reserve=old.reserve)",
        ("core/test_plan.py",),
    ),
    Fault(
        "what a step computes begins with its last pass",
        "assets/player/run/run.js",
        "new Map([...event.segments].reverse().map((s) => [s.request, s.start]))",
        "new Map(event.segments.map((s) => [s.request, s.start]))",
        (RUN_JS,),
    ),
    Fault(
        "the hues of those who have left are in use",
        "assets/player/run/run.js",
        "(r) => r.hue >= 0 && (r.live || r.waits.at(-1)?.[1] === Infinity),",
        "(r) => r.hue >= 0,",
        (RUN_JS,),
    ),
    Fault(
        "a guess that was right is forgotten with one that was wrong",
        "assets/player/run/passes.js",
        "return position >= item.kvLen - item.rejected ?",
        "return position >= item.kvLen - item.drafted ?",
        (RUN_JS,),
    ),
    Fault(
        "a graph's pads are those of its first row",
        "assets/player/run/passes.js",
        "forward.bucket - forward.rows * forward.width)",
        "forward.bucket - forward.width)",
        (RUN_JS,),
    ),
    Fault(
        "a wait begins after steps that are not shown",
        "assets/player/run/resumed.js",
        "wasPreempted ? i : (since.get(request) ?? i)",
        "i",
        (RUN_JS,),
    ),
    Fault(
        "a block lost in steps that are not shown is held after them",
        "assets/player/run/resumed.js",
        "place.to = i - 1;\n    const held",
        "place.to = i;\n    const held",
        (RUN_JS,),
    ),
    Fault(
        "two tokens of a pass are two happenings",
        "assets/player/run/happenings.js",
        "if (last) last.count += 1;",
        "if (false) last.count += 1;",
        (RUN_JS,),
    ),
    Fault(
        "a window gives its blocks back a step late",
        "assets/player/run/happenings.js",
        "place.to === i - 1 && place.from < i)",
        "place.to === i && place.from < i)",
        (RUN_JS,),
    ),
    Fault(
        "what is computed for nothing is a decode of the budget",
        "assets/player/views/queue.js",
        'nothing.has(s.request) ? "overrun" : s.phase',
        "s.phase",
        (RUN_JS,),
    ),
    Fault(
        "of many the last is not shown",
        "assets/player/views/phases.js",
        "list[Math.round((n * (list.length - 1)) / (most - 1))]",
        "list[Math.floor((n * list.length) / most)]",
        (RUN_JS,),
    ),
    Fault(
        "the newest recording comes before one that is still written",
        "core/recorders/growing.py",
        "key=lambda pair: (is_written(pair[0]), _created(pair[1]))",
        "key=lambda pair: _created(pair[1])",
        ("core/test_follow.py::test_a_recording_that_is_still_written_comes_before_a_newer_one",),
    ),
    Fault(
        "any RangeError is want of memory",
        "core/browser/executor.py",
        '"RangeError" in said and "memory" in said.lower()',
        '"RangeError" in said',
        ("core/test_browser.py::test_only_want_of_memory_is_called_so",),
    ),
    Fault(
        "of two special tokens the shorter is found",
        "core/browser/tokenizer.py",
        "sorted(self._special, reverse=True)",
        "sorted(self._special)",
        (
            "core/test_browser.py::test_of_two_special_tokens_the_longer_is_found_where_it_begins_with_the_other",
        ),
    ),
    Fault(
        "whoever gave way after its first tokens is sent them again after a failure",
        "core/serving/engine_thread.py",
        "begun = {*self._engine.running, *(stream.id for stream in streams if stream.num_tokens)}",
        "begun = {*self._engine.running}",
        (
            "core/test_serving_failures.py::test_whoever_gave_way_after_its_first_tokens_ends_with_a_step_that_fails",
        ),
    ),
    Fault(
        "a percentile may lie beyond the highest value",
        "core/simulate/totals.py",
        "else min(self.highest, math.exp((index + 0.5) * self._STEP))",
        "else math.exp((index + 0.5) * self._STEP)",
        ("core/test_simulate.py::test_percentiles_of_a_histogram",),
    ),
    Fault(
        "time in which nobody is there is between steps",
        "core/simulate/fitted.py",
        "        there -= {over.request for over in event.ends}\n",
        "",
        ("core/test_fitted.py",),
    ),
    Fault(
        "each pass has all of what is left of its step",
        "core/simulate/fitted.py",
        "forward.t_end - forward.t_start + rest / len(event.passes)",
        "forward.t_end - forward.t_start + rest",
        ("core/test_fitted.py",),
    ),
    Fault(
        "what lies beyond a fit is not told",
        "visualizer/documents/plan.py",
        "if said := point.refused or point.beyond:",
        "if said := point.refused:",
        ("visualizer/test_planned.py::test_a_setting_that_lies_beyond_what_was_measured_is_named",),
    ),
    Fault(
        "a long prompt's rows are those of its first",
        "assets/engine/model.js",
        "x = this.#at.x + 4 * row * hidden;",
        "x = this.#at.x;",
        ("core/test_browser.py::test_a_trace_says_where_it_was_made_and_torch_computes_it_again",),
    ),
    Fault(
        "a client may be served longer than its workload says",
        "core/proof/replay.py",
        "            if request in loop.scheduler.requests:\n",
        "            if False:\n",
        (VERIFY,),
    ),
    Fault(
        "a page follows a device",
        "visualizer/server/followed.py",
        "            require_followable(place)\n",
        "            pass\n",
        ("visualizer/test_followed_server.py::test_what_can_never_be_followed_is_refused_at_once",),
    ),
    Fault(
        "that a run was cut is proved",
        "core/proof/verify.py",
        '            or (fact == "end" and not self.complete)\n',
        "",
        (VERIFY,),
    ),
    Fault(
        "a simulation's share of good requests is of those that ended",
        "core/simulate/totals.py",
        "self.met / self.arrived if self.arrived else None",
        "self.met / self.finished if self.finished else None",
        (
            "core/test_simulate.py::test_totals_count_whoever_ends_by_itself_and_nobody_who_is_sent_away",
        ),
    ),
    Fault(
        "the button of a plan's row watches the one after it",
        "assets/player/compare/plan.js",
        "doc.configs[n - 1] ? this._watchButton(n - 1, name)",
        "doc.configs[n] ? this._watchButton(n, name)",
        (
            "page/test_other_engines.py::test_what_if_of_a_recording_leads_to_its_plan_and_a_point_of_it_to_watch",
        ),
    ),
    Fault(
        "readers woken together share an excerpt from before the hiding",
        "core/serving/event_log.py",
        "key, shared = (after, chapters, tick, self.shown), self._shared",
        "key, shared = (after, chapters, tick), self._shared",
        (
            "core/test_event_log.py::test_readers_who_are_woken_together_share_nothing_from_before_it_was_hidden",
        ),
    ),
    Fault(
        "a state is told twice to who begins with it",
        "core/serving/event_log.py",
        "if state.number < start]",
        "if state.number <= start]",
        ("core/test_event_log.py::test_a_state_with_which_a_chapter_begins_is_told_once",),
    ),
    Fault(
        "room is made by who takes least of it",
        "visualizer/server/store.py",
        "                    -taken[owners[group]],",
        "                    taken[owners[group]],",
        ("visualizer/test_store.py::test_room_is_made_by_who_takes_most_of_it",),
    ),
    Fault(
        "an export can push out its own run",
        "visualizer/server/store.py",
        'kept = {newest, newest.split(".")[0]}  # an export needs its run for others',
        "kept = {newest}",
        ("visualizer/test_store.py::test_an_export_leaves_its_run_however_little_room_there_is",),
    ),
    Fault(
        "exports are nobody's",
        "visualizer/server/store.py",
        "        self._prune(path.name, whose)\n",
        '        self._prune(path.name, "")\n',
        ("visualizer/test_store.py::test_exports_make_room_by_who_has_most_of_them",),
    ),
    Fault(
        "another user's live process counts as dead",
        "visualizer/server/store.py",
        "    except PermissionError:  # belongs to another user\n        return True",
        "    except PermissionError:  # belongs to another user\n        return False",
        ("visualizer/test_store.py::test_a_folder_of_another_users_process_is_left_alone",),
    ),
    Fault(
        "a scaled answer may be as long as the context",
        "core/workload/datasets.py",
        "min(output, max(1, context - prompt)),",
        "min(output, max(1, context)),",
        ("core/test_datasets.py::test_an_answer_gives_way_where_blocks_cannot_be_made_shorter",),
    ),
    Fault(
        "a faster replay is a slower one",
        "core/workload/datasets.py",
        "arrival=(size.arrival or 0.0) / speed,",
        "arrival=(size.arrival or 0.0) * speed,",
        ("core/test_datasets.py::test_requests_come_as_much_sooner_as_asked",),
    ),
    Fault(
        "a recording in parts is complete if any part is",
        "core/recorders/raw.py",
        "known.complete = more.complete",
        "known.complete = known.complete or more.complete",
        ("core/test_recorders.py::test_a_recording_in_parts_is_as_whole_as_its_last_one",),
    ),
    Fault(
        "a damaged step is not counted among the missing",
        "core/recorders/raw.py",
        'self.missing, self._expected = self.missing + 1, step["step"] + 1',
        'self._expected = step["step"] + 1',
        ("core/test_recorders.py::test_a_damaged_step_is_one_of_those_that_are_missing",),
    ),
    Fault(
        "requests without texts keep their stop strings",
        "core/workload/workload.py",
        "sampling=replace(request.sampling, stop=()),",
        "sampling=request.sampling,",
        (
            "core/test_workload.py::test_requests_without_texts_have_no_stop_strings_and_messages_end",
        ),
    ),
    Fault(
        "of two streamed requests that come together the second is refused",
        "core/workload/workload.py",
        "if request.arrival < latest:",
        "if request.arrival <= latest and latest:",
        ("core/test_workload.py::test_a_file_is_read_whole_or_request_by_request",),
    ),
    Fault(
        "what is said to a model as a message ignores its end",
        "core/workload/workload.py",
        "sampling=replace(request.sampling, ignore_eos=False),",
        "sampling=request.sampling,",
        (
            "core/test_workload.py::test_requests_without_texts_have_no_stop_strings_and_messages_end",
        ),
    ),
    Fault(
        "an encoding with half a wish is not taken",
        "visualizer/server/response_cache.py",
        'if "q=0" not in part.replace("q=0.", "")',
        'if "q=0" not in part',
        ("visualizer/test_response_cache.py::test_it_is_packed_as_a_visitor_can_open_it",),
    ),
    Fault(
        "typical errors are not shares",
        "core/simulate/least_squares.py",
        "[value**-2 for value in measured]",
        "[value**-1 for value in measured]",
        ("core/test_fitted.py::test_typical_errors_are_shares_of_what_was_measured",),
    ),
    Fault(
        "one who is done among those who leave makes all done",
        "visualizer/words/plainly.py",
        'done = all(f.finish_reason in ("length", "stop") for f in ended)',
        'done = any(f.finish_reason in ("length", "stop") for f in ended)',
        ("visualizer/test_captions.py::test_not_all_are_done_where_somebody_leaves",),
    ),
    Fault(
        "the best seating has the shortest shortest lane",
        "visualizer/lessons/facts.py",
        "for r in lane) for lane in seats), reverse=True)",
        "for r in lane) for lane in seats))",
        ("visualizer/test_lessons.py::test_the_best_seating_has_the_shortest_longest_lane",),
    ),
    Fault(
        "an answer that is written is decoded without its prompt",
        "core/engine/writing.py",
        "pieces(self._tokenizer, answer, context=prompt)",
        "pieces(self._tokenizer, answer)",
        ("core/test_writing.py::test_an_answer_is_written_as_it_reads_behind_its_prompt",),
    ),
    Fault(
        "the step itself may be among the missing",
        "core/trace/rules/resumption.py",
        "not 0 <= resumed.first <= resumed.last < event.step",
        "not 0 <= resumed.first <= resumed.last <= event.step",
        (
            "core/test_recorded_rules.py::test_the_step_after_a_gap_is_none_of_those_that_are_missing",
        ),
    ),
    Fault(
        "a resumed token may be one beyond the vocabulary",
        "core/trace/rules/resumption.py",
        "max(tokens, default=0) >= header.model.vocab_size",
        "max(tokens, default=0) > header.model.vocab_size",
        ("core/test_recorded_rules.py::test_a_token_from_a_gap_is_in_the_vocabulary",),
    ),
    Fault(
        "a whole prompt may be found in the cache",
        "core/trace/rules/followable.py",
        "if not 0 <= cached < state.num_tokens[request]:",
        "if not 0 <= cached <= state.num_tokens[request]:",
        ("core/test_recorded_rules.py::test_of_a_prompt_that_is_found_a_token_is_left_to_compute",),
    ),
    Fault(
        "a head may wait for no reason",
        "core/trace/rules/followable.py",
        "or (why is None) != (head is None):",
        ":",
        ("core/test_recorded_rules.py::test_who_is_first_in_the_queue_waits_for_a_reason",),
    ),
    Fault(
        "half a run meets a task",
        "visualizer/write/grade.py",
        "if not (trace.complete and _is_of(task, trace)):",
        "if not _is_of(task, trace):",
        ("visualizer/test_write.py::test_the_run_of_another_task_is_none_of_this_one",),
    ),
    Fault(
        "an answer may change limits that are not its own",
        "visualizer/write/grade.py",
        'free = {"policy", *task.may_change}',
        "free = {f.name for f in fields(EngineConfig)}",
        ("visualizer/test_write.py::test_the_run_of_another_task_is_none_of_this_one",),
    ),
    Fault(
        "a model of many weights leaves all memory to the pool",
        "core/torch_engine/pool_size.py",
        "2**63 if free is None else free - weights",
        "2**63 if free is None else free",
        ("core/test_gpu_memory.py::test_a_pool_is_foreseen_beside_the_weights",),
    ),
    Fault(
        "four marks above one letter are a name",
        "core/serving/request_validator.py",
        'or "MMMM" in kinds',
        'or "MMMMM" in kinds',
        ("core/test_classroom.py::test_a_nickname_that_is_none",),
    ),
    Fault(
        "what a segment computes again goes beyond it",
        "visualizer/words/context.py",
        "max(0, min(self.state.lost.get(s.request, 0), s.kv_len) - s.start)",
        "max(0, self.state.lost.get(s.request, 0) - s.start)",
        ("visualizer/test_captions.py::test_no_more_is_computed_again_than_is_computed",),
    ),
    Fault(
        "a part of a mask may be empty",
        "assets/player/watch/address.js",
        "view[0] < view[1] &&",
        "view[0] <= view[1] &&",
        ("js/address.test.js",),
    ),
    Fault(
        "how a request went is forgotten newest first",
        "assets/player/live/batch.js",
        'this.ended.delete(this.ended.keys().next().value || "")',
        'this.ended.delete([...this.ended.keys()].at(-1) || "")',
        ("js/fleet.test.js",),
    ),
    Fault(
        "a zoomed request loses its last rows to its pads",
        "assets/player/views/mask/geometry.js",
        "item.q0 + item.pads + item.length, item.k0",
        "item.q0 + item.length, item.k0",
        ("js/mask.test.js",),
    ),
    Fault(
        "blocks that were read from the cache are new",
        "assets/player/views/kv.js",
        "fresh: from === frame.i && at * blockSize >= (lane.laneSpan.hit || 0),",
        "fresh: from === frame.i,",
        ("js/run.test.js",),
    ),
    Fault(
        "the fill of a last block may be more than full",
        "assets/player/views/kv.js",
        "clamp((length - at * blockSize) / blockSize, 0, 1)",
        "(length - at * blockSize) / blockSize",
        ("js/run.test.js",),
    ),
    Fault(
        "who is third is told of the first",
        "assets/player/live/whereabouts.js",
        "const ahead = waiting[place - 1].request;",
        "const ahead = waiting[0].request;",
        ("js/run.test.js",),
    ),
    Fault(
        "the run below is told one step ahead",
        "assets/player/watch/beside.js",
        "(e) => e.tEnd - other.run.events[0].tStart) - 1",
        "(e) => e.tEnd - other.run.events[0].tStart)",
        (RUN_JS,),
    ),
    Fault(
        "the address of a flipped pair names it unflipped",
        "assets/player/watch/pair.js",
        "        : { ...link, racer: link.beside, beside: link.racer };",
        "        : link;",
        ("js/address.test.js",),
    ),
)
