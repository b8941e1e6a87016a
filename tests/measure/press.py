"""`python tests/measure/press.py http://127.0.0.1:7860`: presses, types, resizes and goes back at
random on a page that runs, as no test does, and tells every error of a script, every word that is
none, and every page that scrolls sideways, each with the presses before it. Exit code 1 if there
was one.
"""

from __future__ import annotations

import random
import re
import sys
import time
from pathlib import Path
from typing import Annotated, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(1, str(Path(__file__).resolve().parents[1]))

import typer
from playwright.sync_api import Error, Page, sync_playwright

from measure import script
from worlds.browser import FLAGS, executable

NO_WORD = re.compile(r"\bundefined\b|\bNaN\b|\[object |\bInfinity\b|\{[a-z]+\}")
NAVIGATED = re.compile("Timeout|context was destroyed|ERR_ABORTED|interrupted|Not attached")
KEYS = "Space ArrowRight ArrowLeft ArrowUp ArrowDown Home End d t p l n f ? Escape Tab Enter 1 2 /"
TYPED = ("", "Why?", "<b>x</b>", "ü 漢字 🙂", "0", "-1", "1e9", "2.5", '{"a": 1}', "x" * 3000)
DESK, PHONE = ((1440, 900), (1280, 720), (768, 1024)), ((390, 844), (360, 740), (844, 390))
PLACES = ("part=learn", "part=compare", "part=live", "part=write", "run=kv-pressure", "run=nope")
WITHIN_REACH = """() => [...document.querySelectorAll(
    'button, a, [role=button], [role=gridcell], select, summary, input, canvas, td, textarea')]
  .flatMap((el) => {
    const box = el.getBoundingClientRect();
    const [x, y] = [box.x + box.width * Math.random(), box.y + box.height * Math.random()];
    const top = document.elementFromPoint(x, y);
    if (!top || !(el.contains(top) || top.contains(el)) || el.disabled || el.type === 'file' ||
      (el.tagName === 'A' && (el.target === '_blank' || el.host !== location.host))) return [];
    const name = (el.ariaLabel || el.textContent || el.className).trim().slice(0, 30);
    return [{ tag: el.tagName, writes: /^(text|number|search|password|textarea|)$/.test(el.type),
      name, x, y }];
  })"""
CHOOSE = """([x, y, share]) => {
  const select = document.elementFromPoint(x, y)?.closest('select');
  const options = [...(select?.options || [])].filter((one) => !one.disabled);
  if (!options.length) return;
  select.value = options[Math.floor(share * options.length)].value;
  select.dispatchEvent(new Event('change', { bubbles: true }));
}"""
WORDS = """() => {
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const words = [];
  while (walk.nextNode())
    if (!walk.currentNode.parentElement.closest('script, style, template, textarea, pre, code'))
      words.push(walk.currentNode.data.trim());
  return words;
}"""


def main(
    url: Annotated[str, typer.Argument(help="The page.")],
    seconds: Annotated[float, typer.Option(help="How long.")] = 240,
    seed: Annotated[int, typer.Option(help="The same seed begins with the same presses.")] = 0,
    phone: Annotated[bool, typer.Option(help="On a phone.")] = False,
    part: Annotated[str, typer.Option(help="The address to come back to, after the #.")] = "",
) -> None:
    """Press at random on a page that runs, and tell what goes wrong."""
    chance, trail, told = random.Random(seed), list[Any](), set[str]()

    def tell(what: str) -> None:
        if what[:120] not in told:
            told.add(what[:120])
            print(f"{what[:600]}\n    after {trail[-8:]}", flush=True)

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=executable(), args=FLAGS.split())
        page = browser.new_page(has_touch=phone)
        page.on("pageerror", lambda error: tell(f"{error} {error.stack}"))
        page.on("dialog", lambda dialog: tell(f"a dialog: {dialog.message}"))
        end, count = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            try:
                if count % 35 == 0 or not page.url.startswith(url):
                    page.goto(f"{url.rstrip('/')}/#{part}&lang={chance.choice(['en', 'de'])}")
                    page.wait_for_timeout(2000)
                trail.append(press(page, chance, PHONE if phone else DESK))
                page.wait_for_timeout(chance.choice([10, 60, 200]))
                for word in filter(NO_WORD.search, page.evaluate(WORDS)):
                    tell(f"no word: {word}")
                wider = page.evaluate("document.documentElement.scrollWidth - innerWidth")
                if wider > 2:
                    tell(f"scrolls sideways by {wider}: {page.url}")
            except Error as error:
                if not NAVIGATED.search(str(error)):
                    tell(str(error))
            count += 1
        browser.close()
    print(f"{count} presses with seed {seed}, {len(told)} found.")
    raise typer.Exit(bool(told))


def press(page: Page, chance: random.Random, sizes: tuple[tuple[int, int], ...]) -> Any:
    """Do one thing, and say what."""
    kind = chance.random()
    if kind < 0.65 and (within := page.evaluate(WITHIN_REACH)):
        one = chance.choice(within)
        if one["tag"] == "SELECT":
            page.evaluate(CHOOSE, [one["x"], one["y"], chance.random()])
        else:
            page.mouse.click(one["x"], one["y"], click_count=chance.choice([1, 1, 1, 1, 2]))
        if one["tag"] in ("INPUT", "TEXTAREA") and one["writes"]:
            page.keyboard.press("Control+A")
            page.keyboard.insert_text(chance.choice(TYPED))
        return one["tag"], one["name"]
    if kind < 0.85:
        key = chance.choice(KEYS.split())
        page.keyboard.press(key)
        return key
    if kind < 0.9:
        width, height = chance.choice(sizes)
        page.set_viewport_size({"width": width, "height": height})
        return width, height
    if kind < 0.93:
        page.mouse.wheel(0, chance.choice([-400, 400, 900]))
        return "wheel"
    if kind < 0.96:
        go = chance.choice([page.go_back, page.reload])
        go(timeout=5000)
        return go.__name__
    place = chance.choice(PLACES)
    page.evaluate("place => { location.hash = place; }", place)
    return place


if __name__ == "__main__":
    script(main)
