"""Wrong answers to the exercises as students write them, each with words that its message must
have; and right ones. The code follows `HEAD`.
"""

from __future__ import annotations

from pathlib import Path

from visualizer.write.exercises import EXERCISES
from visualizer.write.tasks import tasks

HEAD = "# mine\n\n\n"
GIVEN = "\n\n\n".join(
    ["from dataclasses import dataclass", *tasks()["static"].given.values()]
    + [*tasks()["mask"].given.values()]
)
RIGHT = Path(__file__).with_name("solutions.py").read_text(encoding="utf-8") + f"\n\n{GIVEN}\n"

_STATIC = "def schedule_static(waiting, running, lanes):\n"
_CONTINUOUS = "def schedule_continuous(waiting, running, lanes, budget):\n"
_MASK = "def block_diagonal_mask(chunks):\n"

STATIC = {
    "returns nothing": (
        _STATIC + "    {r.id: r.left for r in running or waiting[:lanes]}\n",
        "It returned `None`",
    ),
    "refills at once": (
        _STATIC
        + "    return {r.id: r.left for r in (*running, *waiting[: lanes - len(running)])}\n",
        "joins no wave while",
    ),
    "more than the lanes": (
        _STATIC + "    return {r.id: r.left for r in running or waiting}\n",
        "lane",
    ),
    "one lane too few": (
        _STATIC + "    return {r.id: r.left for r in running or waiting[: lanes - 1]}\n",
        "has a lane for it",
    ),
    "one lane too many": (
        _STATIC + "    return {r.id: r.left for r in running or waiting[: lanes + 1]}\n",
        "lane",
    ),
    "all tokens, not those left": (
        _STATIC + "    return {r.id: r.tokens for r in running or waiting[:lanes]}\n",
        "one position",
    ),
    "one position of a prompt": (
        _STATIC + "    return {r.id: 1 for r in running or waiting[:lanes]}\n",
        "whole prompt",
    ),
    "the newest first": (
        _STATIC + "    return {r.id: r.left for r in running or waiting[::-1][:lanes]}\n",
        "came first",
    ),
    "the shortest first": (
        _STATIC + "    return {r.id: r.left for r in running or sorted(waiting, key=lambda r:"
        " r.left)[:lanes]}\n",
        "came first",
    ),
    "by name": (
        _STATIC + "    return {r.id: r.left for r in running or sorted(waiting, key=lambda r:"
        " r.id)[:lanes]}\n",
        "came first",
    ),
    "never starts": (_STATIC + "    return {r.id: r.left for r in running}\n", "has a lane for it"),
    "forgets the running": (
        _STATIC + "    return {} if running else {r.id: r.left for r in waiting[:lanes]}\n",
        "one position",
    ),
    "waits for a full wave": (
        _STATIC
        + "    if running:\n        return {r.id: 1 for r in running}\n"
        + "    return {r.id: r.left for r in waiting[:lanes]} if len(waiting) >= lanes else {}\n",
        "has a lane for it",
    ),
    "a request twice, by a text that equals none": (
        "class Name(str):\n    __hash__ = object.__hash__\n    __eq__ = object.__eq__\n\n\n"
        + _STATIC
        + "    twice = [*(running or waiting[:lanes])] * 2\n"
        "    return {Name(r.id): r.left for r in twice}\n",
        "dict that has a key twice",
    ),
    "by request, not by id": (
        _STATIC + "    return {r: r.left for r in running or waiting[:lanes]}\n",
        "ids",
    ),
    "pairs": (
        _STATIC + "    return [(r.id, r.left) for r in running or waiting[:lanes]]\n",
        "of type list",
    ),
    "a generator": (
        _STATIC + "    for r in running or waiting[:lanes]:\n        yield r.id, r.left\n",
        "of type generator",
    ),
    "clears what waits": (
        _STATIC
        + "    plan = {r.id: r.left for r in running or waiting[:lanes]}\n    waiting.clear()\n   "
        " return plan\n",
        "must stay as they are",
    ),
    "pops what waits": (
        _STATIC
        + "    wave = running or [waiting.pop(0) for _ in range(min(lanes, len(waiting)))]\n"
        + "    return {r.id: r.left for r in wave}\n",
        "must stay as they are",
    ),
    "remembers": (
        "seen = {}\n\n\n"
        + _STATIC
        + "    for r in running or waiting[:lanes]:\n        seen[r.id] = seen.get(r.id, 0) +"
        " r.left\n    return dict(seen)\n",
        "Asked the same once more",
    ),
    "halves": (
        _STATIC + "    return {r.id: r.left / 1 for r in running or waiting[:lanes]}\n",
        "whole number",
    ),
    "an example by heart": (_STATIC + "    return {'A': 3, 'B': 2}\n", ""),
    "raises": (
        _STATIC
        + "    return {r.id: r.left for r in running or [waiting[i] for i in range(lanes)]}\n",
        "Line 5 raised IndexError",
    ),
    "changes a request": (
        _STATIC
        + "    for r in running or waiting:\n        r.computed = r.tokens\n    return {}\n",
        "Line 6 raised FrozenInstanceError",
    ),
    "an attribute that is none": (
        _STATIC + "    return {r.id: r.prompt for r in waiting[:lanes]}\n",
        "Line 5 raised AttributeError",
    ),
    "never ends": (_STATIC + "    while True:\n        pass\n", "still running"),
    "recursion": (
        _STATIC + "    return schedule_static(waiting, running, lanes)\n",
        "Line 5 raised RecursionError",
    ),
    "reads the answer": (
        _STATIC
        + "    import inspect\n    frame = inspect.currentframe()\n    while frame:\n"
        + "        for value in [*frame.f_locals.values(), *frame.f_globals.values()]:\n"
        + "            expected = getattr(value, 'expected', None)\n            if"
        " isinstance(expected, dict):\n"
        + "                return expected\n        frame = frame.f_back\n    return {}\n",
        "",
    ),
    "imports the solution": ("from visualizer.write.schedulers import *\n", "cannot be read"),
    "leaves": (_STATIC + "    import sys\n    sys.exit(0)\n", "Line 6 raised SystemExit"),
    "leaves for good": (_STATIC + "    import os\n    os._exit(0)\n", "ended the Python"),
    "very slow": (
        _STATIC
        + "    import time\n    time.sleep(0.05)\n    return {r.id: r.left for r in running or"
        " waiting[:lanes]}\n",
        "takes too long",
    ),
}

