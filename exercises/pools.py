"""The cases of the allocator: random calls on a small pool, which has to keep the rules of every pool; which free block it hands out is its own affair."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from exercises.cases import Case
from exercises.replies import Fault, fault, is_number, named, typed

SCRIPTS = 400
LONG = 40  # calls, of the longest
_NAMES = "ABC"


class Op(NamedTuple):
    """A call on the pool. number: positions to hold, or the position whose slot is asked."""

    kind: Literal["grow", "table", "spoil", "release", "slot"]
    name: str
    number: int = 0
    pool: str = "pool"

    def __str__(self) -> str:
        if self.kind == "spoil":
            return f'{self.pool}.table("{self.name}").clear()'
        number = f", {self.number}" if self.kind in ("grow", "slot") else ""
        return f'{self.pool}.{self.kind}("{self.name}"{number})'


def blocks(seed: int) -> list[Script]:
    draw = random.Random(f"blocks {seed}")
    found = [_drawn(draw, draw.choice((1, 2, 3, 4, 5, 6, 8, LONG))) for _ in range(SCRIPTS)]
    found += [
        Script(
            1, 1, (Op("grow", "A", 1), Op("table", "A", 0, "other"), Op("grow", "A", 1, "other"))
        )
    ]
    return sorted(found, key=lambda script: (len(script.ops), script.num_blocks * script.size))


def _drawn(draw: random.Random, calls: int) -> Script:
    num_blocks, size = draw.randint(1, 4), draw.choice((1, 2, 3, 4))
    rules, ops = _Rules(num_blocks, size), []
    names = _NAMES[: draw.randint(1, 3)]
    for _ in range(calls):
        name = draw.choice(names)
        holds = rules.positions.get(name, 0)
        kind = draw.choice(("grow", "grow", "grow", "release", "table", "slot", "spoil"))
        if kind == "grow":
            ops.append(Op("grow", name, draw.randint(1, num_blocks * size + 1)))
        elif kind == "release" or not holds:
            ops.append(Op("release", name))
        elif kind == "slot":
            ops += [Op("table", name), Op("slot", name, draw.randrange(holds))]
        elif kind == "spoil":
            ops += [Op("table", name), Op("spoil", name), Op("table", name)]
        else:
            ops.append(Op("table", name))
        rules.call(ops[-1])
    ops += [Op("table", name) for name in names]
    return Script(num_blocks, size, tuple(ops))


@dataclass(frozen=True)
class Script:
    """Calls on a pool, in order."""

    num_blocks: int
    size: int
    ops: tuple[Op, ...]
    where: None = None

    @property
    def _made(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(("pool", *(op.pool for op in self.ops))))

    @property
    def lines(self) -> Sequence[str]:
        return *(f"{pool} = Blocks({self.num_blocks}, {self.size})" for pool in self._made), *map(
            str, self.ops
        )

    @property
    def asked(self) -> int:
        return len(self.lines) - 1

    def judge(self, values: Sequence[Any]) -> Fault | None:
        for (at, op, rules, due), value in zip(
            self._walk(), values[len(self._made) :], strict=False
        ):
            if found := rules.wrong(op, due, value):
                return replace(found, at=at)
        return None

    def due(self, at: int) -> str | None:
        for index, op, _, due in self._walk():
            if index == at:
                return (
                    repr(due)
                    if op.kind == "grow"
                    else "[]"
                    if op.kind == "table" and not due
                    else None
                )
        return None

    def _walk(self) -> Iterator[tuple[int, Op, _Rules, Any]]:
        """Each call, the line where it is, the rules of its pool after it, and what it must give."""
        pools = {
            pool: _Rules(self.num_blocks, self.size, is_other=pool != "pool") for pool in self._made
        }
        for at, op in enumerate(self.ops, len(pools)):
            yield at, op, pools[op.pool], pools[op.pool].call(op)

    def smaller(self) -> Iterator[Case]:
        """Without one of its calls, where the rest still makes sense."""
        for index in range(len(self.ops) - 1, -1, -1):
            rest = self.ops[:index] + self.ops[index + 1 :]
            rules, makes_sense = _Rules(self.num_blocks, self.size), True
            for op in rest:
                makes_sense &= op.kind != "slot" or op.number < rules.positions.get(op.name, 0)
                rules.call(op)
            if makes_sense and rest:
                yield Script(self.num_blocks, self.size, rest)


@dataclass
class _Rules:
    """What must hold of a pool after some calls. positions: that each request can hold, by what was granted. known: blocks by request and index, as far as
    the pool has shown them. freed, refused: who gave its blocks back last, and who was refused last and has not grown since.
    """

    num_blocks: int
    size: int
    is_other: bool = False
    positions: dict[str, int] = field(default_factory=dict)
    known: dict[str, dict[int, int]] = field(default_factory=dict)
    freed: list[str] = field(default_factory=list)
    refused: str | None = None
    spoiled: set[str] = field(default_factory=set)
    fewer: set[str] = field(default_factory=set)

    def held(self, name: str) -> int:
        return -(-self.positions.get(name, 0) // self.size)

    @property
    def free(self) -> int:
        return self.num_blocks - sum(map(self.held, self.positions))

    def lacking(self, op: Op) -> int:
        return max(0, -(-op.number // self.size) - self.held(op.name))

    def call(self, op: Op) -> Any:
        """What the call must give: of grow, whether it is granted; of table, the number of blocks. The rules after it."""
        if op.kind == "grow":
            self.asked = self.lacking(op), self.free
            granted = self.lacking(op) <= self.free
            if granted:
                if op.number < self.positions.get(op.name, 0):
                    self.fewer.add(op.name)
                self.positions[op.name] = max(op.number, self.positions.get(op.name, 0))
            self.refused = None if granted else op.name
            return granted
        if op.kind == "release":
            if self.positions.pop(op.name, 0):
                self.freed.append(op.name)
            self.known.pop(op.name, None)
            self.spoiled.discard(op.name)
            self.fewer.discard(op.name)
        if op.kind == "spoil":
            self.spoiled.add(op.name)
        return self.held(op.name)

    def wrong(self, op: Op, due: Any, value: Any) -> Fault | None:
        if op.kind == "grow":
            return self._wrong_grow(op, due, value)
        if op.kind == "table":
            return self._wrong_table(op, due, value)
        if op.kind == "slot":
            return self._wrong_slot(op, value)
        return None

    def _wrong_grow(self, op: Op, due: bool, value: Any) -> Fault | None:
        if value is due:
            return None
        lacks, free = self.asked
        holes = {"request": op.name, "lacks": lacks, "free": free, "due": due, "got": named(value)}
        if self.is_other:
            return fault(_OWN, 0, due)
        if due and not lacks:
            return fault(
                "{request} has the blocks for this already, so `grow` must return {due}, not {got}.",
                0,
                due,
                **holes,
            )
        if due and value is False and self.freed:
            says = "Blocks that {request} lacks: {lacks}; blocks that are free, since {other} gave its own back: {free}. So `grow` must return {due}, not {got}."
            return fault(says, 0, due, other=self.freed[-1], **holes)
        says = "Blocks that {request} lacks: {lacks}; blocks that are free: {free}. So `grow` must return {due}, not {got}."
        return fault(says, 0, due, **holes)

    def _wrong_table(self, op: Op, due: int, value: Any) -> Fault | None:
        name = op.name
        if not isinstance(value, list):
            return fault("`table` returned a value of type {got}, not a list.", 0, got=typed(value))
        if len(value) != due:
            return self._wrong_length(name, due, len(value))
        for index, block in enumerate(value):
            if found := self._wrong_block(name, index, block):
                return found
        return None

    def _wrong_length(self, name: str, due: int, count: int) -> Fault:
        holes = {
            "request": name,
            "due": due,
            "count": count,
            "positions": self.positions.get(name, 0),
            "size": self.size,
        }
        if self.is_other:
            return fault(_OWN, 0, None if due else [])
        if name in self.spoiled:
            return fault(
                "The list that `table` returns is the caller's: what is done to it must not change the pool.",
                0,
            )
        if self.refused == name or (self.refused and len(self.known.get(name, {})) == due):
            says = "A `grow` that returns `False` changes nothing: the table of {request} has {due} blocks as before, not {count}."
        elif not due and name in self.freed:
            return fault(
                "{request} gave its blocks back, and its table still has some.", 0, [], **holes
            )
        elif count < due and name in self.fewer:
            says = "{request} keeps the blocks that it has: `grow` takes none away."
        elif not due:
            return fault("{request} holds nothing, and its table has blocks.", 0, [], **holes)
        else:
            says = "To hold what {request} asked for ({positions}) in blocks of {size} takes {due}, and its table has {count}."
        return fault(says, 0, **holes)

    def _wrong_block(self, name: str, index: int, block: Any) -> Fault | None:
        holes = {"request": name, "block": block, "last": self.num_blocks - 1}
        if not is_number(block) or not 0 <= block < self.num_blocks:
            return fault(
                "There are only blocks 0 to {last}, and the table of {request} has {block}.",
                0,
                **holes,
            )
        mine = self.known.setdefault(name, {})
        if index in mine and mine[index] != block:
            says = "{request} keeps the blocks that it has, in their order: block {index} of its table was {was}, and is {block} now."
            return fault(says, 0, index=index, was=mine[index], **holes)
        for other, theirs in self.known.items():
            if any(held == block and (other, at) != (name, index) for at, held in theirs.items()):
                if other == name:
                    return fault(
                        "Block {block} was handed out twice, both times to {request}.", 0, **holes
                    )
                return fault(
                    "Block {block} was handed out twice, to {other} and to {request}.",
                    0,
                    other=other,
                    **holes,
                )
        mine[index] = block
        return None

    def _wrong_slot(self, op: Op, value: Any) -> Fault | None:
        index, offset = divmod(op.number, self.size)
        block = self.known.get(op.name, {}).get(index)
        holes = {
            "position": op.number,
            "request": op.name,
            "offset": offset,
            "size": self.size,
            "got": named(value),
        }
        if block is not None:
            due = block * self.size + offset
            says = "Position {position} of {request} lies in block {block}, at offset {offset} of {size}: its slot is {due}, not {got}."
            return (
                None
                if is_number(value) and value == due
                else fault(says, 0, due, block=block, due=due, **holes)
            )
        if is_number(value) and value % self.size == offset:
            return self._wrong_block(op.name, index, value // self.size)
        return fault(
            "Position {position} of {request} lies at offset {offset} of a block of {size}: its slot is not {got}.",
            0,
            **holes,
        )


_OWN = "Each pool is a pool of its own: what one hands out leaves the other as it is."
