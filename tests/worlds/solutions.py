"""The solutions of the exercises, to be put behind the classes that they are given."""


def schedule_static(waiting, running, lanes):
    wave = running or waiting[:lanes]
    return {request.id: request.left for request in wave}


def schedule_continuous(waiting, running, lanes, budget):
    plan: dict[str, int] = {}
    in_order = (
        [r for r in running if r.decodes]
        + [r for r in running if not r.decodes]
        + waiting[: lanes - len(running)]
    )
    for request in in_order:
        share = min(request.left, budget)
        if not share:
            break
        plan[request.id] = share
        budget -= share
    return plan


def block_diagonal_mask(chunks):
    keys = [(chunk.request, position) for chunk in chunks for position in range(chunk.end)]
    queries = [
        (chunk.request, position) for chunk in chunks for position in range(chunk.start, chunk.end)
    ]
    return [
        [request == of and key <= position for of, key in keys] for request, position in queries
    ]


class Blocks:
    def __init__(self, num_blocks, block_size):
        self.block_size = block_size
        self.free = list(range(num_blocks))
        self.tables: dict[str, list[int]] = {}

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