_ORDER = "    order = {order}\n    plan = {{}}\n"
_SHARE = (
    "    for r in order:\n        share = min(r.left, budget)\n        if share:\n           "
    " plan[r.id] = share\n            budget -= share\n    return plan\n"
)


def _continuous(order: str, share: str = _SHARE) -> str:
    return _CONTINUOUS + _ORDER.format(order=order) + share


_RIGHT = (
    "[r for r in running if r.decodes] + [r for r in running if not r.decodes] + waiting[: lanes -"
    " len(running)]"
)

CONTINUOUS = {
    "decodes not first": (_continuous("running + waiting[: lanes - len(running)]"), "decodes"),
    "prompts first": (
        _continuous(
            "[r for r in running if not r.decodes] + [r for r in running if r.decodes] + waiting[:"
            " lanes - len(running)]"
        ),
        "decodes",
    ),
    "the waiting before prompts begun": (
        _continuous(
            "[r for r in running if r.decodes] + waiting[: lanes - len(running)] + [r for r in"
            " running if not r.decodes]"
        ),
        "has begun",
    ),
    "past the lanes": (
        _continuous(
            "[r for r in running if r.decodes] + [r for r in running if not r.decodes] + waiting"
        ),
        "lane",
    ),
    "lanes of its own for the waiting": (
        _continuous(
            "[r for r in running if r.decodes] + [r for r in running if not r.decodes] +"
            " waiting[:lanes]"
        ),
        "lane",
    ),
    "one lane too few": (
        _continuous(
            "[r for r in running if r.decodes] + [r for r in running if not r.decodes] + waiting[:"
            " max(0, lanes - len(running) - 1)]"
        ),
        "a lane is free",
    ),
    "only when all lanes are free": (
        _continuous(
            "[r for r in running if r.decodes] + [r for r in running if not r.decodes] + ([] if"
            " running else waiting[:lanes])"
        ),
        "a lane is free",
    ),
    "no budget": (_continuous(_RIGHT, "    return {r.id: r.left for r in order}\n"), "budget"),
    "a budget for each": (
        _continuous(_RIGHT, "    return {r.id: min(r.left, budget) for r in order}\n"),
        "budget",
    ),
    "whole prompts only": (
        _continuous(
            _RIGHT,
            "    for r in order:\n        if r.left <= budget:\n            plan[r.id] = r.left\n  "
            "          budget -= r.left\n    return plan\n",
        ),
        "as much as fits",
    ),
    "passes over a prompt that does not fit": (
        _continuous(
            _RIGHT,
            "    for r in order:\n        if r.left <= budget or r in running:\n           "
            " plan[r.id] = min(r.left, budget)\n            budget -= plan[r.id]\n    return"
            " plan\n",
        ),
        "",
    ),
    "one of the budget unused": (
        _continuous(_RIGHT, _SHARE.replace("budget)\n", "budget - 1)\n", 1)),
        "",
    ),
    "the newest first": (
        _continuous(
            "[r for r in running if r.decodes] + [r for r in running if not r.decodes] +"
            " waiting[::-1][: lanes - len(running)]"
        ),
        "came first",
    ),
    "the shortest first": (
        _continuous(
            "[r for r in running if r.decodes] + [r for r in running if not r.decodes]"
            " + sorted(waiting, key=lambda r: r.left)[: lanes - len(running)]"
        ),
        "came first",
    ),
    "running prompts newest first": (
        _continuous(
            "[r for r in running if r.decodes] + [r for r in running if not r.decodes][::-1] +"
            " waiting[: lanes - len(running)]"
        ),
        "has begun",
    ),
    "the budget in equal parts": (
        _continuous(
            _RIGHT,
            "    for r in order:\n        plan[r.id] = min(r.left, max(1, budget // len(order)))\n "
            "   return plan\n",
        ),
        "",
    ),
    "tokens, not those left": (_continuous(_RIGHT, _SHARE.replace("r.left", "r.tokens")), ""),
    "clears what waits": (
        _CONTINUOUS + _ORDER.format(order=_RIGHT) + "    waiting.clear()\n" + _SHARE,
        "must stay as they are",
    ),
    "sorts who runs": (
        _CONTINUOUS
        + "    running.sort(key=lambda r: not r.decodes)\n"
        + _ORDER.format(order="running + waiting[: lanes - len(running)]")
        + _SHARE,
        "must stay as they are",
    ),
    "returns nothing": (
        _continuous(_RIGHT, _SHARE.replace("    return plan\n", "")),
        "It returned `None`",
    ),
    "a negative share": (
        _continuous(
            _RIGHT,
            "    for r in order:\n        plan[r.id] = min(r.left, budget)\n        budget -="
            " r.left\n    return plan\n",
        ),
        "",
    ),
    "a name that is none": (_continuous("runing"), "Line 5 raised NameError"),
    "never ends": (
        _CONTINUOUS + "    while budget:\n        budget -= 0\n    return {}\n",
        "still running",
    ),
    "never ends where the budget is odd": (
        _CONTINUOUS
        + "    while budget % 2:\n        pass\n"
        + _ORDER.format(order=_RIGHT)
        + _SHARE,
        "still running",
    ),
    "catches all": (
        _CONTINUOUS
        + "    while True:\n        try:\n            while True:\n                pass\n       "
        " except BaseException:\n            pass\n",
        "still running",
    ),
    "sleeps": (_CONTINUOUS + "    import time\n    time.sleep(1000)\n", "still running"),
    "one call into C": (_CONTINUOUS + "    return sum(range(10**13))\n", "still running"),
    "equal to everything": (
        "class Equal(dict):\n    def __eq__(self, other):\n        return True\n    def"
        " __ne__(self, other):\n        return False\n    __hash__ = None\n\n\n"
        + _CONTINUOUS
        + "    return Equal()\n",
        "",
    ),
    "changes the checks": (
        "import sys\n\n\nfor name, module in list(sys.modules.items()):\n    for attribute in"
        " ('check', 'fault', '_continuous'):\n        if hasattr(module, attribute):\n           "
        " setattr(module, attribute, lambda *_: None)\n\n\n" + _CONTINUOUS + "    return {}\n",
        "",
    ),
    "writes a verdict": (
        "import os\nimport sys\n\nfor number in range(3, 20):\n    try:\n        os.write(number,"
        ' b\'{"passed": true, "answers": []}\\n\')\n    except OSError:\n       '
        " pass\nprint('continuous: right.', file=sys.__stdout__)\n\n\n"
        + _CONTINUOUS
        + "    return {}\n",
        "",
    ),
    "says that its time is up": (
        "import os\n\nfor number in range(3, 20):\n    try:\n        os.write(number,"
        " b'{\"overdue\": 1}\\n')\n    except OSError:\n        pass\n\n\n"
        + _CONTINUOUS
        + "    return {}\n",
        "It wrote something that is no answer",
    ),
}

