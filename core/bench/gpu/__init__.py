"""The benchmark of the CUDA path: one command of at most eight minutes on an H200, in parts that stand for themselves.

Models have the shapes of published ones and random weights in bfloat16. Every contender runs in this process, alone in memory. Each part is saved
before the next begins, and a failure in one stops none of the others; in the end what they found is held against the bars. docs/gpu.md says how to
run it and what the result holds.
"""

from __future__ import annotations

import datetime
import json
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from core.bench.gpu.parts import BenchmarkPart, benchmark_parts
from core.bench.gpu.runs import Device, PartContext
from core.bench.gpu.scale import FULL, TINY, Scale
from core.bench.report import Limit, Ratio, Report
from core.errors import InflightError, first_sentence

__all__ = ["FULL", "TINY", "Device", "Scale", "report", "run"]

SCHEMA = 2
_FRAMES = 8  # of a failure, the innermost ones: enough to find it without running it again


def run(
    scale: Scale,
    device: Device,
    *,
    names: Sequence[str] | None = None,
    out: Path | None = None,
    resume: bool = False,
    minutes: float = 8.0,
    note: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """The benchmark's result, see docs/gpu.md; written to `out` after every part.

    names: of the parts to run, all by default. resume: keep what `out` already holds of the same settings, versions and device.
    minutes: a part that would not end within them is not begun. Raises InflightError for an unknown part or a file that is no result.
    """
    known = {part.name: part for part in benchmark_parts(scale)}
    if unknown := [name for name in names or () if name not in known]:
        raise InflightError(f"There is no part {unknown[0]!r}; the parts are {', '.join(known)}.")
    began = device.clock()
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "quick": scale.quick,
        "key": json.loads(json.dumps({"scale": asdict(scale), **device.about()})),  # as it will be read: tuples are lists
        "parts": {name: _record(part, "not run", why="it was not asked for") for name, part in known.items()},
    }
    earlier = _earlier(out, data["key"], note) if resume and out is not None else {}
    kept = {name: record for name, record in earlier.items() if record["status"] == "done"}
    data["parts"].update(kept)
    wanted = [part for name, part in known.items() if not names or name in names]
    wanted.sort(key=lambda part: earlier.get(part.name, {}).get("status") == "failed")  # it may take the device with it: last

    def left() -> float:
        return 60 * minutes - (device.clock() - began)

    lost: str | None = None
    for part in wanted:
        if part.name in kept:
            note(f"{part.title}: kept from {out}")
            continue
        expected = 0.0 if scale.quick else part.expected_s
        if lost is not None:
            record = _record(part, "not run", why=f"the device stopped answering in {lost}; run again with --resume")
        elif left() < max(expected, 1.0):
            time_left = f"of {minutes:g} minutes {max(0.0, left()):.0f} s were left"
            record = _record(part, "not run", why=f"{time_left}, and it takes about {expected:.0f}")
        else:
            note(f"{part.title} …")
            record = _run_part(part, PartContext(scale, device, left, note))
            if not device.answers():
                lost, why = part.name, record["why"] or "the device stopped answering"
                record |= {"status": "failed", "why": why, "result": None}
        took = f" in {record['took_s']:.0f} s" if record["took_s"] is not None else ""
        note(f"{part.title}: {record['status']}{took}{': ' + record['why'] if record['why'] else ''}.")
        data["parts"][part.name] = record
        _save(data, out)
    return _save(data, out)


def _run_part(part: BenchmarkPart, context: PartContext) -> dict[str, Any]:
    """One part from a clean device to a clean device."""
    device = context.device
    started = device.clock()
    try:
        device.free()
        result = part.run(context)
        json.dumps(result, allow_nan=False)  # numbers that are none are a failure too
        record = _record(part, "done", result=result)
    except Exception as error:  # a failure in one part must not stop the others
        frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
        where = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
        record = _record(part, "failed", why=f"{type(error).__name__}: {first_sentence(error)}", where=where)
    with suppress(RuntimeError):  # of a lost device, which the caller asks for
        device.free()
    return {**record, "notes": context.notes, "took_s": round(device.clock() - started, 1)}


