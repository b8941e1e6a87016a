"""Workloads that real services recorded and published, read as lengths and arrivals, and scaled to
the model in use.

    Mooncake   JSONL: `timestamp` (ms), `input_length`, `output_length`, `hash_ids` of the prompt's
               blocks of 512 tokens
               (github.com/kvcache-ai/Mooncake, FAST25-release/traces)
    Azure LLM  CSV: TIMESTAMP, ContextTokens, GeneratedTokens (github.com/Azure/AzurePublicDataset,
               2023 and 2024)
    BurstGPT   CSV: Timestamp (s), Model, Request tokens, Response tokens, …; others from its third
               file on (github.com/HPMLL/BurstGPT)
    ShareGPT   JSON: a list, or lines, of `conversations`: texts of prompts and answers, no arrivals
    our own    JSONL: see `core.workload.arrivals.sizes_in`

Only ShareGPT has texts. Prompts are made up: equal `hash_ids` become equal tokens, so that prefixes
are shared as they were.
"""

import csv
import io
import json
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any, Self, TextIO

from core.errors import InvalidWorkload, shown
from core.files import read_json
from core.workload.arrivals import (
    MAX_DATASET_BYTES,
    RequestSize,
    checked_size,
    from_first,
    sizes_in,
)
from core.workload.request import Request, SamplingParams, is_text
from core.workload.workload import Workload, reading