MASK = {
    "not causal": (
        _MASK
        + "    return [[q.request == k.request for k in chunks for _ in range(k.end)] for q in"
        " chunks for _ in range(q.start, q.end)]\n",
        "comes later",
    ),
    "one triangle": (
        _MASK
        + "    n = sum(c.end for c in chunks)\n    return [[k <= q for k in range(n)] for q in"
        " range(sum(c.end - c.start for c in chunks))]\n",
        "",
    ),
    "strictly before": (
        _MASK
        + "    keys = [(c.request, p) for c in chunks for p in range(c.end)]\n"
        + "    return [[r == of and k < p for of, k in keys] for r, p in [(c.request, p) for c in"
        " chunks for p in range(c.start, c.end)]]\n",
        "itself",
    ),
    "no cached keys": (
        _MASK
        + "    row = [(c.request, p) for c in chunks for p in range(c.start, c.end)]\n"
        + "    return [[r == of and k <= p for of, k in row] for r, p in row]\n",
        "cached",
    ),
    "a row for every key": (
        _MASK
        + "    row = [(c.request, p) for c in chunks for p in range(c.end)]\n"
        + "    return [[r == of and k <= p for of, k in row] for r, p in row]\n",
        "row",
    ),
    "end included": (
        _MASK
        + "    keys = [(c.request, p) for c in chunks for p in range(c.end + 1)]\n"
        + "    return [[r == of and k <= p for of, k in keys] for r, p in [(c.request, p) for c in"
        " chunks for p in range(c.start, c.end)]]\n",
        "column",
    ),
    "all requests": (
        _MASK
        + "    keys = [(c.request, p) for c in chunks for p in range(c.end)]\n"
        + "    return [[k <= p for of, k in keys] for r, p in [(c.request, p) for c in chunks for p"
        " in range(c.start, c.end)]]\n",
        "another request",
    ),
    "only what is computed now": (
        _MASK
        + "    keys = [(c.request, p, p >= c.start) for c in chunks for p in range(c.end)]\n"
        + "    return [[r == of and k <= p and new for of, k, new in keys] for r, p in [(c.request,"
        " p) for c in chunks for p in range(c.start, c.end)]]\n",
        "may look at key",
    ),
    "columns by position": (
        _MASK
        + "    keys = sorted([(c.request, p) for c in chunks for p in range(c.end)], key=lambda"
        " key: key[1])\n"
        + "    return [[r == of and k <= p for of, k in keys] for r, p in [(c.request, p) for c in"
        " chunks for p in range(c.start, c.end)]]\n",
        "columns are in another order",
    ),
    "chunks by name": (
        _MASK
        + "    chunks = sorted(chunks, key=lambda c: c.request)\n"
        + "    keys = [(c.request, p) for c in chunks for p in range(c.end)]\n"
        + "    return [[r == of and k <= p for of, k in keys] for r, p in [(c.request, p) for c in"
        " chunks for p in range(c.start, c.end)]]\n",
        "order",
    ),
    "rows backwards": (
        _MASK
        + "    keys = [(c.request, p) for c in chunks for p in range(c.end)]\n"
        + "    return [[r == of and k <= p for of, k in keys] for r, p in [(c.request, p) for c in"
        " chunks for p in range(c.start, c.end)]][::-1]\n",
        "rows are in another order",
    ),
    "transposed": (
        _MASK
        + "    keys = [(c.request, p) for c in chunks for p in range(c.end)]\n"
        + "    rows = [[r == of and k <= p for of, k in keys] for r, p in [(c.request, p) for c in"
        " chunks for p in range(c.start, c.end)]]\n"
        + "    return [list(column) for column in zip(*rows)]\n",
        "Rows and columns",
    ),
    "upside down": (
        _MASK
        + "    keys = [(c.request, p) for c in chunks for p in range(c.end)]\n"
        + "    return [[not (r == of and k <= p) for of, k in keys] for r, p in [(c.request, p) for"
        " c in chunks for p in range(c.start, c.end)]]\n",
        "look",
    ),
    "one row, many times": (
        _MASK
        + "    keys = [(c.request, p) for c in chunks for p in range(c.end)]\n"
        + "    rows = [[False] * len(keys)] * sum(c.end - c.start for c in chunks)\n"
        + "    for row, (r, p) in zip(rows, [(c.request, p) for c in chunks for p in range(c.start,"
        " c.end)]):\n"
        + "        for i, (of, k) in enumerate(keys):\n            row[i] = row[i] or (r == of and"
        " k <= p)\n    return rows\n",
        "look",
    ),
    "additive": (
        _MASK
        + "    keys = [(c.request, p) for c in chunks for p in range(c.end)]\n"
        + "    return [[0.0 if r == of and k <= p else float('-inf') for of, k in keys] for r, p in"
        " [(c.request, p) for c in chunks for p in range(c.start, c.end)]]\n",
        "`True` or `False`",
    ),
    "a generator": (
        _MASK + "    for c in chunks:\n        yield [True] * c.end\n",
        "of type generator",
    ),
    "rows that are generators": (
        _MASK + "    return [(k <= p for k in range(c.end)) for c in chunks for p in range(c.start,"
        " c.end)]\n",
        "row 0 is of type generator",
    ),
    "tuples": (_MASK + "    return tuple(tuple([True]) for c in chunks)\n", "of type tuple"),
    "returns nothing": (_MASK + "    mask = []\n", "It returned `None`"),
    "pops the chunks": (
        _MASK
        + "    keys = [(c.request, p) for c in chunks for p in range(c.end)]\n    rows = []\n   "
        " while chunks:\n        c = chunks.pop(0)\n"
        + "        rows += [[c.request == of and k <= p for of, k in keys] for p in range(c.start,"
        " c.end)]\n    return rows\n",
        "must stay as they are",
    ),
    "one chunk": (
        _MASK
        + "    (c,) = chunks\n    return [[k <= p for k in range(c.end)] for p in range(c.start,"
        " c.end)]\n",
        "Line 5 raised ValueError",
    ),
    "too much": (_MASK + "    return [[True] * 150_000]\n", "more than 100,000 values"),
    "contains itself": (
        _MASK + "    rows = []\n    rows.append(rows)\n    return rows\n",
        "itself",
    ),
    "never ends": (
        _MASK + "    rows, q = [], 0\n    while q < len(chunks):\n        rows.append([])\n       "
        " rows.clear()\n    return rows\n",
        "still running",
    ),
    "eats the memory": (_MASK + "    rows = [[]]\n    while True:\n        rows += rows\n", ""),
    "nothing at all": ("", "There is no block_diagonal_mask"),
    "a typing mistake": (_MASK + "    return [\n", "cannot be read"),
    "asks": (_MASK + "    return input()\n", "Line 5 raised EOFError"),
}