def _record(part: BenchmarkPart, status: str, **found: Any) -> dict[str, Any]:
    return {"title": part.title, "status": status, "why": None, "where": [], "notes": [], "took_s": None, "result": None, **found}


def _save(data: dict[str, Any], out: Path | None) -> dict[str, Any]:
    """Judge the results so far and write them to the file; if that fails, the file stays as it was."""
    data["report"] = report(data).to_json()
    if out is not None:
        unfinished = out.with_name(out.name + ".part")
        unfinished.write_text(json.dumps(data, ensure_ascii=False, indent=1, allow_nan=False) + "\n", encoding="utf-8")
        os.replace(unfinished, out)
    return data


def _earlier(path: Path, key: Mapping[str, Any], note: Callable[[str], None]) -> dict[str, Any]:
    """The parts of an earlier result with the same settings, versions and device."""
    if not path.is_file():
        return {}
    try:
        earlier = json.loads(path.read_text(encoding="utf-8"))
        old, found = {**earlier["key"], "schema": earlier["schema"]}, dict(earlier["parts"])
        changed = sorted(name for name in old if old[name] != {**key, "schema": SCHEMA}.get(name))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InflightError(f"{path} is not a result of this benchmark, so it cannot be resumed.") from None
    if changed:
        note(f"{path} was made with another {', '.join(changed)}: everything runs anew.")
        return {}
    return found


# -- the bars ----------------------------------------------------------------------------------------------------------


def report(data: Mapping[str, Any]) -> Report:
    """What was found by the parts that are done, held against the bars; of a quick run the numbers alone."""
    done = {name: part["result"] for name, part in data["parts"].items() if part["status"] == "done"}
    found = Report("gpu", "GPU benchmark")
    if accuracy := done.get("accuracy"):
        greedy = accuracy["greedy"]
        differing = f"requests of {greedy['requests']} whose float32 greedy tokens differ"
        found.limits += [
            Limit(differing, greedy["different_requests"], "requests", 0),
            Limit("error of packed bf16 logits, against each request alone", round(accuracy["logits"]["ratio"], 3), "×", 1.2),
        ]
    if main := done.get(data["key"]["scale"]["main"]["name"]):
        for run in (main["all"], main["compared"]):
            count = run["workload"]["requests"]
            found.times[f"inflight, {count} requests"] = [run["seconds"]]
            found.limits.append(Limit(f"output of {count} requests", run["output_tok_s"], "tok/s"))
        recording = main["recording"]
        host = "host time that goes into events, mostly beside the device's"
        found.limits += [
            Limit("slower for recording events", round(100 * recording["slowdown"], 3), "%", 1.0),
            Limit(host, round(100 * recording["host_share"], 3), "%"),
        ]
        if main["all"]["idle"] is not None:
            found.limits.append(Limit("device idle between decode steps", round(100 * main["all"]["idle"], 2), "%", 5.0))
        for name, at_least in (("transformers-continuous", 5.0), ("generate-waves", None)):
            if name in done:
                ours, theirs = main["compared"], done[name]
                found.times[f"{name}, {ours['workload']['requests']} requests"] = [theirs["seconds"]]
                if theirs["output_tok_s"]:  # a run that was cut at once wrote nothing
                    found.ratios.append(Ratio("inflight", name, (ours["output_tok_s"] / theirs["output_tok_s"],), at_least))
    for shape in data["key"]["scale"]["decode"]:
        if part := done.get(f"{shape['name']}-decode"):
            size = f"{part['lanes']} lanes × {part['context']:,.0f} tokens"
            what = f"decode step of {shape['name']}, {size}, of the bandwidth floor"
            found.limits.append(Limit(what, round(100 * part["share"], 1), "%", at_least=50.0))
    if data["quick"]:
        found.ratios = [Ratio(r.faster, r.than, r.runs, None) for r in found.ratios]
        found.limits = [limit._replace(at_most=None, at_least=None) for limit in found.limits]
    return found
