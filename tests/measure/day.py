"""`python tests/measure/day.py --minutes 120`: a day of the page. A crowd of visitors uses it while
misfortunes befall it; what it holds afterwards (memory, threads, descriptors, disk) must be what it
held before, and each call must have ended once.

The page runs in a process of its own, as a Space with a shared engine. Now and then the crowd rests
and what the page holds is read: only what remains at rest counts as growth. In between, one after
another: a forward pass fails, a thread is starved, the whole process is stopped for seconds, the
disk is full. The process is killed once near the beginning and once at the end. The visits are
those of `tests/worlds/crowd.py`.

Exits with 1, saying in sentences what grew and which calls were lost. Linux only.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Annotated, Any, TextIO

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import httpx
import typer

from core.cli.output import print_line, table
from core.errors import InflightError
from measure import Seed, script
from measure.visitors import chromium
from visualizer.server.limits import SPACE
from worlds.crowd import Crowd, Ledger
from worlds.faulty_page import ORDERED
from worlds.page_server import ROOT, serve

EVERY_S = 10.0  # between two readings
SETTLES_S = 45.0  # at rest before what is held is read: longer than any grace that a page gives
DISK_MIB = 352  # of the page's own disk: a Space's quota, and what ships with the page
PINNED_MIB = 24  # of the store: files that ship with the page, which no quota counts
# the last line of a traceback
_FAILURE = re.compile(r"^[\w.]*(?:Error|Exception|Failed|Refused)\b.*$", re.MULTILINE)
_FAULTY = Path("tests", "worlds", "faulty_page.py")


@dataclass(frozen=True)
class Reading:
    """What the page's process holds. at: seconds since the day began. life: which process of the
    day. at_rest: whether nobody visits.
    """

    at: float
    life: int
    at_rest: bool
    memory_mib: float
    threads: int
    descriptors: int
    sockets: int
    processes: int
    disk_mib: float


HELD = {
    "memory_mib": ("memory, MiB", 24.0),
    "threads": ("threads", 2.0),
    "descriptors": ("descriptors", 3.0),
    "sockets": ("of them sockets", 3.0),
    "processes": ("processes of its own", 0.0),
    "disk_mib": ("disk, MiB", SPACE.kept_bytes / 2**20 + PINNED_MIB),
}
"""Each title, and by how much the last rest may be above the first; the disk may fill to its quota.
"""
PER_HOUR_MIB = (
    # of memory, at most, over the rests after the first: the shared engine keeps its runs, until it
    # has 100,000 tokens
    64.0
)


@dataclass
class Day:
    """minutes: its length. ledger: where each reading, misfortune and fault is written as it comes,
    a JSON object a line. pace: how many times as often as usual visitors come. calm: no misfortune
    befalls the page but the two kills.
    """

    minutes: float
    seed: int
    folder: Path
    ledger: TextIO
    browser: bool = False
    pace: float = 1.0
    calm: bool = False
    readings: list[Reading] = field(default_factory=list)
    unmended: list[str] = field(default_factory=list)
    logged: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        environment = {
            "SPACE_ID": "someone/inflight",
            "INFLIGHT_LIVE": "1",
            "TMPDIR": str(self.folder),
            "OMP_NUM_THREADS": "1",
        }
        self.page = serve((sys.executable, str(_FAULTY)), ROOT, **environment)
        self.calls = Ledger(lambda fault: self.note("fault", says=fault))
        self.crowd = Crowd(f"http://127.0.0.1:{self.page.port}", self.calls, self.seed)
        self.draw = random.Random(self.seed)
        self.is_resting = False
        self._awake, self._busy = asyncio.Event(), 0
        self._fate = asyncio.Lock()  # one misfortune at a time, and none at rest

    # -- the page ----------------------------------------------------------------------------------

    async def start(self) -> None:
        await asyncio.to_thread(self.page.__enter__)
        self.calls.life, self.calls.is_up = self.calls.life + 1, True
        self.note("started", process=self.page.process.pid)

    async def kill_and_restart(self) -> None:
        """What the page has of its own is there again afterwards, and nothing of the dead process
        is.
        """
        async with self._fate:
            self.note("killed")
            self.calls.life, self.calls.is_up = self.calls.life + 1, False
            dead = self.page.process.pid
            self.page.process.kill()
            await asyncio.to_thread(self.page.process.wait)
            self._read_log()
            self.crowd.leave()
            await self.start()
            if left := list(self.folder.glob(f"inflight-{dead}-*")):
                self.unmended.append(f"{left[0]} of the killed process is still there.")
            if (again := await self.own_files()) != self._own:
                self.unmended.append(
                    f"After the restart {len(self._own - again)} of the page's own files have other"
                    " addresses."
                )
            for run in self.crowd.runs[-3:]:
                async with httpx.AsyncClient(base_url=self.crowd.url, trust_env=False) as http:
                    told = await http.get(f"/{run['url']}")
                    if told.status_code != 404 or "restarted" not in told.json()["error"]:
                        self.unmended.append(
                            f"A run of the killed process is answered {told.status_code}."
                        )
            self.crowd.runs.clear()

    async def own_files(self) -> set[str]:
        async with httpx.AsyncClient(base_url=self.crowd.url, trust_env=False, timeout=60) as http:
            return {run["url"] for run in (await http.get("/inflight/state")).json()["catalogue"]}

    # -- readings ----------------------------------------------------------------------------------

    def note(self, kind: str, **more: Any) -> None:
        at = round(time.monotonic() - self.began, 1)
        print(
            json.dumps({"at": at, "time": time.strftime("%H:%M:%S"), "kind": kind, **more}),
            file=self.ledger,
            flush=True,
        )

    def read(self) -> Reading:
        reading = Reading(
            at=round(time.monotonic() - self.began, 1),
            life=self.calls.life,
            at_rest=self.is_resting,
            **held(self.page.process.pid, self.folder),
        )
        self.readings.append(reading)
        return reading

    async def _keep_reading(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            if self.calls.is_up and not self.is_resting:
                with suppress(OSError):  # it was killed in between
                    self.note(
                        "reading",
                        **asdict(self.read()),
                        calls=sum(self.calls.ends.values()),
                        faults=len(self.calls.faults),
                    )

    async def rest(self) -> None:
        """The crowd goes home except for those who sleep; what is held then is read."""
        async with self._fate:
            self._awake.clear()
            until = time.monotonic() + 200
            while self._busy and time.monotonic() < until:
                await asyncio.sleep(0.5)
            if self._busy:
                self.calls.faults.append(f"{self._busy} visits did not end within 200 seconds.")
            self.is_resting = True
            await asyncio.sleep(self._settles)
            ends = {" ".join(key): count for key, count in sorted(self.calls.ends.items())}
            self.note(
                "rest",
                **asdict(self.read()),
                asleep=len(self.crowd.left_open),
                ends=ends,
                refusals=dict(self.calls.sentences),
            )
            self.is_resting = False
            self._awake.set()

    # -- misfortunes -------------------------------------------------------------------------------

    async def step_fails(self) -> None:
        for _ in range(3):
            self.page.process.send_signal(signal.SIGUSR1)
            await asyncio.sleep(self.draw.uniform(0.5, 3))

    async def thread_starves(self) -> None:
        self.page.process.send_signal(signal.SIGUSR2)
        await asyncio.sleep(8)

    async def process_stops(self) -> None:
        self.page.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(self.draw.uniform(1, 6))
        self.page.process.send_signal(signal.SIGCONT)

    async def disk_is_full(self) -> None:
        """The rest of its disk is taken; where it has no disk of its own, no file of its may
        grow.
        """
        process, ballast = self.page.process.pid, self.folder / "ballast"
        if os.path.ismount(self.folder):
            with suppress(OSError), ballast.open("wb", buffering=0) as file:
                while file.write(bytes(2**20)):
                    pass
        else:
            resource.prlimit(process, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        await asyncio.sleep(12)
        ballast.unlink(missing_ok=True)
        resource.prlimit(
            process, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        )

    async def _befall(self) -> None:
        for misfortune in cycle(
            (self.step_fails, self.thread_starves, self.disk_is_full, self.process_stops)
        ):
            await asyncio.sleep(self.draw.uniform(5, 20))
            async with self._fate:
                self.note("misfortune", what=misfortune.__name__)
                await misfortune()

    # -- the day -----------------------------------------------------------------------------------

    async def _habit(self, visit: Callable[[], Awaitable[None]], mean: float) -> None:
        while True:
            await self._awake.wait()
            self._busy += 1
            try:
                await visit()
            finally:
                self._busy -= 1
            await asyncio.sleep(self.draw.expovariate(self.pace / mean))

    async def _looker(self) -> None:
        """A real browser sees the page, now and then."""
        async with chromium() as browser, self.calls.call("Chromium") as call:
            page = await browser.new_page()
            await page.goto(self.crowd.url, timeout=120_000)
            await page.wait_for_function("() => window.inflight && inflight.run", timeout=120_000)
            call.ends("answered")

    async def pass_by(self) -> None:
        """The whole day."""
        self.began = time.monotonic()
        end = self.began + 60 * self.minutes
        between = min(600.0, 60 * self.minutes / 4)
        self._settles = min(SETTLES_S, between)
        await self.start()
        self._own = await self.own_files()
        self._awake.set()
        try:
            await self._pass(between, end)
        finally:
            self.crowd.leave()
            await asyncio.to_thread(self._stop)

    async def _pass(self, between: float, end: float) -> None:
        """The crowd and what befalls it, from the first visit to the last. between: seconds from
        rest to rest.
        """
        habits = [*self.crowd.habits, *([(self._looker, 600.0)] if self.browser else [])]
        async with asyncio.TaskGroup() as group:
            going = [group.create_task(self._habit(*habit)) for habit in habits]
            going += [
                group.create_task(work())
                for work in (self._keep_reading, *([] if self.calm else [self._befall]))
            ]
            await asyncio.sleep(between / 3)
            await self.kill_and_restart()
            self.life = self.calls.life
            await asyncio.sleep(between / 3)
            await self.rest()
            while time.monotonic() + between < end:
                await asyncio.sleep(max(between / 3, between - self._settles))
                await self.rest()
            await asyncio.sleep(min(30.0, between / 3))
            await self.kill_and_restart()
            await asyncio.sleep(min(30.0, between / 3))
            self._awake.clear()
            for task in going:
                task.cancel()

    def _stop(self) -> None:
        self.page.process.terminate()
        try:
            self.page.process.wait(60)
        except subprocess.TimeoutExpired:
            self.page.process.kill()
            self.unmended.append("The page did not end within 60 seconds of being told to.")
        self._read_log()
        if left := sorted(path.name for path in self.folder.glob("inflight-*")):
            self.unmended.append(f"The page left behind: {', '.join(left)}.")

    def _read_log(self) -> None:
        """What failed in the process that has ended, other than what was made to fail."""
        self.page.log.seek(0)
        said = _FAILURE.findall(self.page.log.read())
        self.page.log.close()
        self.logged.update(line[:160] for line in said if ORDERED not in line)

    # -- what it came to ---------------------------------------------------------------------------

    @property
    def rests(self) -> list[Reading]:
        """Of the life between the two kills."""
        return [
            reading for reading in self.readings if reading.at_rest and reading.life == self.life
        ]

    def verdicts(self) -> list[str]:
        """What did not hold, in sentences."""
        first, last = self.rests[0], self.rests[-1]
        found = [*self.unmended, *self.calls.faults]
        found += [
            f"The page's log has {count} times: {line}" for line, count in self.logged.items()
        ]
        for name, (title, more) in HELD.items():
            before, after = getattr(first, name), getattr(last, name)
            if name != "memory_mib" and after > before + more:
                found.append(
                    f"At rest the page held more at the end than at the first rest: {title},"
                    f" {before:g} and then {after:g}."
                )
        rise = per_hour([(r.at, r.memory_mib) for r in self.rests[1:]])
        if rise > PER_HOUR_MIB and last.memory_mib > first.memory_mib + HELD["memory_mib"][1]:
            found.append(f"The page's memory at rest rises by {rise:.0f} MiB an hour.")
        return found

    def show(self) -> None:
        rests = self.rests
        awake = [
            reading
            for reading in self.readings
            if reading.life == self.life and not reading.at_rest
        ]
        columns = (
            "held at rest",
            "first",
            "10 minutes on",
            "middle",
            "last",
            "per hour",
            "most, awake",
        )
        rows = []
        for name, (title, _) in HELD.items():
            on = next((r for r in rests if r.at >= rests[0].at + 600), rests[-1])
            picked = [
                f"{getattr(r, name):g}" for r in (rests[0], on, rests[len(rests) // 2], rests[-1])
            ]
            rise = per_hour([(r.at, getattr(r, name)) for r in rests[1:]])
            rows.append(
                (
                    title,
                    *picked,
                    f"{rise:+.1f}",
                    f"{max((getattr(r, name) for r in awake), default=0):g}",
                )
            )
        table(columns, rows, right=columns[1:])
        ends: dict[str, int] = {}
        for (_, how), count in self.calls.ends.items():
            ends[how] = ends.get(how, 0) + count
        minutes = (time.monotonic() - self.began) / 60
        print_line(
            f"{minutes:.0f} minutes, seed {self.seed}; {sum(ends.values()):,} calls: "
            + ", ".join(f"{n:,} {how}" for how, n in ends.items())
        )


def per_hour(points: list[tuple[float, float]]) -> float:
    """The least-squares slope of (seconds, value), by the hour; 0 for fewer than three points."""
    if len(points) < 3:
        return 0.0
    t0, v0 = (sum(column) / len(points) for column in zip(*points, strict=True))
    return (
        3600 * sum((t - t0) * (v - v0) for t, v in points) / sum((t - t0) ** 2 for t, _ in points)
    )


def held(process: int, folder: Path) -> dict[str, Any]:
    """What a process and its folder hold, by the names of `Reading`."""
    of = Path("/proc", str(process))
    status = dict(line.split(":", 1) for line in (of / "status").read_text().splitlines())
    links = []
    for entry in (of / "fd").iterdir():
        with suppress(OSError):
            links.append(os.readlink(entry))
    return {
        "memory_mib": round(int(status["VmRSS"].split()[0]) / 1024, 1),
        "threads": int(status["Threads"]),
        "descriptors": len(links),
        "sockets": sum(link.startswith("socket:") for link in links),
        # each belongs to the thread that started it
        "processes": sum(
            len((task / "children").read_text().split()) for task in (of / "task").iterdir()
        ),
        "disk_mib": round(_bytes_in(folder) / 2**20, 1),
    }


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):
            total += path.lstat().st_size if path.is_file() and path.name != "ballast" else 0
    return total


@contextmanager
def own_disk() -> Iterator[Path]:
    """A folder on a small disk of its own, where this may be made; otherwise just a folder."""
    with tempfile.TemporaryDirectory(prefix="day-", ignore_cleanup_errors=True) as folder:
        mounted = (
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", folder],
                capture_output=True,
            ).returncode
            == 0
        )
        try:
            yield Path(folder)
        finally:
            if mounted:
                subprocess.run(["umount", "--lazy", folder], check=True)


def day(
    minutes: Annotated[float, typer.Option(min=0.5, help="Length of the day.")] = 120.0,
    seed: Seed = 0,
    ledger: Annotated[
        Path | None,
        typer.Option(
            help="File for each reading, misfortune and fault as it comes, as JSON lines.",
            show_default=False,
        ),
    ] = None,
    browser: Annotated[
        bool, typer.Option("--browser", help="A real Chromium looks in every ten minutes.")
    ] = False,
    pace: Annotated[
        float, typer.Option(min=0.1, help="How many times as often as usual visitors come.")
    ] = 1.0,
    calm: Annotated[
        bool, typer.Option("--calm", help="Nothing befalls the page but that it is killed, twice.")
    ] = False,
) -> None:
    """Let a crowd use the page for a day while misfortunes befall it; print what it held at rest
    and what did not hold.
    """
    if not Path("/proc/self/fd").exists():
        raise InflightError(
            "What a process holds is read from /proc, which this system does not have."
        )
    with own_disk() as folder, ledger.open("w") if ledger else nullcontext(sys.stderr) as file:
        it = Day(minutes, seed, folder, file, browser, pace, calm)
        asyncio.run(it.pass_by())
    it.show()
    for sentence in it.verdicts():
        print_line(sentence)
    if it.verdicts():
        raise typer.Exit(1)


if __name__ == "__main__":
    script(day)