_BLOCKS = """class Blocks:
    def __init__(self, num_blocks, block_size):
        self.block_size = block_size
        self.free = list(range(num_blocks))
        self.tables = {}

    def grow(self, request, positions):
        held = self.tables.get(request, [])
        lacking = max(0, -(-positions // self.block_size) - len(held))
        if lacking > len(self.free):
            return False
        self.tables[request] = held + [self.free.pop() for _ in range(lacking)]
        return True

    def table(self, request):
        return list(self.tables.get(request, []))

    def release(self, request):
        self.free += self.tables.pop(request, [])

    def slot(self, request, position):
        block, offset = divmod(position, self.block_size)
        return self.tables[request][block] * self.block_size + offset
"""


def _blocks(*changes: tuple[str, str]) -> str:
    code = _BLOCKS
    for was, becomes in changes:
        assert was in code, was
        code = code.replace(was, becomes)
    return code


_GROWN = "self.tables[request] = held + [self.free.pop() for _ in range(lacking)]"

BLOCKS = {
    "its live list": (
        _blocks(
            (
                "return list(self.tables.get(request, []))",
                "return self.tables.setdefault(request, [])",
            )
        ),
        "list",
    ),
    "a block too many": (
        _blocks(("-(-positions // self.block_size)", "(positions // self.block_size + 1)")),
        "block",
    ),
    "a block too few": (
        _blocks(("-(-positions // self.block_size)", "positions // self.block_size")),
        "block",
    ),
    "as many again": (_blocks((" - len(held))", ")")), "block"),
    "forgets release": (_blocks(("self.free += self.tables.pop(request, [])", "pass")), "gave"),
    "releases to nobody": (
        _blocks(("self.free += self.tables.pop(request, [])", "self.tables.pop(request, None)")),
        "gave",
    ),
    "frees and keeps": (
        _blocks(("self.tables.pop(request, [])", "self.tables.get(request, [])")),
        "gave",
    ),
    "frees one": (
        _blocks(
            (
                "self.free += self.tables.pop(request, [])",
                "self.free += self.tables.pop(request, [])[:1]",
            )
        ),
        "gave",
    ),
    "release of nobody raises": (
        _blocks(("self.tables.pop(request, [])", "self.tables.pop(request)")),
        "KeyError",
    ),
    "table of nobody raises": (
        _blocks(("list(self.tables.get(request, []))", "list(self.tables[request])")),
        "KeyError",
    ),
    "evicts the oldest": (
        _blocks(
            (
                "            return False\n",
                (
                    "            for other in [name for name in self.tables if name != request]:\n "
                    "               self.release(other)\n                if lacking <="
                    " len(self.free):\n                    break\n            else:\n              "
                    "  return False\n"
                ),
            )
        ),
        "`grow` must return False",
    ),
    "takes what there is": (
        _blocks(
            (
                "            return False\n",
                (
                    "            self.tables[request] = held + self.free\n            self.free ="
                    " []\n            return False\n"
                ),
            )
        ),
        "changes nothing",
    ),
    "never refuses": (_blocks(("lacking > len(self.free)", "False")), "IndexError"),
    "refuses the last block": (
        _blocks(("lacking > len(self.free)", "lacking >= len(self.free)")),
        "`grow` must return True",
    ),
    "one block for all": (_blocks(("self.free.pop() for", "0 for")), "handed out twice"),
    "from one": (
        _blocks(("list(range(num_blocks))", "list(range(1, num_blocks + 1))")),
        "There are only blocks",
    ),
    "says nothing": (_blocks(("        return True\n", "")), "must return True, not None"),
    "the old ones go": (
        _blocks(
            (
                _GROWN,
                (
                    "self.free += held\n        self.tables[request] = [self.free.pop(0) for _ in"
                    " range(len(held) + lacking)]"
                ),
            )
        ),
        "keeps",
    ),
    "in front": (
        _blocks(
            (_GROWN, "self.tables[request] = [self.free.pop() for _ in range(lacking)] + held")
        ),
        "keeps",
    ),
    "shrinks": (
        _blocks(
            (
                _GROWN,
                (
                    "self.tables[request] = (held + [self.free.pop() for _ in range(lacking)])[:"
                    " -(-positions // self.block_size)]"
                ),
            )
        ),
        "keeps",
    ),
    "the offset alone": (
        _blocks(
            (
                "self.tables[request][block] * self.block_size + offset",
                "self.tables[request][block] + offset",
            )
        ),
        "offset",
    ),
    "the position itself": (
        _blocks(
            (
                "        return self.tables[request][block] * self.block_size + offset",
                "        return position",
            )
        ),
        "offset",
    ),
    "block times blocks": (
        _blocks(("[block] * self.block_size", "[block] * len(self.tables[request])")),
        "offset",
    ),
    "a set": (
        _blocks(
            (
                "return list(self.tables.get(request, []))",
                "return set(self.tables.get(request, []))",
            )
        ),
        "of type set",
    ),
    "a tuple": (
        _blocks(
            (
                "return list(self.tables.get(request, []))",
                "return tuple(self.tables.get(request, []))",
            )
        ),
        "of type tuple",
    ),
    "a generator": (
        _blocks(
            ("return list(self.tables.get(request, []))", "yield from self.tables.get(request, [])")
        ),
        "of type generator",
    ),
    "backwards": (
        _blocks(
            (
                "return list(self.tables.get(request, []))",
                "return list(self.tables.get(request, []))[::-1]",
            )
        ),
        "",
    ),
    "one table for all pools": (
        _blocks(
            ("        self.tables = {}\n", ""),
            ("class Blocks:\n", "class Blocks:\n    tables = {}\n\n"),
        ),
        "Each pool stands alone",
    ),
    "one list of free blocks for all pools": (
        _blocks(("self.free = list", "Blocks.free = list")),
        "Each pool stands alone",
    ),
    "a function, not a class": ("def Blocks(num_blocks, block_size):\n    return {}\n", "no grow"),
    "no slot": (_blocks(("def slot", "def slots")), "no slot"),
    "never ends": (
        _blocks(
            (
                "        if lacking > len(self.free):\n            return False\n",
                "        while lacking > len(self.free):\n            pass\n",
            )
        ),
        "still running",
    ),
    "raises": (
        _blocks(("            return False\n", "            raise MemoryError('no blocks')\n")),
        "Line 14 raised MemoryError",
    ),
}

_NEVER = (
    "never ends",
    "never ends where the budget is odd",
    "catches all",
    "sleeps",
    "one call into C",
    "very slow",
    "eats the memory",
)
_LEAVES = (
    "leaves for good",
    "reads the answer",
    "imports the solution",
    "changes the checks",
    "writes a verdict",
    "says that its time is up",
    "asks",
)
_ALL = {"static": STATIC, "continuous": CONTINUOUS, "mask": MASK, "blocks": BLOCKS}
assert set(_ALL) == set(EXERCISES)


def _whole(code: str, words: str) -> tuple[str, str]:
    """With what it is given, behind it: lines are those of the code."""
    return f"{code}\n\n{GIVEN}\n", words


def _of(titles: tuple[str, ...]) -> dict[str, dict[str, tuple[str, str]]]:
    return {
        name: {title: _whole(*found[title]) for title in titles if title in found}
        for name, found in _ALL.items()
    }


ENDLESS, ENDS = _of(_NEVER), _of(_LEAVES)  # to be run in a process of their own
WRONG = {
    name: {title: _whole(*one) for title, one in found.items() if title not in _NEVER + _LEAVES}
    for name, found in _ALL.items()
}
