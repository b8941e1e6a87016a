"""Writes the recorded runs and comparisons as a static site, which also opens from disk."""

import base64
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from core.config import ASSETS
from core.errors import InflightError
from core.trace.trace import Trace
from visualizer.documents.catalogue import LEAKS, RUNS, TRACES, recorded_ranks, recorded_runs
from visualizer.documents.comparison import RECORDED, document, load, recorded
from visualizer.documents.opening import opening
from visualizer.documents.replay import captions_in, ranks_captions_in, ranks_document, replay
from visualizer.jobs import offers
from visualizer.jobs.limits import IN_TAB
from visualizer.lessons.document import document as lessons_document
from visualizer.lessons.document import recorded as recorded_traces
from visualizer.lessons.document import runs_of_lessons
from visualizer.lessons.lessons import LESSONS
from visualizer.lessons.sheets import KINDS, plan, sheet
from visualizer.lessons.texts import LANGUAGES
from visualizer.page.bundle import PICTURE, inert_json, page_html
from visualizer.page.engine_files import ISOLATED, EngineFiles
from visualizer.page.figure import embed_html, figure_replay
from visualizer.page.one_file import lesson_html
from visualizer.page.story import FONTS, runs_of_story, story_html
from visualizer.page.tabs import (
    EDITOR,
    TABS,
    WRITE,
    packed_plotly,
    part,
    player_options,
    story_tab,
    tab_script,
)

_FIRST, _PLAYER = "index.html", "watch.html"
_LOADER = ASSETS / "site" / "runs.js"


def export_site(
    folder: Path,
    traces: Path = TRACES,
    comparisons: Path = RECORDED,
    url: str = "",
    engine: EngineFiles | None = None,
    docs: Path | None = None,
) -> Path:
    """Write the site; returns its first page. url: its future address, which previews of links need
    for their picture. engine: the engine for visitors' tabs. docs: the documents as built by `make
    docs`. Raises InflightError if nothing is recorded, there are no such documents, or the folder
    cannot be written.
    """
    if docs is not None and not (docs / "index.html").exists():
        raise InflightError(f"{docs} holds no documents; `make docs` builds them in build/docs.")
    runs = list(recorded_runs(traces))
    if not runs:
        raise InflightError("There are no recorded runs: make them with `make traces`.")
    try:
        catalogue = []
        for listed, path in runs:
            url_of_run = _brought(folder, f"runs/{path.stem}.js", replay(Trace.load(path)))
            catalogue.append(listed | {"url": url_of_run})
            leak = traces / f"{LEAKS.get(path.stem)}.jsonl"
            if leak.exists():
                leaking = replay(Trace.load(leak))
                catalogue[-1]["leak"] = _brought(folder, f"runs/{path.stem}-leak.js", leaking)
        for listed, ranks in recorded_ranks(traces):
            url_of_run = _brought(folder, f"runs/{listed['name']}.js", ranks_document(ranks))
            catalogue.append(listed | {"url": url_of_run})
        made = {"compare": _compare(folder, comparisons), "learn": _learn(folder, traces)}
        if engine is not None:
            made["write"] = _write(folder, engine.address)
        parts = {name: found for name, found in made.items() if found is not None}
        story = all((traces / f"{run}.jsonl").exists() for run in runs_of_story())
        tabs = [tab for tab in (*TABS, WRITE) if tab["name"] in {"watch", *parts}]
        if story:
            tabs.append({**story_tab(), "href": _FIRST})
        for found in parts.values():
            found["options"]["tabs"] = tabs
        (folder / "picture.png").write_bytes(PICTURE.read_bytes())
        options = player_options(catalogue, tabs if parts else [])
        if "compare" in parts:  # contenders have their own links
            options["comparisons"] = [
                {k: e[k] for k in ("name", "url")}
                for e in parts["compare"]["options"]["comparisons"]
            ]
        if (beginning := opening(comparisons)) is not None:
            options["opening"] = {"url": _brought(folder, "opening.js", beginning)}
        options["embed"] = "embed.html"
        if docs is not None:
            shutil.copytree(docs, folder / "docs", dirs_exist_ok=True)
            options["docs"] = "docs/index.html"
        if engine is not None:
            engine.write(folder)
            # hosts such as Netlify and Cloudflare Pages send what this file says
            sent = "".join(f"  {name}: {value}\n" for name, value in ISOLATED.items())
            (folder / "_headers").write_text(f"/*\n{sent}")
            offers = _brought(folder, "engine/offers.js", _offers(parts, engine))
            for given in (options, *(found["options"] for found in parts.values())):
                given |= engine.options | {"offers": offers}
            if "compare" in parts:  # a step's figure is made in the tab, too
                options["plotly"] = parts["compare"]["options"]["plotly"]
        picture = f"{url.rstrip('/')}/picture.png" if url else "picture.png"
        page = page_html(options, parts, picture)
        player = _PLAYER if story else _FIRST
        _write_loading(folder, player, page)
        if story:
            _story(folder, picture)
        _embed(folder, runs, player)
    except OSError as error:
        raise InflightError(f"{folder} cannot be written: {error.strerror}.") from None
    return folder / _FIRST


