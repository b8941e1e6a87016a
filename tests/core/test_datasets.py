"""Published workloads: read to the letter, refused with the line, scaled with the scale shown,
prefixes shared as they were.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from core import Workload, metrics
from core.cli import main
from core.errors import InvalidWorkload
from core.workload.arrivals import RequestSize
from core.workload.datasets import Dataset, read_dataset
from worlds.small import memory_engine

# Made by hand, in the columns, types and line ends of the files as they are published.
AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:16:00.0000000,879,1
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:01+00:00,2399,6
2024-05-10 00:00:01.259930+00:00,76,15
"""
BURST_3 = """Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
12,8,4.2,ChatGPT,120,30,150,Conversation log
13,,,GPT-4,0,40,40,API log
40,,1.5,GPT-4,64,8,72,API log
"""  # noqa: E501
BURST = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,0,1087,Conversation log
118.5,GPT-4,417,276,693,API log
"""
CHAT = [
    {
        "id": "a",
        "conversations": [
            {"from": "human", "value": "one two three"},
            {"from": "gpt", "value": "four five"},
        ],
    },
    {"id": "b", "conversations": [{"from": "human", "value": "alone"}]},
    {
        "id": "c",
        "conversations": [
            {"from": "human", "value": "x"},
            {"from": "gpt", "value": "y"},
            {"from": "human", "value": "z"},
        ],
    },
]
# Two users with a system prompt in common, one of whom goes on; a stranger; the first prompt once
# more.
HASHES = [[1, 2, 3], [1, 2, 4, 5], [1, 2, 3, 6], [7], [1, 2, 3]]


@pytest.fixture
def mooncake(tmp_path):
    path = tmp_path / "talk.jsonl"
    rows = [
        {
            "timestamp": 500 * at,
            "input_length": 512 * len(ids) - 100,
            "output_length": 20 + at,
            "hash_ids": ids,
        }
        for at, ids in enumerate(HASHES)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def put(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_moments_in_different_zones_lie_as_far_apart_as_they_do(tmp_path):
    """As where a clock is put back an hour in the night."""
    rows = ["TIMESTAMP,ContextTokens,GeneratedTokens"] + [
        f"{when},9,9"
        for when in (
            "2024-10-27 02:59:59.5+02:00",
            "2024-10-27 02:00:00.0+01:00",
            "2024-10-27 01:00:01.25Z",
        )
    ]
    found = read_dataset(put(tmp_path / "azure.csv", "\n".join(rows)))
    assert [size.arrival for size in found.sizes] == [0, 0.5, 1.75]


def test_times_without_a_zone_are_the_same_wherever_they_are_read(tmp_path, monkeypatch):
    """Two seconds lie between them, also where clocks were put back or forward by an hour."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        for before, after in (
            ("2023-10-29 02:59:59", "2023-10-29 03:00:01"),
            ("2024-03-31 01:59:59", "2024-03-31 02:00:01"),
        ):
            table = f"{AZURE.splitlines()[0]}\n{before}.0,374,44\n{after}.0,396,109\n"
            read = read_dataset(put(tmp_path / "azure.csv", table))
            assert [size.arrival for size in read.sizes] == [0.0, 2.0]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_tables_are_read(tmp_path):
    azure = read_dataset(put(tmp_path / "azure.csv", AZURE))
    assert azure.sizes == (
        RequestSize(374, 44, 0.0),
        RequestSize(396, 109, 4.314579),
        RequestSize(879, 1, 13.31941),
    )
    windows = read_dataset(put(tmp_path / "windows.csv", AZURE.strip().replace("\n", "\r\n")))
    assert windows.sizes == azure.sizes
    week = read_dataset(put(tmp_path / "week.csv", AZURE_2024))
    assert week.sizes == (
        RequestSize(2162, 5, 0.0),
        RequestSize(2399, 6, 0.99007),
        RequestSize(76, 15, 1.25),
    )
    third = read_dataset(put(tmp_path / "third.csv", BURST_3))
    assert (
        third.sizes == (RequestSize(120, 30, 0.0), RequestSize(64, 8, 28.0)) and third.skipped == 1
    )
    burst = read_dataset(put(tmp_path / "burst.csv", BURST))
    assert (
        burst.sizes == (RequestSize(472, 18, 0.0), RequestSize(417, 276, 113.5))
        and burst.skipped == 1
    )
    left_out = "Left out because a prompt or an answer is missing: 1."
    assert left_out in burst.sentences() and not any("Left out" in s for s in azure.sentences())
    sizes = "prompts of 374 to 879 and answers of 1 to 109 tokens."
    assert azure.sentences()[0] == f"Requests: 3 within 13.3 s, {sizes}"
    faster = azure.sentences(2)[0]
    assert faster == f"Requests: 3 within 6.7 s (2 times as fast as on record), {sizes}"
    same = Dataset("x", (RequestSize(1000, 1), RequestSize(1000, 1)))
    told = "Requests: 2 all at once, prompts of 1,000 and answers of 1 token."
    assert same.sentences()[0] == told


