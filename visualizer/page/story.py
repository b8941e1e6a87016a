"""The story: an essay about recorded runs as one page, whose figures are players of those runs. It
needs no server once it is written.

The content of each section is defined in assets/story/story.toml, its texts in
assets/story/<language>.toml; each number in them is a fact of a recorded run, as in lessons
(`visualizer.lessons.texts`).
"""

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from html import escape
from typing import Any

from core.account.request_times import request_times
from core.config import ASSETS
from core.trace.events import StepEvent
from core.trace.phrases import letters
from core.trace.trace import Trace
from visualizer.charts.theme import deal
from visualizer.documents import hand
from visualizer.documents.comparison import COMPARISON, RECORDED, load
from visualizer.documents.replay import said as said_in
from visualizer.lessons.facts import (
    FACTS,
    GAINS,
    At,
    _json,
    best_seating,
    fact,
    measured_gains,
    recorded_run,
)
from visualizer.lessons.places import Place
from visualizer.lessons.texts import LANGUAGES, Span, evaluated, filled, number, plain
from visualizer.page.bundle import (
    PLAYER,
    _packed,
    figure_style,
    icon_link,
    inert_json,
    page_of,
    script,
)
from visualizer.page.figure import figure_replay, figure_words

FOLDER = ASSETS / "story"
ENTRY = "story/story.js"
FONTS = FOLDER / "fonts"
HERO = ("brief-static", "brief-continuous")
WORDS_A_MINUTE = 220


@cache
def sections() -> dict[str, dict[str, Any]]:
    """The content of each section, by name, in order."""
    return tomllib.loads((FOLDER / "story.toml").read_text(encoding="utf-8"))


@cache
def words(language: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / f"{language}.toml").read_text(encoding="utf-8"))


@cache
def minutes(language: str) -> int:
    """The reading time in minutes."""
    lead = words(language)["page"]["lead"]
    texts = [lead, *(text for name in sections() for text in words(language)[name].values())]
    return max(1, round(sum(len(text.split()) for text in texts) / WORDS_A_MINUTE))


def runs_of_story() -> set[str]:
    places = (
        place
        for spec in sections().values()
        for place in (spec["place"], *spec.get("places", {}).values())
    )
    return {
        *HERO,
        *(place.split()[0] for place in places),
        *(run for spec in sections().values() for run in spec.get("runs", ())),
    }


def at(place: str) -> At:
    """A place of a recorded run, for the facts in the texts."""
    return Place.of(place).at(recorded_run)


def said(template: str, place: str, places: Mapping[str, str], language: str) -> list[Span]:
    return filled(
        template, at(place), {name: at(there) for name, there in places.items()}, language
    )


def story_html(
    language: str = "en",
    player: str = "./",
    others: Mapping[str, str] | None = None,
    picture: str | None = None,
    fonts: str = "inflight/story",
) -> str:
    """The whole page. player: the address of the player; fonts: the address of the files of
    `FONTS`; others: the addresses of the story in other languages; picture: see `bundle.head`.
    """
    others = others or {code: f"story?lang={code}" for code in LANGUAGES if code != language}
    page = words(language)["page"]
    (other, address), *_ = others.items()
    place = "brief-continuous start"
    places = {"static": "brief-static start", "continuous": "brief-continuous start"}

    def told(name: str) -> list[Span]:
        return said(page[name], place, places, language)

    made = {name: _section(name, language, player) for name in sections()}
    enter = {"player": player, "here": language, "others": dict(others)}
    texts = {
        **{name.upper(): escape(page[name]) for name in ("title", "about", "skip", "contents")},
        **{name.upper(): _html(told(name), player) for name in ("lead", "hero", "close", "footer")},
        "LANGUAGE": language,
        "FIRST": next(iter(made)),
        "HEAD": (
            icon_link()
            + (f'<meta property="og:image" content="{escape(picture)}">' if picture else "")
        ),
        "OTHER": escape(address),
        "OTHER_CODE": other,
        "OTHER_NAME": escape(page["other"]),
        "PLAYER": escape(player),
        "PLAYER_NAME": escape(page["player"]),
        "KICKER": escape(page["kicker"].replace("{minutes}", str(minutes(language)))),
        "HERO_ALT": escape(plain(told("hero_alt"))),
        "KEYS": escape(page["keys"]),
        "LIST": "\n".join(
            f'<li><a href="#{name}"><i '
            f'aria-hidden="true"><i></i></i>{escape(words(language)[name]["title"])}</a></li>'
            for name in made
        ),
        "SECTIONS": "\n".join(made.values()),
        "DATA": inert_json(story_data(language, player)),
    }
    parts = {f"<!--{name}-->": text for name, text in texts.items()} | {
        "/*ENTER*/": (
            "window.inflightEnter ="
            f" {inert_json(enter)};\n{(PLAYER / 'story' / 'enter.js').read_text(encoding='utf-8')}"
        ),
        "/*STYLE*/": (
            figure_style() + _packed((PLAYER / "story" / "story.css",)).replace("FONTS", fonts)
        ),
        "/*SCRIPT*/": script(ENTRY),
    }
    return page_of(PLAYER / "story" / "story.html", parts)


