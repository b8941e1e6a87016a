"""A day of the page, as short as one can be: nothing grows, no call is lost, and what is lost or
grows is said.
"""

from __future__ import annotations

import asyncio
import io
import json
from dataclasses import replace

import httpx
import pytest

from measure.day import Day, Reading, own_disk, per_hour
from worlds.crowd import Fault, Ledger


@pytest.mark.slow
def test_a_short_day():
    with own_disk() as folder:
        book = io.StringIO()
        day = Day(0.2, 3, folder, book)
        asyncio.run(day.pass_by())
        day.show()
    told = [json.loads(line) for line in book.getvalue().splitlines()]
    assert {"started", "killed", "rest"} <= {line["kind"] for line in told}
    assert day.verdicts() == [] and {how for _, how in day.calls.ends} >= {
        "answered",
        "refused",
        "left",
    }


def test_each_call_ends_once_and_refusals_are_sentences():
    ledger = Ledger(lambda fault: None)

    async def calls() -> None:
        async with ledger.call("answered") as call:
            assert ledger.answer(call, httpx.Response(200, json={"url": "x"})) == {"url": "x"}
        async with ledger.call("refused") as call:
            assert (
                ledger.answer(
                    call, httpx.Response(422, json={"error": {"message": "Not so many."}})
                )
                is None
            )
        async with ledger.call("twice") as call:
            call.ends("answered")
            call.ends("answered")
        async with ledger.call("never"):
            pass
        async with ledger.call("no sentence") as call:
            ledger.answer(call, httpx.Response(500, text='{"detail": "Not Found"}'))
        async with ledger.call("reset"):
            raise ConnectionResetError
        async with ledger.call("killed"):
            ledger.life += 1
            raise ConnectionResetError

    asyncio.run(calls())
    lost = {what for what, how in ledger.ends if how == "lost"}
    assert lost == {"twice", "never", "no sentence", "reset"} and len(ledger.faults) == 4
    assert ledger.ends["killed", "cut by the kill"] == 1 and ledger.sentences["Not so many."] == 1
    with pytest.raises(Fault):
        ledger.refused(ledger, {"a": 1})  # type: ignore[arg-type]


def test_what_grows_is_said(tmp_path):
    day = Day(1, 0, tmp_path, io.StringIO())
    day.life = 3
    first = Reading(0, 3, True, 700, 15, 12, 6, 0, 4)
    day.readings = [
        replace(first, at=600.0 * i, memory_mib=700 + 20 * i, descriptors=12 + i) for i in range(6)
    ]
    said = "\n".join(day.verdicts())
    assert (
        "descriptors, 12 and then 17" in said
        and "rises by 120 MiB an hour" in said
        and said.count("\n") == 1
    )
    day.readings = [replace(first, at=600.0 * i) for i in range(6)]
    assert day.verdicts() == []
    assert per_hour([(0, 1), (1800, 2), (3600, 3)]) == pytest.approx(2)