def test_conversations_need_a_tokenizer(tmp_path):
    path = put(tmp_path / "chat.json", json.dumps(CHAT))
    chat = read_dataset(path, count=lambda text: len(text.split()))
    assert chat.sizes == (RequestSize(3, 2, 0.0), RequestSize(1, 1, 0.0)) and chat.skipped == 1
    lines = put(tmp_path / "chat.jsonl", "".join(json.dumps(row) + "\r\n\r\n" for row in CHAT))
    assert read_dataset(lines, count=lambda text: len(text.split())) == chat
    with pytest.raises(InvalidWorkload, match="without a tokenizer"):
        read_dataset(path)


def test_lengths_of_our_own_still_open(tmp_path):
    path = put(tmp_path / "own.jsonl", "[10, 5]\n[3, 4]\n")
    assert read_dataset(path).sizes == (RequestSize(10, 5), RequestSize(3, 4))
    assert read_dataset(path, most=1).sizes == (RequestSize(10, 5),)


def test_the_hit_ratio_follows_from_the_hashes(mooncake):
    data = read_dataset(mooncake)
    # Found: nothing; 1 2; 1 2, as the first prompt's block 3 was not full; nothing; 1 2.
    made = [len(r.prompt_token_ids) for r in data.requests(50)]
    assert made == [1436, 1948, 1948, 412, 1436] == [size.prompt_tokens for size in data.sizes]
    assert data.hit_ratio() == 512 * (0 + 2 + 2 + 0 + 2) / sum(
        512 * len(ids) - 100 for ids in HASHES
    )


@pytest.mark.slow
def test_the_engine_finds_what_the_hashes_promise(mooncake):
    data = read_dataset(mooncake).scaled(64)
    assert data.scale == pytest.approx(64 / (4 * 512 - 100 + 22)) and data.block_tokens == 16
    assert all(s.prompt_tokens + s.output_tokens <= 64 for s in data.sizes)
    engine = memory_engine(
        max_num_seqs=1, block_size=data.block_tokens, num_blocks=400, prefix_caching=True
    )
    found = metrics(engine.run(data.workload(vocab_size=50)))
    assert found["cached_tokens"] / found["prompt_tokens"] == pytest.approx(data.hit_ratio())


def test_prompts_without_hashes_share_nothing_and_are_made_up_the_same_again():
    data = Dataset("x", (RequestSize(20, 1),) * 3)
    made = [[r.prompt_token_ids for r in data.requests(50, seed=seed)] for seed in (1, 1, 2)]
    assert made[0] == made[1] and len({*made[0], *made[2]}) == 6
    assert {len(prompt) for prompt in made[0]} == {20} and max(map(max, made[0])) < 50


def test_an_answer_gives_way_where_blocks_cannot_be_made_shorter():
    """A token a block, at least: four for the prompt of seven, which leaves three of five."""
    data = Dataset("x", (RequestSize(2048, 6000),), ((1, 2, 3, 4),)).scaled(7)
    assert data.sizes == (RequestSize(4, 3),)


def test_the_shortest_requests_fit():
    data = Dataset("x", (RequestSize(1, 1),) * 2)
    assert data.within(64, 1, 4, 1) is data
    with pytest.raises(InvalidWorkload, match="do not fit 3 tokens"):
        data.within(64, 1, 3, 1)
    long = Dataset("x", (RequestSize(1, 40), RequestSize(20, 20))).within(64, 10, 1000, 1)
    assert max(size.output_tokens for size in long.sizes) <= 10


def test_conversations_that_are_none_are_left_out(tmp_path):
    odd = [{"conversations": {"a": 1}}, 5, {"conversations": [{"value": "\ud800"}, {"value": "a"}]}]
    data = read_dataset(put(tmp_path / "c.json", json.dumps([*CHAT, *odd])), len)
    assert (len(data.sizes), data.skipped) == (2, 4)