def _section(name: str, language: str, player: str) -> str:
    spec, texts = sections()[name], words(language)[name]
    there = spec["place"], spec.get("places", {})
    beats = []
    for beat in spec["beats"]:
        text = f"<p>{_html(said(texts[beat['name']], *there, language), player, there[0])}</p>"
        guess = spec.get("guess", {})
        if guess.get("beat") == beat["name"]:
            text += _guess(guess, texts, there, language, player)
        beats.append(f'<div class="beat">{text}</div>')
    title = escape(texts["title"])
    return (
        f'<section class="scrolly" id="{name}"><div class="prose"><h2><a'
        f' href="#{name}">{title}</a></h2>\n'
        + "\n".join(beats)
        + f'</div><div class="fig"><p class="unseen">{escape(texts["claim"])}</p></div></section>'
    )


def _guess(
    guess: dict[str, Any],
    texts: dict[str, str],
    there: tuple[str, dict[str, str]],
    language: str,
    player: str,
) -> str:
    """A question with numbers to choose from, each with its comment."""
    found = {name: evaluated(guess[name], at(there[0]), {})[0] for name in guess.keys() - {"beat"}}
    chosen = "".join(
        f'<button type="button" data-says="{escape(texts[name])}"'
        f' aria-pressed="false">{number(n, language)}</button>'
        for n, name in sorted((n, name) for name, n in found.items() if isinstance(n, int))
    )
    ask = _html(said(texts["ask"], *there, language), player, there[0])
    return (
        f'<div class="ask"><p>{ask}</p><p class="guess">{chosen}</p><p class="verdict"'
        ' role="status"></p></div>'
    )


def _html(spans: list[Span], player: str, place: str = "") -> str:
    """Spans as HTML. place: where the letters of requests belong to."""
    hues = _hues(recorded_run(place.split()[0])) if place else {}
    made = []
    for span in spans:
        if isinstance(span, str):
            made.append(escape(span, quote=False))
        elif "r" in span:
            made.append(
                f'<span class="who" style="--h: var(--hue-{hues[span["r"]]}); --t:'
                f' var(--tint-{hues[span["r"]]})">{escape(span["r"])}</span>'
            )
        elif "n" in span:
            made.append(f'<span class="n">{escape(span["n"])}</span>')
        elif span["t"] == "player":
            made.append(f'<a href="{escape(player)}">{escape(span["s"])}</a>')
        else:
            made.append(f"<dfn>{escape(span['s'])}</dfn>")
    return "".join(made)


def _hues(trace: Trace) -> dict[str, int]:
    dealt, named = deal(trace), letters(trace)
    return {named[request]: hue for request, hue in dealt.items()}


# -- data of the figures ---------------------------------------------------------------------------


def story_data(language: str, player: str) -> dict[str, Any]:
    """For story.js: {"language", "words", "runs", "drawings", "sections", "hero", "again"}."""
    page = words(language)["page"]
    shown = {name: _figure(name, language, player) for name in sections()}
    run_of = {name: figure["figure"]["run"] for name, figure in shown.items()}
    asked = {run_of[name] for name, spec in sections().items() if "guess" in spec}
    runs = dict.fromkeys([*HERO, *filter(None, run_of.values())])
    return {
        "language": language,
        "words": figure_words(language, ENTRY),
        "runs": {
            run: figure_replay((_unasked if run in asked else recorded_run)(run), language)
            for run in runs
        },
        "drawings": {
            name: DRAWINGS[spec["drawing"]](spec)
            for name, spec in sections().items()
            if "drawing" in spec
        },
        "sections": shown,
        "hero": {"names": [page["waves"], page["continuous"]], "runs": HERO},
        "again": page["again"],
    }


def _unasked(run: str) -> Trace:
    """A run without the reasons for waiting, which the reader is asked for."""
    trace = recorded_run(run)
    events = [event._replace(waiting=event.waiting._replace(why=None)) for event in trace]
    return replace(trace, events=events)


def _figure(name: str, language: str, player: str) -> dict[str, Any]:
    spec, texts, page = sections()[name], words(language)[name], words(language)["page"]
    there = at(spec["place"])
    run = spec["place"].split()[0]
    source = page["recorded"].replace("{name}", ", ".join(spec.get("runs") or [run]))
    link = f"{player}#run={run}&step={there.step}"
    if spec.get("drawing") in ("cost", "worth"):
        shown = [c for c, _ in GAINS.values()] if spec["drawing"] == "worth" else [COMPARISON]
        source = page["measured"].replace("{name}", ", ".join(shown))
        link = f"{player}#part=compare&comparison={COMPARISON}"
    if spec.get("drawing") == "hand":
        source, link = page["decided"], ""

    def moment(rule: str) -> int:
        """How many steps are over at a step's end."""
        if rule == "nothing":
            return 0
        steps = [e.step for e in there.trace.events]
        return 1 + steps.index(Place(run, rule).step(there.trace))

    beats = [{key: value for key, value in beat.items() if key != "name"} for beat in spec["beats"]]
    for beat in beats:
        if "at" in beat:
            beat["at"] = list(map(moment, beat["at"]))
    figure = {
        "run": run if "views" in spec else None,
        "drawing": spec.get("drawing", ""),
        "views": spec.get("views", []),
        "claim": texts["claim"],
        "source": source,
        "link": link,
        "columns": len(recorded_run(spec["columns"]).events) if "columns" in spec else 0,
        # what a question asks for is not drawn before it happens
        "future": "guess" not in spec,
        "print": moment(spec.get("print", spec["place"].partition(" ")[2])) - 1,
    }
    return {"figure": figure, "beats": beats}


