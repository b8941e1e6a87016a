"""Those who watch an engine: everything in order, what a reader that fell behind is told, and what
many readers cost.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from core.serving import event_log
from core.serving.event_log import EventLog, _next_tick, events, events_together
from worlds.server_events import messages_in


def messages(log: EventLog, after: int | None = None) -> list[dict]:
    """All that a reader gets of a log that is closed."""

    async def read():
        return [json.loads(batch.messages) async for batch in log.read(after, coalesce_s=0)]

    return [message for batch in asyncio.run(read()) for message in batch]


def filled(count: int, kept: int) -> EventLog:
    log = EventLog(kept)
    log.append({"kind": "run", "header": {}}, state="run")
    for number in range(1, count):
        log.append({"kind": "request", "id": f"r{number}"})
    log.close()
    return log


def test_a_reader_gets_everything_in_order_and_goes_on_where_it_was():
    log = filled(700, kept=1000)
    everything = messages(log)
    assert [m.get("id") for m in everything] == [None] + [f"r{n}" for n in range(1, 700)]
    assert messages(log, after=650) == everything[651:]
    assert messages(log, after=699) == []
    assert messages(log, after=10**9) == everything  # the number of another server


def test_a_reader_that_fell_behind_skips_ahead_and_is_told():
    log = filled(5000, kept=100)
    skipped, run, *rest = messages(log, after=3)
    assert skipped["kind"] == "skipped" and run["kind"] == "run"
    assert (
        skipped["messages"] + len(rest) == 5000 - 4
        and 100 <= len(rest) <= 200
        and rest[-1]["id"] == "r4999"
    )


def test_readers_wait_for_news_and_end_with_the_log():
    async def two_readers():
        log = EventLog()

        seen: list[list[int]] = [[], []]

        async def read(mine: list[int]) -> None:
            async for batch in log.read(coalesce_s=0):
                mine.append(batch.last)

        readers = [asyncio.create_task(read(mine)) for mine in seen]
        for number in range(3):
            log.append({"kind": "request", "id": str(number)})
            while any(len(mine) <= number for mine in seen):
                await asyncio.sleep(0)
        log.close()
        await asyncio.gather(*readers)
        return seen

    assert asyncio.run(two_readers()) == [[0, 1, 2]] * 2


def test_readers_who_are_equally_far_share_one_batch_and_one_encoding():
    async def watch(count: int) -> list[list]:
        log = EventLog()
        log.append({"kind": "run", "header": {}}, state="run")

        async def read():
            return [batch async for batch in log.read(coalesce_s=0.05)]

        readers = [asyncio.create_task(read()) for _ in range(count)]
        for number in range(40):
            if number % 8 == 0:
                # what comes in between travels together, however slow the machine
                await asyncio.sleep(0.06)
            log.append({"kind": "request", "id": f"r{number}"})
        log.close()
        return await asyncio.gather(*readers)

    seen = asyncio.run(watch(50))
    assert all(
        b"".join(batch.event for batch in found) == b"".join(batch.event for batch in seen[0])
        for found in seen
    )
    told = [
        m["id"] for batch in seen[0] for m in json.loads(batch.messages) if m["kind"] == "request"
    ]
    assert told == [f"r{number}" for number in range(40)]
    later = [batch for found in seen for batch in found[1:]]
    # a machine that stops for a moment sets a few readers apart
    assert len({id(batch) for batch in later}) < len(later) / 10


@pytest.mark.slow
@pytest.mark.parametrize("readers", [1, 250])
def test_readers_are_told_ten_times_a_second_and_a_crowd_less_often(readers, monkeypatch):
    slept: list[float] = []
    next_tick = event_log._next_tick

    async def counted(seconds: float) -> int:
        slept.append(seconds)
        return await next_tick(seconds)

    monkeypatch.setattr(event_log, "_next_tick", counted)

    async def watch():
        log = EventLog()

        async def read():
            return [batch async for batch in log.read()]

        tasks = [asyncio.create_task(read()) for _ in range(readers)]
        for number in range(50):
            await asyncio.sleep(0.01)
            log.append({"kind": "request", "id": str(number)})
        log.close()
        await asyncio.gather(*tasks)
        assert log.num_readers == 0

    asyncio.run(watch())
    assert set(slept[readers:]) <= {
        event_log.COALESCE_S * n for n in ([1] if readers == 1 else [1, 2, 3])
    }
    assert max(slept) == pytest.approx(event_log.COALESCE_S * (1 if readers == 1 else 3))


def test_a_reader_that_stalls_is_waited_for_by_nobody_and_skips_ahead():
    async def watch():
        log = EventLog(kept=50)
        log.append({"kind": "run", "run": 0, "header": {}}, state="run")
        log.append({"kind": "class", "policy": "static"}, state="class")
        stalled = log.read(coalesce_s=0)
        await anext(stalled)
        quick, last = [], None
        for number in range(1000):
            log.append({"kind": "request", "id": f"r{number}"})
            if number % 20 == 0:
                async for batch in log.read(last, coalesce_s=0):
                    quick, last = quick + json.loads(batch.messages), batch.last
                    if last == number + 2:
                        break
        return json.loads((await anext(stalled)).messages), quick, len(log._messages)

    late, quick, kept = asyncio.run(watch())
    assert [m["kind"] for m in late[:3]] == ["skipped", "run", "class"] and late[0][
        "messages"
    ] + kept == 1000
    assert [m["id"] for m in late[3:]] == [
        f"r{n}" for n in range(1000 - kept, 1000)
    ] and kept <= 101
    assert (
        not any(m["kind"] == "skipped" for m in quick)
        and sum(m["kind"] == "request" for m in quick) > 950
    )


# -- what streams of a page have besides -----------------------------------------------------------


async def all_of(log: EventLog, after: int | None = None) -> list[list[dict]]:
    return [messages_in(piece) async for piece in events(log, after)]


def test_a_log_without_limits_gives_every_reader_everything_from_its_place_on():
    async def go():
        log = EventLog()
        log.append({"n": 0})
        early = asyncio.create_task(all_of(log))
        await asyncio.sleep(0)
        for n in (1, 2):
            log.append({"n": n})
            await asyncio.sleep(0.01)
        late = asyncio.create_task(all_of(log, after=1))
        log.close()
        return await early, await late

    early, late = asyncio.run(go())
    assert [d for piece in early for d in piece] == [{"n": n} for n in range(3)] and late == [
        [{"n": 2}]
    ]


def test_a_message_is_encoded_once_for_two_hundred_readers(monkeypatch):
    encoded = []
    encode = event_log._encoded
    monkeypatch.setattr(
        event_log, "_encoded", lambda message: encoded.append(message) or encode(message)
    )

    async def go():
        log = EventLog()
        readers = [asyncio.create_task(all_of(log)) for _ in range(200)]
        await asyncio.sleep(0)
        for n in range(5):
            log.append({"n": n})
        log.close()
        return await asyncio.gather(*readers)

    assert all(sum(map(len, pieces)) == 5 for pieces in asyncio.run(go())) and len(encoded) == 5


def test_silence_is_broken_by_a_comment_and_a_reader_that_leaves_is_forgotten(monkeypatch):
    monkeypatch.setattr(event_log, "KEEP_ALIVE_S", 0.01)

    async def go():
        log = EventLog()
        reader, together = events(log), events_together({"a": log}, period=0.01)
        first, second = await anext(reader), await anext(together)
        await reader.aclose()
        await together.aclose()
        return first, second, log._waiting

    first, second, waiting = asyncio.run(go())
    assert first == second == event_log.COMMENT and not messages_in(first) and not waiting


def test_several_logs_are_silent_between_two_comments(monkeypatch):
    monkeypatch.setattr(event_log, "KEEP_ALIVE_S", 0.05)
    looks = 0
    sleep = asyncio.sleep

    async def looked(seconds):
        nonlocal looks
        looks += 1
        await sleep(0)

    async def go():
        together = events_together({"a": EventLog()}, period=0.01)
        monkeypatch.setattr(event_log.asyncio, "sleep", looked)
        return [await anext(together) for _ in range(3)]

    assert asyncio.run(go()) == [event_log.COMMENT] * 3 and looks >= 12


def test_nothing_of_what_a_visitor_asked_is_shown_where_texts_are_hidden():
    asked = {"prompt_token_ids": [1], "messages": [{"role": "user"}], "sampling": {}}
    told = {"kind": "request", "id": "r0", "nickname": "Ada", "is_bot": False, **asked}
    hidden = {**told, **dict.fromkeys(asked)}
    assert event_log.Hidden(nicknames=False)(told) == hidden
    assert event_log.Hidden()(told) == {**hidden, "nickname": None}
    bot = {**told, "is_bot": True}
    assert event_log.Hidden()(bot) == {**hidden, "is_bot": True}  # a program may have its name
    assert event_log.Hidden(texts=False, nicknames=False)(told) == told


def test_texts_that_have_no_utf8_travel_all_the_same():
    log = EventLog()
    log.append({"text": "\ud800\n\u2028é"})
    log.close()
    assert asyncio.run(all_of(log))[0][0]["text"] == "\ud800\n\u2028é"


def sent(log: EventLog, after: int | None = None, chapters: int | None = None) -> list[dict]:
    excerpt, _ = log.take(after, chapters)
    return [] if excerpt is None else json.loads(excerpt.messages)


def of_chapters(chapters: int, *, every: int = 3, kept: int = 2) -> EventLog:
    log = EventLog(chapters=kept)
    for chapter in range(chapters):
        log.append({"chapter": chapter}, begins=True)
        for n in range(every):
            log.append({"n": n})
    return log


def test_a_newcomer_begins_at_a_chapter_and_knows_how_things_stand():
    log = EventLog(chapters=2)
    log.append({"pace": 1}, state="pace")
    for chapter in range(4):
        log.append({"chapter": chapter}, begins=True)
        log.append({"class": chapter}, state="class")
    skipped, pace, old, *rest = sent(log)
    assert skipped == {"kind": "skipped", "messages": 0} and [pace, old] == [
        {"pace": 1},
        {"chapter": 2},
    ]
    assert rest == [{"class": 2}, {"chapter": 3}, {"class": 3}]
    assert [m["chapter"] for m in sent(log, chapters=1) if "chapter" in m] == [3]


def test_who_falls_behind_the_chapters_that_are_kept_begins_anew_and_is_told_how_much_it_missed():
    log = of_chapters(5)
    assert sent(log, after=11) == [
        {"chapter": 3},
        {"n": 0},
        {"n": 1},
        {"n": 2},
        {"chapter": 4},
        {"n": 0},
        {"n": 1},
        {"n": 2},
    ]
    late = sent(log, after=4)
    assert late[0] == {"kind": "skipped", "messages": 7} and late[1:] == sent(log, after=11)
    assert sent(log, after=19) == [] and sent(log, after=10**6)[0] == {
        "kind": "skipped",
        "messages": 0,
    }


def test_what_is_shown_differently_is_sent_to_everybody_anew_and_counts_as_nothing_missed():
    log = of_chapters(3)
    everything = sent(log, after=11)
    log.shown = lambda message: {**message, "veiled": True}
    log.restart()
    again = sent(log, after=11)
    assert (
        again[0] == {"kind": "skipped", "messages": 0, "veiled": True}
        and len(again) == 1 + 8
        and everything == []
    )
    assert all(message["veiled"] for message in again)
    # and whoever comes then begins at a chapter of the same messages
    assert [m.get("chapter") for m in sent(log, chapters=1)] == [None, 2, None, None, None]
    log.forget()
    assert sent(log, after=len(log) - 2)[0]["messages"] == 0
    log.append({"chapter": 9}, begins=True)
    assert [m.get("chapter") for m in sent(log)[1:]] == [9]


def test_whoever_knows_that_all_was_forgotten_is_told_what_it_missed_since():
    log = of_chapters(1)
    log.forget()
    excerpt, _ = log.take(None)
    assert excerpt is not None
    for chapter in range(3):  # of which two are kept
        log.append({"chapter": chapter}, begins=True)
    skipped, *rest = sent(log, after=excerpt.last)
    assert skipped == {"kind": "skipped", "messages": 1}
    assert rest == [{"chapter": 1}, {"chapter": 2}]


def test_a_log_keeps_at_most_twice_as_many_as_it_has_to():
    log = EventLog(2)
    for n in range(5):
        log.append({"n": n})
    assert sent(log, after=0) == [
        {"kind": "skipped", "messages": 1},
        *({"n": n} for n in (2, 3, 4)),
    ]


def test_several_logs_in_one_stream_each_from_its_place_until_all_are_closed():
    async def go():
        logs = {"a": EventLog(), "b": EventLog()}
        for n in range(600):
            logs["a"].append({"n": n})
        logs["b"].append({"n": 0})
        for log in logs.values():
            log.close()
        pieces = [piece async for piece in events_together(logs, {"a": 1}, period=0.01)]
        return [told for piece in pieces for told in messages_in(piece)]

    told = asyncio.run(go())
    of_a = [told for told in told if told["of"] == "a"]
    assert [m["n"] for part in of_a for m in part["messages"]] == list(range(2, 600)) and of_a[-1][
        "last"
    ] == 599
    assert [t["messages"] for t in told if t["of"] == "b"] == [[{"n": 0}]]


def test_a_state_with_which_a_chapter_begins_is_told_once():
    log = EventLog(chapters=1)
    for run in range(2):
        log.append({"run": run}, state="run", begins=True)
    assert sent(log) == [{"kind": "skipped", "messages": 0}, {"run": 1}]


def test_readers_who_are_woken_together_share_nothing_from_before_it_was_hidden():
    log = EventLog()
    log.append({"text": "secret"})
    log._take_together(None, None, 1)
    log.shown = lambda message: {"text": None}
    excerpt, _ = log._take_together(None, None, 1)
    assert excerpt is not None and excerpt.messages == '[{"text":null}]'


def test_what_was_shown_before_is_hidden_from_whoever_comes_later():
    log = EventLog()
    log.append({"text": "secret"})
    assert sent(log) == [{"text": "secret"}]
    log.shown = lambda message: {"text": None}
    assert sent(log) == [{"text": None}]


def test_a_log_that_was_closed_since_a_reader_looked_is_not_waited_for():
    log = EventLog()
    log.close()
    assert asyncio.run(log._news(None, 0.01))


def test_a_tick_is_a_moment_that_is_still_to_come():
    async def waited() -> bool:
        clock = asyncio.get_running_loop().time
        before = clock()
        tick = await _next_tick(1 / 64)
        return before < tick / 64 <= clock() + 0.001  # a loop's clock wakes it that exactly

    assert asyncio.run(waited()) and asyncio.run(_next_tick(0)) == 0


def test_what_comes_just_before_the_end_is_not_missed():
    class Ending(EventLog):
        """It ends while a reader that has found nothing new is still looking."""

        def take(self, after: int | None, chapters: int | None = None):
            found = super().take(after, chapters)
            if found[0] is None and not self.closed:
                self.append({"n": 0})
                self.close()
            return found

    assert messages(Ending()) == [{"n": 0}]


def test_a_reader_whose_loop_is_closed_stops_nobody():
    log, loop = EventLog(), asyncio.new_event_loop()
    reader = loop.create_task(log._news(None, None))
    loop.run_until_complete(asyncio.sleep(0))
    assert log._waiting
    loop.close()
    log.append({"n": 0})
    assert sent(log) == [{"n": 0}] and not log._waiting and not reader.done()