def test_requests_come_as_much_sooner_as_asked():
    data = Dataset("x", (RequestSize(1, 1, 0.0), RequestSize(1, 1, 3.0)))
    assert [request.arrival for request in data.requests(50, speed=2)] == [0.0, 1.5]


def test_what_is_scaled_twice_says_by_how_much_in_all():
    data = Dataset("x", (RequestSize(64, 64),)).scaled(64).scaled(32)
    assert data.scale == 0.25 and "Lengths are 25 % of those on record." in data.sentences()


def test_what_fits_is_not_scaled(mooncake):
    data = read_dataset(mooncake)
    assert data.scaled(4096) is data and data.scale == 1.0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "a,b\n1,2\n",
            (
                "a table with the columns .a, b., which no known trace has: Azure LLM's are"
                " TIMESTAMP, .* BurstGPT's are Timestamp,"
            ),
        ),
        (
            '{\n "requests": []\n}\n',
            (
                "x.csv is not a list of request sizes. A workload file runs as it is, with run"
                " --workload"
            ),
        ),
        (
            AZURE.replace("396", "-3"),
            "line 3: TIMESTAMP, ContextTokens, GeneratedTokens must be a time and two numbers of",
        ),
        (
            BURST.replace("472", "many"),
            "line 2: Timestamp, Request tokens, Response tokens must be a time and two numbers of",
        ),
        (AZURE.splitlines()[0] + "\n", "holds no requests"),
        (
            "\n".join([*AZURE.splitlines()[:1], *reversed(AZURE.splitlines()[1:])]),
            "not in order of arrival",
        ),
        (
            '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1]}\n',
            "line 1: a request of Mooncake needs .* in hash_ids a number for each 512 tokens",
        ),
        ('{"timestamp": 0, "input_length": 600\n', "line 1: a request of Mooncake needs"),
        (AZURE.replace(",", ";"), "the columns 'TIMESTAMP;C.*s', which .* are TIMESTAMP, Con"),
        (
            '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, "2"]}\n',
            "line 1: a request of Mooncake needs",
        ),
        ("", "holds no requests"),
        ('[{"prompt_tokens": 1}]', "line 1: a request needs whole numbers"),
        ("a," + 2**17 * "b" + "b\n", "line 1: this is no table"),  # one beyond csv's longest
    ],
    ids=lambda value: value[:40],
)
def test_what_is_no_trace_is_refused_with_its_line(tmp_path, text, sentence):
    with pytest.raises(InvalidWorkload, match=sentence):
        read_dataset(put(tmp_path / "x.csv", text))


def test_a_file_that_is_too_large_is_refused_unread(tmp_path, monkeypatch):
    path = put(tmp_path / "x.csv", AZURE)
    monkeypatch.setattr("core.workload.datasets.MAX_DATASET_BYTES", len(AZURE))
    assert len(read_dataset(path).sizes) == 3
    monkeypatch.setattr("core.workload.datasets.MAX_DATASET_BYTES", len(AZURE) - 1)
    with pytest.raises(InvalidWorkload, match="x.csv is larger than 0 MiB"):
        read_dataset(path)
    with pytest.raises(InvalidWorkload, match="zero is larger than 0 MiB"):
        read_dataset(Path("/dev/zero"))  # which has no size, and no end


def test_a_key_that_stands_twice_is_refused(tmp_path):
    line = '{"timestamp": 0, "input_length": 9, "output_length": 5, "hash_ids": [1]}'
    assert len(read_dataset(put(tmp_path / "x.jsonl", line)).sizes) == 1
    with pytest.raises(InvalidWorkload, match="line 1: a request of Mooncake needs"):
        read_dataset(put(tmp_path / "x.jsonl", line.replace("}", ', "timestamp": 5}')))


def test_the_command_shows_the_scale(mooncake, tmp_path, capsys):
    with pytest.raises(SystemExit) as done:
        main(["workload", str(mooncake), "--out", str(tmp_path / "w.json"), "--speed", "2"])
    text = capsys.readouterr().out
    assert (
        done.value.code == 0
        and "Requests: 5 within 1.0 s" in text
        and "of those on record" in text
        and "Prefixes are shared" in text
    )
    assert len(Workload.load(tmp_path / "w.json")) == 5
    with pytest.raises(SystemExit):
        main(["workload", str(mooncake), "--out", str(tmp_path / "w"), "--speed", "2", "--json"])
    assert json.loads(capsys.readouterr().out)["arrives_within_s"] == pytest.approx(1.0, abs=0.1)
