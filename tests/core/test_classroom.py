"""One engine, many people, and a teacher: limits that change on the way, bursts, what is hidden."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from core.errors import InflightError, InvalidConfig, InvalidRequest, Unavailable
from core.serving.classroom import Classroom
from core.serving.engine import ServingEngine
from core.serving.event_log import Hidden
from core.serving.limits import ServingLimits
from core.workload.demo_workloads import demo_workloads, house_prompts
from worlds.serving import (
    all_messages,
    between_two_steps,
    char_engine,
    chat_engine,
    checked,
    greedy,
    idle,
    served,
    serving,
    tokens,
    whole,
)
from worlds.small import MemoryModel, generate, memory_engine, request

SHOWN = Hidden(texts=False, nicknames=False)


# -- other limits on the way -----------------------------------------------------------------------


def test_an_idle_engine_has_other_limits_at_once():
    async def change(made: ServingEngine):
        room = Classroom(made)
        await whole(await made.submit((4, 5), greedy(3)))
        room.configure(policy="static", max_num_seqs=3)
        pieces = await whole(await made.submit((4, 5, 6), greedy(7)))
        await idle(made)
        return tokens(pieces), await all_messages(made)

    with serving(memory_engine(max_num_seqs=2)) as made:
        found, messages = asyncio.run(change(made))
        assert found == generate(request("r", (4, 5, 6), 7))
        assert [(m["header"]["policy"], m["run"]) for m in messages if m["kind"] == "run"] == [
            ("continuous", 0),
            ("static", 1),
        ]
        settled = [m for m in messages if m["kind"] == "class" and not m["changing"]]
        assert settled[-1]["policy"] == "static" and settled[-1]["max_num_seqs"] == 3
        assert made.sessions == [(0, 3), (1, 7)]
        for run in (0, 1):
            assert checked(made.session(run)).complete


def test_at_a_barrier_those_in_lanes_finish_and_those_waiting_are_carried_over():
    async def change(made: ServingEngine):
        room = Classroom(made)
        made.set_pace(0)
        streams = [await made.submit((4, 5, i), greedy(4 + i)) for i in range(5)]
        made.step(2)
        while made.engine.num_steps < 2:
            await asyncio.sleep(0.001)
        room.configure(policy="static", max_num_seqs=4)
        late = await made.submit((9, 9), greedy(3))
        assert (
            room.state["changing"]
            and room.state["next"]["policy"] == "static"
            and room.state["policy"] == "continuous"
        )
        made.set_pace(None)
        pieces = await asyncio.gather(*map(whole, [*streams, late]))
        await idle(made)
        return [tokens(p) for p in pieces], [s.id for s in streams], await all_messages(made)

    with serving(memory_engine(max_num_seqs=2)) as made:
        found, ids, messages = asyncio.run(change(made))
        assert found == [generate(request("r", (4, 5, i), 4 + i)) for i in range(5)] + [
            generate(request("r", (9, 9), 3))
        ]
        (carried,) = [m["requests"] for m in messages if m["kind"] == "carried"]
        assert carried == ids[2:]
        first, second = made.session(0), made.session(1)
        ends = {f.request: f.finish_reason for e in first.events for f in e.finished}
        assert ends == {**dict.fromkeys(ids[:2], "length"), **dict.fromkeys(ids[2:], "cancelled")}
        assert len(second.prompts) == 4 and second.config.policy.name == "static"
        assert checked(first).complete and checked(second).complete


def test_who_is_held_can_leave_and_a_barrier_with_nobody_in_a_lane_is_none():
    async def change(made: ServingEngine):
        room = Classroom(made)
        made.set_pace(0)
        stays, leaves = [await made.submit((4, 5, i), greedy(4)) for i in range(2)]
        room.configure(max_num_seqs=1, max_num_batched_tokens=64)
        leaves.cancel()
        made.set_pace(None)
        assert [p.finish_reason for p in await whole(leaves)] == ["cancelled"]
        assert tokens(await whole(stays)) == generate(request("r", (4, 5, 0), 4))
        await idle(made)
        assert (
            made.engine.config.max_num_seqs == 1
            and not room.state["changing"]
            and room.state["held"] == 0
        )

    with serving(memory_engine(max_num_seqs=2)) as made:
        asyncio.run(change(made))
        assert checked(made.session()).complete


def test_who_left_before_a_change_does_not_come_back_in_the_new_run():
    """Though the batch stands still, so that no step reports the leaving yet."""

    async def change(made: ServingEngine):
        room = Classroom(made)
        made.set_pace(0)
        stays, leaves = [await made.submit((4, 5, i), greedy(4)) for i in range(2)]
        made.step()
        while made.engine.num_steps < 1:
            await asyncio.sleep(0.001)
        leaves.cancel()
        room.configure(policy="static")
        made.set_pace(None)
        assert [p.finish_reason for p in await whole(leaves)] == ["cancelled"]
        assert tokens(await whole(stays)) == generate(request("r", (4, 5, 0), 4))
        await idle(made)
        while room.state["changing"]:
            await asyncio.sleep(0.001)
        assert made.engine.config.policy.name == "static" and made.sessions == [(0, 4)]

    with serving(memory_engine(max_num_seqs=1)) as made:
        asyncio.run(change(made))


def test_of_two_changes_at_once_neither_undoes_the_other():
    """Two teachers: the second begins from what the first has asked for, though the engine has not
    seen that yet.
    """

    async def change(made: ServingEngine):
        room = Classroom(made)
        with between_two_steps(made):
            room.configure(policy="static")
            assert room.configure(max_num_seqs=1).policy.name == "static" and room.state["changing"]
        await whole(await made.submit((4, 5), greedy(3)))
        assert (
            made.engine.config.policy.name,
            made.engine.config.max_num_seqs,
            room.state["changing"],
        ) == ("static", 1, False)

    with serving(memory_engine(max_num_seqs=2)) as made:
        asyncio.run(change(made))


def test_of_two_changes_by_two_threads_neither_undoes_the_other():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with (
            serving(memory_engine(max_num_batched_tokens=64)) as made,
            between_two_steps(made),
            ThreadPoolExecutor(2) as teachers,
        ):
            room, both = Classroom(made), threading.Barrier(2)

            def change(**limits: int) -> None:
                both.wait()
                room.configure(**limits)

            for number in range(1, 51):
                lanes = teachers.submit(change, max_num_seqs=number)
                budget = teachers.submit(change, max_num_batched_tokens=64 + number)
                assert lanes.result() is budget.result() is None
                config = made.config_to_come
                assert (config.max_num_seqs, config.max_num_batched_tokens) == (number, 64 + number)
    finally:
        sys.setswitchinterval(interval)


def test_who_had_a_lane_before_a_step_failed_waits_for_the_new_limits_like_anybody():
    """The second joins, gives way while its prompt is read, and is not in the step that fails."""

    class Breaking(MemoryModel):
        is_broken = False

        def forward(self, batch, pool, backend=None):
            if self.is_broken:
                raise ValueError("a bug of ours")
            return super().forward(batch, pool, backend)

    async def change(made: ServingEngine, model: Breaking):
        made.set_pace(0)
        first = await made.submit((4, 5, 6, 7), greedy(40))
        second = await made.submit((4, 5) * 20, greedy(2))

        async def steps_until(done) -> None:
            while not done():
                taken = made.engine.num_steps
                made.step()  # one at a time: what was asked for is taken after a failure, too
                while made.engine.num_steps == taken and not made.num_step_failures:
                    await asyncio.sleep(0.001)

        await steps_until(lambda: made.engine.running == (first.id, second.id))
        await steps_until(lambda: made.engine.running == (first.id,))
        model.is_broken = True
        await steps_until(lambda: made.num_step_failures)
        model.is_broken = False
        Classroom(made).configure(max_num_seqs=3)
        made.set_pace(None)
        await whole(second)
        await idle(made)
        assert made.session().config.max_num_seqs == 3 and list(made.session().prompts) == [
            second.id
        ]

    model = Breaking()
    with serving(
        memory_engine(model=model, max_num_batched_tokens=8, block_size=4, num_blocks=11)
    ) as made:
        asyncio.run(change(made, model))


def test_a_change_when_idle_keeps_nobody_out():
    async def change(made: ServingEngine):
        room = Classroom(made)

        async def ask(*last: int) -> list[asyncio.Task]:
            asking = [asyncio.create_task(made.submit((4, 5, i), greedy(30))) for i in last]
            await asyncio.sleep(0)
            return asking

        with between_two_steps(made):
            asking = await ask(*range(6))
            room.configure(start="idle", max_num_seqs=5)
            asking += await ask(6)  # whoever comes now, too
        await asyncio.gather(*[whole(stream) for stream in await asyncio.gather(*asking)])
        await idle(made)
        messages = await all_messages(made)
        (begun,) = [i for i, m in enumerate(messages) if m["kind"] == "run" and m["run"] == 1]
        assert (
            not [m for m in messages if m["kind"] == "carried"]
            and messages[begun]["header"]["config"]["max_num_seqs"] == 5
        )
        assert sum(len(m["finished"]) for m in messages[:begun] if m["kind"] == "step") == 7

    with serving(memory_engine(max_num_seqs=2)) as made:
        asyncio.run(change(made))


def test_who_is_held_at_a_barrier_is_not_overtaken_after_a_change_when_idle():
    async def change(made: ServingEngine):
        room = Classroom(made)
        made.set_pace(0)
        runs, waits = [await made.submit((4, 5, i), greedy(9)) for i in range(2)]
        made.step()
        while made.engine.num_steps < 1:
            await asyncio.sleep(0.001)
        room.configure(max_num_seqs=2)
        room.configure(start="idle", max_num_seqs=3)
        late = await made.submit((4, 5, 6), greedy(9))
        assert room.state["held"] == 2
        made.set_pace(None)
        await asyncio.gather(*map(whole, (runs, waits, late)))
        await idle(made)
        assert made.engine.config.max_num_seqs == 3
        assert len(made.session(0).prompts) == len(made.session(1).prompts) == 2

    with serving(memory_engine(max_num_seqs=1)) as made:
        asyncio.run(change(made))


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ({"policy": "magic"}, "There is no policy 'magic'"),
        ({"max_num_seqs": 0}, "max_num_seqs must be a whole number"),
        ({"max_num_seqs": 999, "max_num_batched_tokens": 999}, "At most 256 lanes"),
        (
            {"max_num_seqs": 5, "max_num_batched_tokens": 4},
            "A token budget of 4 cannot serve 5 lanes",
        ),
        ({"policy": "static", "prefix_caching": True}, "Prefix caching needs a policy"),
        ({"lanes": 3}, "no limit called 'lanes'"),
    ],
)
def test_limits_that_cannot_be_are_refused_and_nothing_changes(limits, says):
    with serving(memory_engine()) as made:
        room = Classroom(made)
        before = made.engine.config
        with pytest.raises(InvalidConfig, match=says):
            room.configure(**limits)
        assert made.engine.config == before and made.config_to_come is None


def test_who_waits_and_cannot_run_under_the_new_limits_is_told():
    async def change(made: ServingEngine):
        room = Classroom(made)
        made.set_pace(0)
        waits = await made.submit(tuple(range(4, 44)), greedy(2))
        room.configure(chunked_prefill=False, max_num_batched_tokens=20)
        with pytest.raises(InvalidRequest, match="without chunked prefill|Without chunked prefill"):
            await whole(waits)
        made.set_pace(None)
        await idle(made)

    with serving(memory_engine()) as made:
        asyncio.run(change(made))


# -- bursts, and who may ask -----------------------------------------------------------------------


def test_while_nothing_is_accepted_only_a_teachers_burst_is():
    async def send(made: ServingEngine):
        room = Classroom(made)
        room.accept(False)
        with pytest.raises(Unavailable, match="No requests are accepted right now"):
            await made.submit((4,), greedy(2))
        (stream,) = await room.burst([((4, 5), greedy(3))])
        assert tokens(await whole(stream)) == generate(request("r", (4, 5), 3))
        room.accept(True)
        await whole(await made.submit((4,), greedy(2)))
        await idle(made)

    with serving(memory_engine()) as made:
        asyncio.run(send(made))


@pytest.mark.slow
def test_every_prepared_burst_runs_on_the_built_in_models_and_all_of_it_ends():
    async def send(made: ServingEngine):
        room = Classroom(made)
        room.accept(False)
        with pytest.raises(Unavailable, match="right now"):
            await made.submit((4,), greedy(2))
        for name, burst in demo_workloads(answers=False).items():
            streams = await room.burst(name)
            answers = await asyncio.gather(*map(whole, streams))
            assert [len(tokens(a)) for a in answers] == [new for _, new in burst.prompts]
        with pytest.raises(InvalidRequest, match="no such burst"):
            await room.burst("tidal")
        await idle(made)

    with serving(char_engine(max_num_seqs=8, num_blocks=200)) as made:
        asyncio.run(send(made))


def test_a_model_that_answers_is_sent_a_burst_of_questions():
    async def send(made: ServingEngine):
        room = Classroom(made)
        room.tell_first("Be brief.")
        streams = await room.burst("equal")
        text = streams[0].conversation[1]["content"]
        assert text == "Tell me about Romeo." and len(streams) == 16
        told = made.tokenizer.decode(streams[0].prompt)
        assert told == f"system: Be brief.\nuser: {text}\nassistant: "
        assert [len(tokens(await whole(stream))) for stream in streams] == [24] * 16
        await idle(made)

    with serving(chat_engine()) as made:
        asyncio.run(send(made))


def test_a_burst_that_does_not_fit_leaves_nothing_behind():
    async def send(made: ServingEngine):
        room = Classroom(made)
        made.set_pace(0)
        with pytest.raises(InflightError, match="requests are in progress"):
            await room.burst([((4, 5), greedy(3))] * 6)
        with pytest.raises(InflightError, match="exceed the whole KV pool"):
            await room.burst([((4, 5), greedy(3)), ((4, 5), greedy(3)), ((4, 5), greedy(500))])
        made.set_pace(None)
        await idle(made)

    with serving(memory_engine(num_blocks=20), ServingLimits(max_requests=5)) as made:
        asyncio.run(send(made))
        assert [f.finish_reason for event in made.session().events for f in event.finished] == [
            "cancelled"
        ] * 2


@pytest.mark.parametrize(
    "name",
    ["<b>x</b>", "a\nb", "a\u202eb", "x" * 25, "a&b", "\u200b", '"', "`", "javascript:x", "\x00"]
    + [
        "\u3164",
        "Ada\u034f",
        "Ada\ufe0f",
        "A" + "\u0336" * 4,
        "\u0301",
        "\ufdfa" * 2,
    ],  # unseen, piled up, wider than they are long
)
def test_a_nickname_that_is_none(name):
    async def ask(made: ServingEngine):
        with pytest.raises(InvalidRequest, match="A name has at most 24"):
            await made.submit((4, 5), greedy(2), nickname=name)
        await idle(made)

    with serving(memory_engine()) as made:
        asyncio.run(ask(made))


def test_nicknames_are_told_trimmed():
    async def ask(made: ServingEngine):
        for name in (
            "  Zoë   O'Neil-3 ",
            "",
            None,
            "李 小龙",
            "สมชาย",
            "Nguyễn",
            "नमिता",
            "Botond",
        ):
            await whole(await made.submit((4, 5), greedy(1), nickname=name))
        return [m["nickname"] for m in await all_messages(made) if m["kind"] == "request"]

    with serving(memory_engine(), hidden=SHOWN) as made:
        assert asyncio.run(ask(made)) == [
            "Zoë O'Neil-3",
            None,
            None,
            "李 小龙",
            "สมชาย",
            "Nguyễn",
            "नमिता",
            "Botond",
        ]


# -- what is hidden --------------------------------------------------------------------------------


def test_what_is_hidden_is_not_sent_not_even_of_what_happened_before():
    async def hide(made: ServingEngine):
        room = Classroom(made)
        await whole(await made.submit((41, 42, 43), greedy(4), nickname="Secretive"))
        await idle(made)

        async def read(hides_texts: bool, hides_names: bool) -> list[dict]:
            while True:
                batch = await anext(made.event_log.read(coalesce_s=0))
                messages = json.loads(batch.messages)
                told = next(m for m in reversed(messages) if m["kind"] == "class")
                if (told["hide_texts"], told["hide_nicknames"]) == (hides_texts, hides_names):
                    return messages
                await asyncio.sleep(0.01)  # the engine's thread has not announced it yet

        async with asyncio.timeout(60):
            shown = await read(False, False)
            room.hide(texts=True)
            without_texts = await read(True, False)
            room.hide(texts=False, nicknames=True)
            without_names = await read(False, True)
            room.hide(nicknames=False)
            return shown, without_texts, without_names, await read(False, False)

    with serving(memory_engine(), hidden=SHOWN) as made:
        shown, without_texts, without_names, again = asyncio.run(hide(made))
    asked, quiet, nameless = (
        next(m for m in found if m["kind"] == "request")
        for found in (shown, without_texts, without_names)
    )
    assert (asked["prompt_token_ids"], asked["nickname"]) == ([41, 42, 43], "Secretive")
    assert (quiet["prompt_token_ids"], quiet["nickname"]) == (None, "Secretive")
    assert (nameless["prompt_token_ids"], nameless["nickname"]) == ([41, 42, 43], None)
    expected = generate(request("r", (41, 42, 43), 4))
    sampled = [
        [row for m in found if m["kind"] == "step" for row in m["sampled"]]
        for found in (shown, without_texts, without_names)
    ]
    assert [row[2] for row in sampled[0]] == expected == [row[2] for row in sampled[2]]
    assert [row[2:] for row in sampled[1]] == [[None, None, None]] * 4
    assert [m for m in again if m["kind"] not in ("class",)] == [
        m for m in shown if m["kind"] not in ("class",)
    ]


# -- what the model is told first ------------------------------------------------------------------


def test_what_a_teacher_has_the_model_told_comes_before_each_question():
    """Of those asked from then on, in what is recorded, and in what viewers are told."""

    async def ask(made: ServingEngine):
        room = Classroom(made)
        for system in ("", " Speak like a pirate. ", ""):
            room.tell_first(system)
            await whole(await made.ask("Who?", greedy(1)))
        await idle(made)
        with pytest.raises(InvalidRequest, match="at most 22 characters"):
            room.tell_first("x" * 23)
        with pytest.raises(InvalidRequest, match="at most 22 characters"):
            room.tell_first("\ud800")
        return made.session(), await all_messages(made)

    with serving(chat_engine(), ServingLimits(max_system_characters=22)) as made:
        trace, messages = asyncio.run(ask(made))
        asked = [one.request.messages for one in trace.asked.values()]
        question = {"role": "user", "content": "Who?"}
        pirate = {"role": "system", "content": "Speak like a pirate."}
        assert asked == [(question,), (pirate, question), (question,)]
        (second,) = [one.prompt for one in trace.asked.values() if len(one.request.messages) == 2]
        text = "system: Speak like a pirate.\nuser: Who?\nassistant: "
        assert made.tokenizer.decode(second) == text
        told = [m["system"] for m in messages if m["kind"] == "class"]
        assert list(dict.fromkeys(told)) == ["", "Speak like a pirate."] and told[-1] == ""


@pytest.mark.slow
def test_only_a_model_that_is_asked_by_messages_takes_a_system_prompt():
    token = {"X-Teacher-Token": "t"}
    with served(chat_engine(), teacher_token="t") as chat:
        said = chat.post("/control", {"system": "Be kind."}, headers=token).json()
        assert said["system"] == "Be kind."
        refused = chat.post("/control", {"system": "x" * 1001}, headers=token)
        assert refused.status_code == 400 and "at most 1,000 characters" in refused.text
        for both in (
            {"system": "x" * 1001, "max_num_seqs": 2},
            {"system": "Be brief.", "max_num_seqs": 0},
        ):
            assert chat.post("/control", both, headers=token).status_code == 400
        told = chat.get("/control", headers=token).json()
        assert (told["system"], told["max_num_seqs"]) == ("Be kind.", 4)
    with served(char_engine(), teacher_token="t") as plain:
        assert plain.get("/control", headers=token).json()["system"] is None
        refused = plain.post("/control", {"system": "Be kind."}, headers=token)
        assert refused.status_code == 400 and "no chat template" in refused.text


def test_prompts_of_the_house_suit_the_model():
    """Who has read nothing but Shakespeare is given Shakespeare, and nobody else is."""
    shakespeare, anybody = house_prompts("shakespeare-char", False), house_prompts("gpt2", False)
    assert "O Romeo," in shakespeare and not {*shakespeare} & {*anybody}
    assert all(prompt.endswith(("?", ".")) for prompt in house_prompts("smollm2", True))


@pytest.mark.parametrize(
    ("answers", "long", "line", "speech"),
    [
        (False, "Once more unto the breach, dear friends, once more; ", "{}: ", "{} speaks: "),
        (True, "Tell me the story of Romeo and Juliet.", "Tell me about {}.", "Tell me about {}."),
    ],
)
def test_bursts_suit_the_model(answers: bool, long: str, line: str, speech: str) -> None:
    short, equal, shared = demo_workloads(answers).values()
    assert (
        short.prompts[:2] == ((long, 120), (line.format("Romeo"), 8)) and len(short.prompts) == 31
    )
    assert equal.prompts[1] == (speech.format("Juliet"), 24)
    assert shared.prompts[2][0].endswith(" of the castle. " + line.format("Hamlet"))
