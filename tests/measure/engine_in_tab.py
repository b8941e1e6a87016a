"""`python tests/measure/engine_in_tab.py SITE`: the engine in a browser's tab. SITE: a folder of
`export-site --engine`, served on loopback.

How long it takes until it is ready, on a first visit and on later ones; steps a second of
`short-and-long` with both models; how long a visitor waits for the first step of another run, and
for the end of a run that is stopped.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer
from playwright.sync_api import Browser, sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from core.cli.output import print_line
from core.config import BUILTIN_MODELS
from core.workload.presets import PRESETS
from measure import script
from worlds.browser import executable
from worlds.static_host import hosted
from worlds.tab_engine import TabEngine

PRESET, STOPPED, AFTER = "short-and-long", "poisson-32", 20
RUNS, LATER = 6, 3
_READY = (
    "async model => { const from = performance.now(); await tab.ask({ do: 'load', model }); return"
    " performance.now() - from; }"
)
_KEPT = """async () => {
    for (;; await new Promise(done => setTimeout(done, 50))) {
        const cache = await caches.open('inflight-engine'), found = (await cache.keys()).find(request => request.url.endsWith('snapshot'));
        if (found && (await (await cache.match(found)).arrayBuffer()).byteLength > 1e7) return;
    } }"""  # noqa: E501
_RUN = """async ([spec, after]) => {
    const from = performance.now(), of = tab.last + 1, answer = tab.ask({ do: 'begin', kind: 'run', spec }), { deltas } = tab.waiting.get(of), push = deltas.push;
    let first = 0, steps = 0, stopped = 0;
    deltas.push = delta => {
        first ||= delta.events?.length ? performance.now() - from : 0;
        steps += delta.events?.length ?? 0;
        if (after && steps >= after && !stopped) { stopped = performance.now(); tab.cancel(of); }
        return push.call(deltas, delta); };
    await answer;
    return { first, rate: 1000 * steps / (performance.now() - from), stop: performance.now() - stopped }; }"""  # noqa: E501


@contextmanager
def started(name: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        if name == "firefox":
            driver = Path(__file__).parents[1] / "worlds" / "firefox_driver.py"
            browser = playwright.firefox.launch(channel="moz-firefox", executable_path=str(driver))
        else:
            browser = playwright.chromium.launch(
                executable_path=executable(), args=["--no-sandbox"]
            )
        yield browser
        browser.close()


def _spec(name: str, model: str) -> dict[str, Any]:
    preset = PRESETS[name]
    return {
        "workload": preset.workload.to_json(),
        "config": preset.config.to_json(),
        "model": model,
    }


def engine_in_tab(
    site: Annotated[Path, typer.Argument()],
    browser: Annotated[str, typer.Option(help="chromium or firefox.")] = "chromium",
) -> None:
    """See the head of the file."""
    worker = next(site.glob("engine/*/worker.js")).relative_to(site).as_posix()
    with hosted(site) as host, started(browser) as opened:
        context = opened.new_context()
        ready = []
        for _ in range(1 + LATER):
            page = context.new_page()
            page.goto(host.url)
            TabEngine(page, worker)
            ready.append(page.evaluate(_READY, BUILTIN_MODELS[0]))
            page.evaluate(_KEPT)
            if len(ready) <= LATER:
                page.close()
        print_line(
            f"{browser} {opened.version}: ready after {ready[0]:.0f} ms, on later visits"
            f" {', '.join(f'{ms:.0f}' for ms in ready[1:])} ms"
        )
        for model in BUILTIN_MODELS:
            page.evaluate(_READY, model)
            runs = [page.evaluate(_RUN, [_spec(PRESET, model), 0]) for _ in range(RUNS)]
            rates = [run["rate"] for run in runs]
            print_line(
                f"{PRESET} on {model}: {', '.join(f'{r:.0f}' for r in rates)} steps/s (median"
                f" {median(rates):.0f}), first step after"
                f" {median(run['first'] for run in runs):.0f} ms"
            )
        stopped = page.evaluate(_RUN, [_spec(STOPPED, PRESETS[STOPPED].model), AFTER])
        print_line(f"{STOPPED}, stopped after {AFTER} steps: ended {stopped['stop']:.0f} ms later")


if __name__ == "__main__":
    script(engine_in_tab)
