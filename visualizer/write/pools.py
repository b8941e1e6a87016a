"""The cases of the block allocator: random calls on a small pool, which must keep the rules of
every pool. The learner may choose which free block to allocate.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from visualizer.write.cases import Case, is_number, named, typed, wrong
from visualizer.write.code import Fault

SCRIPTS = 400
LONG = 40  # calls in the longest case
_NAMES = "ABC"


class Op(NamedTuple):
    """A call on the pool. number: positions to hold, or the position whose slot is requested."""

    kind: Literal["grow", "table", "spoil", "release", "slot"]
    name: str
    number: int = 0
    pool: str = "pool"

    def __str__(self) -> str:
        if self.kind == "spoil":
            return f'{self.pool}.table("{self.name}").clear()'
        number = f", {self.number}" if self.kind in ("grow", "slot") else ""
        return f'{self.pool}.{self.kind}("{self.name}"{number})'


def blocks(seed: int) -> list[Case]:
    draw = random.Random(f"blocks {seed}")
    found = [_drawn(draw, draw.choice((1, 2, 3, 4, 5, 6, 8, LONG))) for _ in range(SCRIPTS)]
    other = Op("table", "A", 0, "other"), Op("grow", "A", 1, "other")
    found.append(Script(1, 1, (Op("grow", "A", 1), *other)))
    found.sort(key=lambda script: (len(script.ops), script.num_blocks * script.size))
    return [script.case() for script in found]


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


class Script(NamedTuple):
    """Calls on a pool, in order."""

    num_blocks: int
    size: int
    ops: tuple[Op, ...]

    def case(self) -> Case:
        pools = dict.fromkeys(("pool", *(op.pool for op in self.ops)))
        lines = [f"{pool} = Blocks({self.num_blocks}, {self.size})" for pool in pools]
        due: list[str | None] = [None] * len(pools)
        for op, _, gives in self._walk():
            is_empty = op.kind == "table" and not gives
            due.append("[]" if is_empty else repr(gives) if op.kind == "grow" else None)
        lines += map(str, self.ops)
        return Case(lines, due, len(lines) - 1, self._judge, smaller=self._smaller)

    def _walk(self) -> Iterator[tuple[Op, _Rules, Any]]:
        """Each call, the rules of its pool after it, and the right result."""
        pools: dict[str, _Rules] = {}
        for op in self.ops:
            new = _Rules(self.num_blocks, self.size, is_other=op.pool != "pool")
            rules = pools.setdefault(op.pool, new)
            yield op, rules, rules.call(op)

    def _judge(self, values: Sequence[Any]) -> tuple[int, Fault] | None:
        made = len({"pool", *(op.pool for op in self.ops)})
        walk = zip(self._walk(), values[made:], strict=False)
        for at, ((op, rules, due), value) in enumerate(walk, made):
            if fault := rules.wrong(op, due, value):
                return at, fault
        return None

    def _smaller(self) -> Iterator[Case]:
        """The same script without one of its calls, where the rest still makes sense."""
        for index in range(len(self.ops) - 1, -1, -1):
            rest = self.ops[:index] + self.ops[index + 1 :]
            rules, makes_sense = _Rules(self.num_blocks, self.size), bool(rest)
            for op in rest:
                makes_sense &= op.kind != "slot" or op.number < rules.positions.get(op.name, 0)
                rules.call(op)
            if makes_sense:
                yield self._replace(ops=rest).case()


@dataclass
class _Rules:
    """What must be true of a pool after some calls. positions: that each request can hold, by the
    granted calls. known: blocks by request and index, as far as the pool has shown them. freed,
    refused: the request that last freed its blocks, and the one that was last refused and has not
    grown since. spoiled: the request whose list the caller has changed; fewer: the one that asked
    for less than it had. asked: blocks that the last `grow` lacked, and those that were free.
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
    asked: tuple[int, int] = (0, 0)

    def held(self, name: str) -> int:
        return -(-self.positions.get(name, 0) // self.size)

    def call(self, op: Op) -> Any:
        """The right result (grow: whether granted; table: blocks), and the rules after it."""
        name = op.name
        if op.kind == "grow":
            lacks = max(0, -(-op.number // self.size) - self.held(name))
            free = self.num_blocks - sum(map(self.held, self.positions))
            self.asked, self.refused = (lacks, free), None if lacks <= free else name
            if lacks <= free:
                has = self.positions.get(name, 0)
                self.fewer |= {name} if op.number < has else set()
                self.positions[name] = max(op.number, has)
            return lacks <= free
        if op.kind == "release":
            self.freed += [name] if self.positions.pop(name, 0) else []
            self.known.pop(name, None)
            self.spoiled.discard(name)
            self.fewer.discard(name)
        if op.kind == "spoil":
            self.spoiled.add(name)
        return self.held(name)

    def wrong(self, op: Op, due: Any, value: Any) -> Fault | None:
        if op.kind == "grow" and value is not due:
            return self._wrong_grow(op.name, due, value)
        if op.kind == "table":
            return self._wrong_table(op.name, due, value)
        return self._wrong_slot(op, value) if op.kind == "slot" else None

    def _wrong_grow(self, name: str, due: bool, value: Any) -> Fault:
        lacks, free = self.asked
        holes = {"request": name, "lacks": lacks, "free": free, "due": due, "got": named(value)}
        if self.is_other:
            return wrong("another pool")
        if not lacks:
            return wrong("has them already", **holes)
        if due and value is False and self.freed:
            return wrong("others gave back", other=self.freed[-1], **holes)
        return wrong("grow", **holes)

    def _wrong_table(self, name: str, due: int, value: Any) -> Fault | None:
        if not isinstance(value, list):
            return wrong("no table", got=typed(value))
        if (count := len(value)) != due:
            positions = self.positions.get(name, 0)
            holes = {"request": name, "due": due, "count": count}
            return wrong(
                self._wrong_length(name, due, count), positions=positions, size=self.size, **holes
            )
        faults = (self._wrong_block(name, index, block) for index, block in enumerate(value))
        return next(filter(None, faults), None)

    def _wrong_length(self, name: str, due: int, count: int) -> str:
        """The name of the message for a table of the wrong length."""
        if self.is_other:
            return "another pool"
        if name in self.spoiled:
            return "the caller's list"
        if self.refused == name or (self.refused and len(self.known.get(name, {})) == due):
            return "refused"
        if not due:
            return "gave back" if name in self.freed else "holds nothing"
        return "took away" if count < due and name in self.fewer else "length of a table"

    def _wrong_block(self, name: str, index: int, block: Any) -> Fault | None:
        holes = {"request": name, "block": block}
        if not is_number(block) or not 0 <= block < self.num_blocks:
            return wrong("no block", last=self.num_blocks - 1, **holes)
        mine = self.known.setdefault(name, {})
        if (was := mine.get(index, block)) != block:
            return wrong("moved", index=index, was=was, **holes)
        for other, theirs in self.known.items():
            if any(held == block and (other, at) != (name, index) for at, held in theirs.items()):
                return wrong("twice to one" if other == name else "twice", other=other, **holes)
        mine[index] = block
        return None

    def _wrong_slot(self, op: Op, value: Any) -> Fault | None:
        index, offset = divmod(op.number, self.size)
        block = self.known.get(op.name, {}).get(index)
        if block is None and is_number(value) and value % self.size == offset:
            return self._wrong_block(op.name, index, value // self.size)
        holes = {"position": op.number, "request": op.name, "offset": offset, "size": self.size}
        if block is None:
            return wrong("offset", got=named(value), **holes)
        due = block * self.size + offset
        if is_number(value) and value == due:
            return None
        fault = wrong("slot", block=block, due=due, got=named(value), **holes)
        fault.expected = repr(due)
        return fault