def _token(spec: dict[str, Any]) -> dict[str, Any]:
    there = at(spec["place"])
    prompt, output = _pieces(there.trace, there.request("B"))
    return {"prompt": prompt, "output": output, "hue": _hues(there.trace)["B"]}


def _pieces(trace: Trace, request: str) -> tuple[list[str], list[str]]:
    """The pieces of a prompt and its answer; those of the template and the end token are empty."""
    prompt, output = trace.texts.prompt[request], list(trace.texts.output[request])
    if messages := trace.asked[request].request.messages:
        prompt = [piece or "" for piece in said_in(prompt, messages)]
    if request_times(trace)[request].finish_reason == "stop":
        output[-1] = ""
    return prompt, output


def _cost(spec: dict[str, Any]) -> dict[str, Any]:
    there = at(spec["place"])
    trace, hues, named = there.trace, _hues(there.trace), letters(there.trace)
    seats = best_seating(recorded_run("brief-static"))
    order = []
    for request, tokens in trace.outputs.items():
        lane = next(n for n, seated in enumerate(seats) if request in seated)
        before = seats[lane][: seats[lane].index(request)]
        order.append(
            {
                "letter": named[request],
                "hue": hues[named[request]],
                "length": len(tokens),
                "lane": lane,
                "from": sum(len(trace.outputs[r]) for r in before),
            }
        )
    curve = [[int(tokens), round(ms, 4)] for tokens, ms in FACTS["pass_ms"](there).items()]
    return {"curve": curve, "weights": fact("model.parameters", there), "order": order}


def _fold(spec: dict[str, Any]) -> dict[str, Any]:
    there = at(spec["place"])
    hues, named = _hues(there.trace), there.letters
    forward = there.event.passes[-1]
    rows = [
        {
            "letter": named[s.request],
            "hue": hues[named[s.request]],
            "phase": s.phase,
            "pads": forward.width - s.length,
            "pieces": [*prompt, *output][s.start : s.kv_len],
        }
        for s in there.event.segments
        for prompt, output in [_pieces(there.trace, s.request)]
    ]
    steps = [
        [sum(p.tokens for p in e.passes), sum(p.padding for p in e.passes)]
        for e in there.trace.events
    ]
    return {
        "rows": rows,
        "width": forward.width,
        "steps": steps,
        "at": [e.step for e in there.trace.events].index(there.step),
    }


def _times(spec: dict[str, Any]) -> dict[str, Any]:
    there = at(spec["place"])
    request = there.event.admitted[0].request
    letter = there.letters[request]

    def drawn(e: StepEvent) -> list[float]:
        prefill = [s for s in e.segments if s.request == request and s.phase == "prefill"]
        lengths = (sum(s.length for s in part) for part in (e.segments, prefill))
        return [round((e.t_end - e.t_start) * 1e3, 3), *lengths]

    return {
        "runs": [{"steps": list(map(drawn, recorded_run(run)))} for run in spec["runs"]],
        "letter": letter,
        "hue": _hues(there.trace)[letter],
    }


def _worth(spec: dict[str, Any]) -> dict[str, Any]:
    compared = load(RECORDED / COMPARISON).comparison.runs
    measured = _json(f"comparisons/{COMPARISON}/comparison.json")
    lanes = []
    for policy in ("static", "continuous"):
        trace = compared[policy].trace
        assert trace is not None
        hues, named = _hues(trace), letters(trace)
        bars = []
        for request in trace.outputs:
            held = [(e, s) for e in trace.events for s in e.segments if s.request == request]
            (first, segment), (last, _) = held[0], held[-1]
            times, letter = (round(first.t_start, 4), round(last.t_end, 4)), named[request]
            bars.append([segment.lane, *times, letter, hues[letter]])
        seconds = round(measured["policies"][policy]["wall_s"]["median"], 4)
        lanes.append({"policy": policy, "seconds": seconds, "bars": bars})
    gains = [
        {"name": name, "times": static / ours, "least": least, "most": most}
        for name, (static, ours, least, most) in measured_gains().items()
    ]
    return {"lanes": lanes, "gains": gains}


DRAWINGS = {
    "token": _token,
    "cost": _cost,
    "hand": lambda spec: hand.shipped(),
    "fold": _fold,
    "times": _times,
    "worth": _worth,
}