def _offers(parts: dict[str, dict[str, Any]], engine: EngineFiles) -> dict[str, Any]:
    """The choices of the engine in the tab, which the page shows before that engine is loaded."""
    limits, facts = replace(IN_TAB, offered=engine.models), engine.facts()
    listed = parts["compare"]["options"]["comparisons"] if "compare" in parts else []
    compared = offers.for_comparisons(limits, facts=facts) | {"recorded": listed, "note": ""}
    return {
        "inflight/state": offers.for_runs(limits, facts=facts),
        "inflight/comparisons": compared,
    }


def _story(folder: Path, picture: str) -> None:
    """Write the story in each language, with English as the first page."""
    pages = {
        language: _FIRST if language == "en" else f"story-{language}.html" for language in LANGUAGES
    }
    for language, name in pages.items():
        others = {code: f"{page}?lang={code}" for code, page in pages.items() if code != language}
        _written(folder, name, story_html(language, _PLAYER, others, picture, "fonts"))
    shutil.copytree(FONTS, folder / "fonts", dirs_exist_ok=True)


def _embed(folder: Path, runs: list[tuple[dict[str, Any], Path]], player: str) -> None:
    """Write the embeddable page and its runs."""
    urls: dict[str, dict[str, str]] = {}
    for listed, path in runs:
        trace, of = Trace.load(path, trusted=True), f"embed/{path.stem}"  # checked above
        urls[listed["name"]] = {
            language: _brought(folder, f"{of}-{language}.js", figure_replay(trace, language))
            for language in LANGUAGES
        }
    _write_loading(folder, "embed.html", embed_html(urls, player))


def _write_loading(folder: Path, url: str, page: str) -> None:
    """Write a page that loads data written by `_brought`."""
    loader = f"<script>\n{_LOADER.read_text(encoding='utf-8')}</script>\n</head>"
    _written(folder, url, page.replace("</head>", loader, 1))


def _compare(folder: Path, comparisons: Path) -> dict[str, Any] | None:
    """Write the Compare tab's files; returns its options, None without a comparison."""
    entries = recorded(comparisons)
    if not entries:
        return None
    listed = []
    for entry in entries:
        made = document(load(comparisons / entry["name"]))
        listed.append(entry | {"url": _brought(folder, f"compare/{entry['name']}.js", made)})
    plotly = _brought(folder, "compare/plotly.js", base64.b64encode(packed_plotly()).decode())
    return _tab(folder, "compare", {"server": False, "plotly": plotly, "comparisons": listed})


def _write(folder: Path, engine: str) -> dict[str, Any]:
    """Write the Write tab's files; returns its options for the page."""
    editor = _written(folder, f"write/{EDITOR.name}", EDITOR.read_text(encoding="utf-8"))
    return _tab(folder, "write", {"engine": engine, "codemirror": editor})


def _learn(folder: Path, traces: Path) -> dict[str, Any] | None:
    """Write the Learn tab's files; None if a run that the lessons use is not recorded."""
    if any(not (traces / f"{run}.jsonl").exists() for run in runs_of_lessons()):
        return None
    read = recorded_traces(traces)
    documents = {
        language: _brought(folder, f"learn/{language}.js", lessons_document(read, language))
        for language in LANGUAGES
    }
    plans = {f"plan-{language}": plan(read, language) for language in LANGUAGES}
    papers = {"": {n: _written(folder, f"learn/{n}.html", text) for n, text in plans.items()}}
    for lesson in (lesson.name for lesson in LESSONS):
        made = {f"{lesson}-{kind}": partial(sheet, lesson, kind, read) for kind in KINDS}
        made[f"inflight-{lesson}"] = partial(lesson_html, lesson, read)
        papers[lesson] = {
            f"{kind}-{language}": _written(folder, f"learn/{name}-{language}.html", make(language))
            for kind, (name, make) in zip((*KINDS, "offline"), made.items(), strict=True)
            for language in LANGUAGES
        }
    say = {
        run: partial(captions_in, read(run)) for run in RUNS if (traces / f"{run}.jsonl").exists()
    }
    say |= {
        listed["name"]: partial(ranks_captions_in, found)
        for listed, found in recorded_ranks(traces)
    }
    captions = {
        run: {
            language: _brought(folder, f"learn/{run}-{language}.js", tell(language))
            for language in LANGUAGES
            if language != "en"
        }
        for run, tell in say.items()
    }
    options = {"server": False, "documents": documents, "papers": papers, "captions": captions}
    return _tab(folder, "learn", options)


def _tab(folder: Path, name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Write a tab's script; returns the tab's options for the page."""
    return part(name, _written(folder, f"{name}/page.js", tab_script(name)), options)


def _brought(folder: Path, url: str, data: object) -> str:
    """Write data as a script, since a page on disk cannot fetch JSON; returns its address."""
    return _written(folder, url, f"inflightBring({inert_json(url)}, {inert_json(data)});\n")


def _written(folder: Path, url: str, text: str) -> str:
    """Write a file of the site; returns its address."""
    path = folder / url
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return url
