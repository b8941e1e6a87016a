"""The benchmark of the CUDA path: one command of at most eight minutes on an H200, in independent
parts.

Models have the shapes of published ones and random weights in bfloat16. Every contender runs in
this process, alone in memory. Each part is saved before the next begins, and a failure in one does
not stop the others; finally the results are compared with the bars. docs/gpu.md says how to run it
and what the result contains.
"""

from __future__ import annotations

import datetime
import json
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from core.errors import InflightError, first_sentence
from core.files import save_json
from measure.bench.gpu.parts import BenchmarkPart, benchmark_parts
from measure.bench.gpu.scale import FULL, TINY, Device, PartContext, Scale
from measure.bench.report import Limit, Ratio, Report

__all__ = ["FULL", "TINY", "Device", "Scale", "headline", "report", "run"]

SCHEMA = 3
_FRAMES = 8  # innermost frames kept of a failure: enough to find it without running it again


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

    names: of the parts to run, all by default. resume: keep what `out` already holds of the same
    settings, versions and device. minutes: a part that would not end within them is not started. A
    KeyboardInterrupt ends it with the parts so far. Raises InflightError for an unknown part or a
    file that is not a result.
    """
    known = {part.name: part for part in benchmark_parts(scale)}
    if unknown := [name for name in names or () if name not in known]:
        raise InflightError(f"There is no part {unknown[0]!r}; the parts are {', '.join(known)}.")
    end = device.clock() + 60 * minutes
    key = json.loads(
        json.dumps({"schema": SCHEMA, "scale": asdict(scale), **device.about()})
    )  # as it will be read back: tuples become lists
    earlier = _earlier(out, key, note) if resume and out is not None and out.is_file() else {}
    parts = {
        name: _record(part, "not run", why="it was not asked for") for name, part in known.items()
    }
    parts |= {name: record for name, record in earlier.items() if record["status"] == "done"}
    created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    data: dict[str, Any] = {
        "schema": f"bench-gpu/{SCHEMA}",
        "complete": True,
        "created": created,
        "quick": scale.quick,
        "key": key,
        "parts": parts,
    }
    wanted = [part for name, part in known.items() if not names or name in names]
    # last, because it may crash the device
    wanted.sort(key=lambda part: earlier.get(part.name, {}).get("status") == "failed")
    lost: str | None = None
    for part in wanted:
        left, expected = end - device.clock(), 0.0 if scale.quick else part.expected_s
        if parts[part.name]["status"] == "done":
            note(f"{part.title}: kept from {out}")
            continue
        if lost is not None:
            record = _record(
                part,
                "not run",
                why=f"the device stopped answering in {lost}; run again with --resume",
            )
        elif left < max(expected, 1.0):
            why = (
                f"of {minutes:g} minutes {max(0.0, left):.0f} s were left, and it takes about"
                f" {expected:.0f}"
            )
            record = _record(part, "not run", why=why)
        else:
            note(f"{part.title} …")
            try:
                record = _run_part(
                    part, PartContext(scale, device, lambda: end - device.clock(), note)
                )
            except KeyboardInterrupt:
                parts[part.name] = _record(part, "not run", why="it was interrupted")
                data["complete"] = False
                break
            if not device.answers():
                lost = part.name
                record |= {
                    "status": "failed",
                    "why": record["why"] or "the device stopped answering",
                    "result": None,
                }
        note(headline(record))
        parts[part.name] = record
        _save(data, out)
    return _save(data, out)


def headline(record: Mapping[str, Any]) -> str:
    """The outcome of a part, in a line."""
    if record["status"] == "done":
        return f"{record['title']}, in {record['took_s']:.0f} s"
    return f"{record['title']}: {record['status']}, {record['why']}."


def _run_part(part: BenchmarkPart, context: PartContext) -> dict[str, Any]:
    """One part from a clean device to a clean device."""
    device = context.device
    started = device.clock()
    try:
        device.free()
        result = part.run(context)
        json.dumps(result, allow_nan=False)  # non-finite numbers are a failure, too
        record = _record(part, "done", result=result)
    except Exception as error:  # a failure in one part must not stop the others
        frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
        where = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
        record = _record(
            part, "failed", why=f"{type(error).__name__}: {first_sentence(error)}", where=where
        )
    with suppress(RuntimeError):  # the device may be lost, which the caller checks
        device.free()
    return {**record, "notes": context.notes, "took_s": round(device.clock() - started, 1)}


def _record(part: BenchmarkPart, status: str, **found: Any) -> dict[str, Any]:
    return {
        "title": part.title,
        "status": status,
        "why": None,
        "where": [],
        "notes": [],
        "took_s": None,
        "result": None,
        **found,
    }


def _save(data: dict[str, Any], out: Path | None) -> dict[str, Any]:
    """Judge the results so far and write them to the file; if that fails, the file stays as it
    was.
    """
    data["report"] = report(data).to_json()
    if out is not None:
        save_json(out, data)
    return data


def _earlier(path: Path, key: Mapping[str, Any], note: Callable[[str], None]) -> dict[str, Any]:
    """The parts of an earlier result with the same settings, versions and device."""
    try:
        earlier = json.loads(path.read_text(encoding="utf-8"))
        parts, changed = (
            dict(earlier["parts"]),
            [name for name in key if earlier["key"].get(name) != key[name]],
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InflightError(
            f"{path} is not a result of this benchmark, so it cannot be resumed."
        ) from None
    if changed:
        note(f"{path} was made with a different {', '.join(changed)}: everything runs again.")
    return {} if changed else parts


def report(data: Mapping[str, Any]) -> Report:
    """The results of the finished parts, compared with the bars; for a quick run only the
    numbers.
    """
    done = {
        name: part["result"] for name, part in data["parts"].items() if part["status"] == "done"
    }
    found, scale = Report("gpu", "GPU benchmark"), data["key"]["scale"]
    if accuracy := done.get("accuracy"):
        greedy, ratio = accuracy["greedy"], round(accuracy["logits"]["ratio"], 3)
        differing = f"requests of {greedy['requests']} whose float32 greedy tokens differ"
        found.limits.append(Limit(differing, greedy["different_requests"], "requests", 0))
        found.limits.append(
            Limit("error of packed bf16 logits, against each request alone", ratio, "×", 1.2)
        )
    if main := done.get(scale["main"]["name"]):
        for run in (main["all"], main["compared"]):
            found.limits.append(
                Limit(
                    f"output of {run['workload']['requests']} requests",
                    run["output_tok_s"],
                    "tok/s",
                )
            )
        found.limits.append(
            Limit(
                "slower for recording events",
                round(100 * main["recording"]["slowdown"], 3),
                "%",
                1.0,
            )
        )
        if main["all"]["idle"] is not None:
            found.limits.append(Limit("device idle", round(100 * main["all"]["idle"], 2), "%", 5.0))
        for name, at_least in (("transformers-continuous", 5.0), ("generate-waves", None)):
            if name in done and done[name]["output_tok_s"]:  # a run cut at once produced nothing
                ratio = main["compared"]["output_tok_s"] / done[name]["output_tok_s"]
                found.ratios.append(Ratio("inflight", name, (ratio,), at_least))
    for shape in scale["decode"]:
        if part := done.get(f"{shape['name']}-decode"):
            what = (
                f"decode step of {shape['name']}, {part['lanes']} lanes × {part['context']:,.0f}"
                " tokens, of the bandwidth floor"
            )
            found.limits.append(Limit(what, round(100 * part["share"], 1), "%", at_least=50.0))
    if data["quick"]:
        found.ratios = [Ratio(r.faster, r.than, r.runs, None) for r in found.ratios]
        found.limits = [limit._replace(at_most=None, at_least=None) for limit in found.limits]
    return found