HASHED_TOKENS = 512  # in a Mooncake block
_TABLES = {
    "Azure LLM": ("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    "BurstGPT": ("Timestamp", "Request tokens", "Response tokens"),
}
"""Columns of arrival, prompt and answer."""

CountTokens = Callable[[str], int]
# with the ids of its blocks, if it has them; None where prompt or answer is missing
Row = tuple[RequestSize, tuple[int, ...]] | None


@dataclass(frozen=True)
class Dataset:
    """The requests that a file holds, as lengths.

    sizes: in order of arrival. hash_ids: one for each block of each prompt, empty where the file
    has none. skipped: requests without a prompt or an answer. scale: the factor on all lengths.
    block_tokens: tokens in a block of `hash_ids`, after scaling.
    """

    name: str
    sizes: tuple[RequestSize, ...]
    hash_ids: tuple[tuple[int, ...], ...] = ()
    skipped: int = 0
    scale: float = 1.0
    block_tokens: int = HASHED_TOKENS

    def scaled(self, context: int) -> Self:
        """Lengths scaled down, if need be, so that every prompt and answer fit `context`."""
        longest = max(size.prompt_tokens + size.output_tokens for size in self.sizes)
        scale = min(1.0, context / longest)
        if scale == 1.0:
            return self
        block = max(1, math.floor(self.block_tokens * scale))
        sizes = []
        for at, size in enumerate(self.sizes):
            prompt = max(1, math.floor(size.prompt_tokens * scale))
            output = max(1, math.floor(size.output_tokens * scale))
            if self.hash_ids:  # whole blocks, and as much of the last one as there was
                rest = size.prompt_tokens - (len(self.hash_ids[at]) - 1) * self.block_tokens
                prompt = (len(self.hash_ids[at]) - 1) * block + max(
                    1, math.floor(rest * block / self.block_tokens)
                )
            sizes.append(
                RequestSize(
                    max(1, min(prompt, context - 1)),
                    min(output, max(1, context - prompt)),
                    size.arrival,
                )
            )
        return replace(self, sizes=tuple(sizes), scale=self.scale * scale, block_tokens=block)

    def within(self, context: int, output: int, total: int, block: int) -> Self:
        """Scaled further where needed: answers of at most `output` tokens, prompts and answers of
        at most `total` together, shared blocks of at most `block`. Raises InvalidWorkload where
        they cannot be made that short.
        """
        longest = max(size.prompt_tokens + size.output_tokens for size in self.sizes)
        room = min(context, longest)
        while room >= 2:
            scaled = self.scaled(room)
            answers = [size.output_tokens for size in scaled.sizes]
            tokens = sum(answers) + sum(size.prompt_tokens for size in scaled.sizes)
            if (
                max(answers) <= output
                and tokens <= total
                and (not self.hash_ids or scaled.block_tokens <= block)
            ):
                return scaled
            room = room * 9 // 10
        raise InvalidWorkload(
            f"{self.name}: {len(self.sizes)} requests do not fit {total:,} tokens, however short"
            " they are made."
        )

    @property
    def span(self) -> float:
        """Seconds from the first arrival to the last."""
        return self.sizes[-1].arrival or 0.0

    def sentences(self, speed: float = 1.0) -> list[str]:
        """How the published workload was adapted: requests, lengths, scale, what is left out."""
        prompts = [size.prompt_tokens for size in self.sizes]
        outputs = [size.output_tokens for size in self.sizes]
        when = f"within {self.span / speed:,.1f} s" if self.span else "all at once"
        faster = "" if speed == 1 else f" ({speed:,.3g} times as fast as on record)"
        found = [
            f"Requests: {len(self.sizes):,} {when}{faster}, prompts of {_range(prompts)} and"
            f" answers of {_range(outputs)} token{'s' * (max(outputs) > 1)}."
        ]
        if self.scale < 1:
            found.append(f"Lengths are {100 * self.scale:.3g} % of those on record.")
        if self.hash_ids:
            found.append(
                f"Prefixes are shared in blocks of {self.block_tokens} tokens: a cache without"
                f" limit finds {100 * self.hit_ratio():.3g} % of the prompt tokens."
            )
        else:
            found.append("Prompts are made-up tokens: of the real ones the length alone is kept.")
        if self.skipped:
            found.append(f"Left out because a prompt or an answer is missing: {self.skipped:,}.")
        return found

    def hit_ratio(self) -> float:
        """The share of prompt tokens that an unlimited prefix cache would find, from `hash_ids`
        alone. A block is found if an earlier prompt had the same blocks from its start up to this
        one; the last block of a prompt never counts.
        """
        seen: set[int] = set()  # a number for each sequence of blocks that a prompt has begun with
        hits = 0
        for ids, size in zip(self.hash_ids, self.sizes, strict=True):
            rows = list(accumulate(ids, lambda row, block: hash((row, block)), initial=0))[1:]
            found = next((n for n, row in enumerate(rows) if row not in seen), len(ids) - 1)
            hits += found * self.block_tokens
            # only full blocks are cached
            seen.update(rows[: size.prompt_tokens // self.block_tokens])
        return hits / sum(size.prompt_tokens for size in self.sizes)

    def workload(self, vocab_size: int, speed: float = 1.0, seed: int = 0) -> Workload:
        """See `requests`."""
        return Workload(self.requests(vocab_size, speed, seed), self.name, "s")

    def requests(self, vocab_size: int, speed: float = 1.0, seed: int = 0) -> Iterator[Request]:
        """Greedy requests of made-up tokens that run to their full length; each one is made when it
        is drawn. speed: how many times faster they arrive than on record.
        """
        for at, size in enumerate(self.sizes):
            ids = self.hash_ids[at] if self.hash_ids else ()
            prompt = _tokens(ids, self.block_tokens, size.prompt_tokens, vocab_size, f"{seed} {at}")
            yield Request(
                f"r{at}",
                prompt_token_ids=prompt,
                sampling=SamplingParams(size.output_tokens, ignore_eos=True),
                arrival=(size.arrival or 0.0) / speed,
            )


def _range(counts: Sequence[int]) -> str:
    least, most = min(counts), max(counts)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _tokens(
    ids: Sequence[int], block: int, length: int, vocab_size: int, key: str
) -> tuple[int, ...]:
    """Made-up tokens, drawn from each block's hash, or from `key` where there are no hashes."""
    tokens: list[int] = []
    for name in ids or (key,):
        draw = random.Random(f"block {name}" if ids else key)
        tokens += [draw.randrange(vocab_size) for _ in range(block if ids else length)]
    return tuple(tokens[:length])


def read_dataset(path: Path, count: CountTokens | None = None, most: int | None = None) -> Dataset:
    """A file of any of the formats above, see `dataset_of`. Raises InvalidWorkload."""
    with reading(path) as file:
        data = file.read(MAX_DATASET_BYTES + 1)  # a device has no size, and may never end
        if len(data) > MAX_DATASET_BYTES:
            raise InvalidWorkload(f"{path.name} is larger than {MAX_DATASET_BYTES >> 20} MiB.")
        text = io.TextIOWrapper(io.BytesIO(data), encoding="utf-8-sig")
        return dataset_of(text, path.name, count, most)


def dataset_of(
    file: TextIO, name: str, count: CountTokens | None = None, most: int | None = None
) -> Dataset:
    """The dataset in a file of that name; its format is recognised by its content. count: counts
    the tokens of a text, for ShareGPT. most: requests to read.

    Raises InvalidWorkload naming the file and what is wrong.
    """
    first = file.readline()
    file.seek(0)
    begins = first.lstrip()[:1]
    if begins == "[" or '"conversation' in first:
        if (chat := _conversations(file.read())) is not None:
            return _dataset(name, _sharegpt(name, chat, count), most)
        file.seek(0)
    elif begins not in ("{", ""):
        return _dataset(name, _table(name, file.read()), most)
    elif '"input_length"' in first:
        return _dataset(name, _mooncake(name, file), most)
    elif first.strip() == "{":  # as `Workload.save` begins, and no file of lines does
        raise InvalidWorkload(
            f"{name} is not a list of request sizes. A workload file runs as it is, with run"
            " --workload."
        )
    return Dataset(Path(name).stem, tuple(sizes_in(file, name)[:most]))


def _dataset(name: str, rows: Iterable[Row], most: int | None) -> Dataset:
    """A dataset of the first `most` requests in rows in order of arrival."""
    found: list[tuple[RequestSize, tuple[int, ...]]] = []
    skipped = 0
    for row in rows:
        if row is None:
            skipped += 1
        else:
            found.append(row)
        if len(found) == most:
            break
    times = [size.arrival or 0.0 for size, _ in found]
    if times != sorted(times):
        raise InvalidWorkload(f"{name}: its requests are not in order of arrival.")
    sizes = from_first(name, [size for size, _ in found])
    return Dataset(Path(name).stem, tuple(sizes), tuple(ids for _, ids in found if ids), skipped)


def _mooncake(name: str, lines: Iterable[str]) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        try:
            data = read_json(line)
            ids = tuple(data["hash_ids"])
            size = checked_size(
                data["input_length"], data["output_length"], data["timestamp"] / 1000
            )
            blocks = -(-size.prompt_tokens // HASHED_TOKENS)
            if len(ids) != blocks or not all(type(i) is int for i in ids):
                raise ValueError
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InvalidWorkload(
                f"{name}, line {number}: a request of Mooncake needs timestamp, input_length,"
                f" output_length, and in hash_ids a number for each {HASHED_TOKENS} tokens."
            ) from None
        yield size, ids


def _table(name: str, text: str) -> Iterator[Row]:
    rows = csv.DictReader(io.StringIO(text))
    try:
        columns = rows.fieldnames or []
    except csv.Error:
        raise InvalidWorkload(f"{name}, line 1: this is no table.") from None
    kind = next((kind for kind, needed in _TABLES.items() if set(needed) <= set(columns)), None)
    if kind is None:
        known = "; ".join(f"{kind}'s are {', '.join(needed)}" for kind, needed in _TABLES.items())
        raise InvalidWorkload(
            f"{name} is a table with the columns {shown(', '.join(map(str, columns)))}, which no"
            f" known trace has: {known}."
        )
    try:
        for row in rows:
            when, prompt, output = (row[column] for column in _TABLES[kind])
            asked, answered = int(prompt), int(output)
            # zero where it failed, or was empty
            yield (
                (checked_size(asked, answered, _seconds(when)), ()) if asked and answered else None
            )
    except (ValueError, TypeError, csv.Error):
        raise InvalidWorkload(
            f"{name}, line {rows.line_num}: {', '.join(_TABLES[kind])} must be a time and two"
            " numbers of tokens."
        ) from None


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        at = datetime.fromisoformat(text)
        # without a zone, in one without summer time: only the time between two of them counts
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _conversations(text: str) -> list[Any] | None:
    """ShareGPT's list, or its lines; None for something else."""
    if not text.lstrip().startswith("["):
        text = f"[{','.join(filter(str.strip, io.StringIO(text)))}]"
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None  # JSON lines of our own begin so too
    first = data[0] if isinstance(data, list) and data else None
    found = isinstance(first, dict) and first.keys() & {"conversations", "conversation"}
    return data if found else None


def _sharegpt(name: str, data: list[Any], count: CountTokens | None) -> Iterator[Row]:
    if count is None:
        raise InvalidWorkload(
            f"{name} holds texts, and without a tokenizer their lengths are not known: name a"
            " model."
        )
    for item in data:
        said = item if isinstance(item, dict) else {}
        turns = said.get("conversations") or said.get("conversation")
        texts = [
            turn["value"]
            for turn in (turns[:2] if isinstance(turns, list) else ())
            if isinstance(turn, dict) and is_text(turn.get("value"))
        ]
        if len(texts) == 2 and all(texts):
            prompt, output = (max(1, count(text)) for text in texts)
            yield RequestSize(prompt, output, 0.0), ()
        else:
            yield None
