"""`python tests/measure/passes_in_tab.py SITE …`: passes of `smollm2` in a browser's tab, beside
torch on one thread. SITE: folders of `export-site --engine`, of two commits for one, served on
loopback.

Decodes with 100 tokens before them, and a prompt; each site takes its turn in every round, with one
thread and with as many as it would choose, and torch after them. The least and the median of the
rounds are printed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Annotated

os.environ["NUMBA_NUM_THREADS"] = "1"

import torch
import typer
from playwright.sync_api import Page

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from core.cli.output import print_line
from core.config import SMOLLM2, EngineConfig
from core.torch_engine.engine import Engine
from core.torch_engine.models.load import load_adapter
from core.workload.request import Request, SamplingParams
from core.workload.workload import Workload
from measure import script
from measure.engine_in_tab import started
from visualizer.page.engine_files import ISOLATED
from worlds.static_host import hosted

Requests = list[tuple[int, int]]  # of each the tokens that are computed, and those before them

CASES = {f"{n} decode{'s' * (n > 1)}": [(1, 100)] * n for n in (1, 3, 4, 8)} | {
    "64 prompt tokens": [(64, 0)]
}
_WORKER = """
const fetched = async (address) =>
  new Response((await fetch(address)).body.pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
let model, owner;
async function load(base, threads) {
  const { Model } = await import(base + "model.js");
  const manifest = await (await fetch(base + "manifest.json")).json();
  const module = await WebAssembly.compile(await fetched(`${base}${threads > 1 ? "shared" : "kernels"}.wasm.gz`));
  const memory = new WebAssembly.Memory(threads > 1 ? { initial: 32, maximum: 16384, shared: true } : { initial: 32 });
  const weights = await fetched(new URL(manifest.beside["smollm2/weights"] + ".gz", base));
  model = Model.of ? Model.of(weights, module, memory) : new Model(weights, module, memory);
  for (let n = 1; n < threads; n++)
    model.enlist((told) => new Worker(base + "thread.js", { type: "module" }).postMessage(told));
  while (threads > 1 && model.threads < threads) await new Promise((done) => setTimeout(done, 10));
  owner = model.pool(1024);
}
function pass(requests) {
  const told = [owner, 16, requests.length];
  let block = 0;
  for (const [count, start] of requests) {
    const blocks = Math.ceil((start + count) / 16);
    told.push(0, count, start, -1, 1, blocks, ...Array.from({ length: count }, (_, i) => 100 + i));
    for (let n = 0; n < blocks; n++) told.push(block++);
  }
  const began = performance.now();
  model.pass(Int32Array.from(told), requests.map(() => ({ temperature: 0 })));
  return performance.now() - began;
}
self.onmessage = async ({ data: { load: given, requests } }) => self.postMessage(given ? await load(...given) : pass(requests));
"""  # noqa: E501
_ASK = """(message) => new Promise((done) => {
  window.worker ??= new Worker(URL.createObjectURL(new Blob([message.source], { type: "text/javascript" })), { type: "module" });
  worker.onmessage = ({ data }) => done(data);
  worker.postMessage(message); })"""  # noqa: E501


def passes_in_tab(
    sites: Annotated[list[Path], typer.Argument()],
    browser: Annotated[str, typer.Option(help="chromium or firefox.")] = "chromium",
    rounds: Annotated[int, typer.Option(help="How often each takes its turn.")] = 15,
) -> None:
    """See the head of the file."""
    contenders: dict[str, Callable[[Requests], float]] = {}
    with ExitStack() as stack:
        opened = stack.enter_context(started(browser))
        for site in sites:
            base = next(site.glob("engine/*/worker.js")).parent.relative_to(site).as_posix()
            (site / "blank.html").write_text("<!doctype html><title>Passes</title>")
            for threads in (1, min(4, os.cpu_count() or 1)):
                if threads > 1 and not (site / base / "shared.wasm.gz").exists():
                    continue
                host = stack.enter_context(hosted(site))
                host.headers = ISOLATED
                page = opened.new_page()
                page.goto(f"{host.url}blank.html")
                load = [f"{host.url}{base}/", threads]
                page.evaluate(_ASK, {"source": _WORKER, "load": load})
                name = f"{site.name}, {threads} thread{'s' * (threads > 1)}"
                contenders[name] = partial(_passed, page)
        contenders["torch, 1 thread"] = _torchs()
        print_line(f"{browser} {opened.version}, load average {os.getloadavg()[0]:.1f} before")
        print_line(f"ms, least and median of {rounds}: {' | '.join(contenders)}")
        for case, requests in CASES.items():
            times: dict[str, list[float]] = {name: [] for name in contenders}
            for turn in range(rounds + 1):
                for name, took in contenders.items():
                    ms = took(requests)
                    times[name] += [ms] * (turn > 0)  # the first warms up
            said = (f"{min(found):.1f} ({median(found):.1f})" for found in times.values())
            print_line(f"{case}: {' | '.join(said)}")
        print_line(f"load average {os.getloadavg()[0]:.1f} after")


def _passed(page: Page, requests: Requests) -> float:
    ms: float = page.evaluate(_ASK, {"requests": requests})
    return ms


def _torchs() -> Callable[[Requests], float]:
    """The same step in torch's engine: its milliseconds, with the scheduler's."""
    adapter = load_adapter(SMOLLM2, "cpu", "float32")
    torch.set_num_threads(1)

    @cache
    def engine(rows: int) -> Engine:
        return Engine(
            *adapter, EngineConfig("continuous", max_num_seqs=rows, max_num_batched_tokens=1024)
        )

    def step(requests: Requests) -> float:
        (count, start), rows = requests[0], len(requests)
        asked = [
            Request(
                f"r{i}",
                prompt_token_ids=tuple(range(100 + i, 100 + i + max(count, start))),
                sampling=SamplingParams(2, ignore_eos=True),
            )
            for i in range(rows)
        ]
        event = engine(rows).run(Workload(asked)).events[1 if start else 0]
        return 1e3 * (event.t_end - event.t_start)

    return step


if __name__ == "__main__":
    script(passes_in_tab)
