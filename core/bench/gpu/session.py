"""Runs the parts one after the other within a time budget: each is saved before the next begins, and a failure in one stops none of the others."""

from __future__ import annotations

import datetime
import json
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from core.bench.gpu.device import Device
from core.bench.gpu.parts import Part, World, parts
from core.bench.gpu.scale import Scale
from core.bench.gpu.verdict import report
from core.errors import InflightError, first_sentence

SCHEMA = 1
_FRAMES = 8  # of a failure, the innermost ones: enough to find it without running it again


def chosen_parts(scale: Scale, names: Sequence[str] | None) -> list[Part]:
    """These parts, or all, in order of importance; raises InflightError for an unknown name."""
    known = parts(scale)
    unknown = [name for name in names or () if name not in {part.name for part in known}]
    if unknown:
        raise InflightError(f"There is no part {unknown[0]!r}; the parts are {', '.join(part.name for part in known)}.")
    return [part for part in known if not names or part.name in names]


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
    """The benchmark's result, see `core.bench.gpu`; written to `out` after every part.

    names: of the parts to run, all by default. resume: keep what `out` already holds of the same settings, versions and device.
    minutes: a part that would not end within them is not begun. Raises InflightError for an unknown part or a file that is no result.
    """
    wanted = chosen_parts(scale, names)
    key = {"scale": scale.to_json(), **device.about()}
    began = device.clock()
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "quick": scale.quick,
        "key": json.loads(json.dumps(key)),  # as it will be read: tuples are lists
        "parts": {part.name: _record(part, "not run", why="it was not asked for") for part in parts(scale)},
    }
    earlier = _earlier(out, data["key"], note) if resume and out is not None else {}
    kept = {name: record for name, record in earlier.items() if record["status"] == "done"}
    data["parts"].update(kept)
    failed = {name for name, record in earlier.items() if record["status"] == "failed"}
    wanted.sort(key=lambda part: part.name in failed)  # what failed may take the device with it: last

    def left() -> float:
        return 60 * minutes - (device.clock() - began)

    world = World(scale, device, left, note)
    lost: str | None = None
    for part in wanted:
        if part.name in kept:
            note(f"{part.title}: kept from {out}")
            continue
        expected = 0.0 if scale.quick else part.expected_s
        if lost is not None:
            record = _record(part, "not run", why=f"the device stopped answering in {lost}; run again with --resume")
        elif left() < max(expected, 1.0):
            record = _record(
                part,
                "not run",
                why=f"of {minutes:g} minutes {max(0.0, left()):.0f} s were left, and it takes about {expected:.0f}",
            )
        else:
            note(f"{part.title} …")
            record = _ran(part, world)
            if record["status"] == "failed" and not device.answers():
                lost = part.name
        note(f"{part.title}: {_in_words(record)}")
        data["parts"][part.name] = record
        _finish(data, out)
    return _finish(data, out)


def _ran(part: Part, world: World) -> dict[str, Any]:
    """One part from a clean device to a clean device."""
    device = world.device
    started = device.clock()
    try:
        device.free()
        result = part.run(world)
        json.dumps(result, allow_nan=False)  # numbers that are none are a failure too
        record = _record(part, "done", result=result)
    except Exception as error:  # a failure in one part must not stop the others
        frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
        where = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
        record = _record(part, "failed", why=f"{type(error).__name__}: {first_sentence(error)}", where=where)
    with suppress(RuntimeError):  # of a lost device, which the caller asks for
        device.free()
    return {**record, "took_s": round(device.clock() - started, 1)}


def _record(
    part: Part, status: str, *, why: str | None = None, where: Sequence[str] = (), result: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    return {"title": part.title, "status": status, "why": why, "where": list(where), "took_s": None, "result": result}


def _in_words(record: Mapping[str, Any]) -> str:
    took = f" in {record['took_s']:.0f} s" if record["took_s"] is not None else ""
    return f"{record['status']}{took}{': ' + record['why'] if record['why'] else ''}."


def _finish(data: dict[str, Any], out: Path | None) -> dict[str, Any]:
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
        raise InflightError(f"{path} is no result of this benchmark, so it cannot be resumed.") from None
    if changed:
        note(f"{path} was made with another {', '.join(changed)}: everything runs anew.")
        return {}
    return found
