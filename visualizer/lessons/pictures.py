"""Pictures for paper, as SVG readable in black and white: a run's lanes, a step's mask."""

from itertools import product
from xml.etree.ElementTree import Element, SubElement

from core.trace.events import Segment
from visualizer.charts.theme import HUES, deal, tint
from visualizer.lessons.facts import At
from visualizer.words.language import t

_CELL = 17
_LABEL = 46


def lanes_picture(at: At, blank_after: bool = False) -> Element:
    """Which request computed in which lane, up to a marked step. blank_after: later is blank."""
    events, hues = at.trace.events, deal(at.trace)
    cell = max(5.0, min(_CELL, 640 / len(events)))
    width, height = _LABEL + cell * len(events) + 4, 18 + _CELL * at.config.num_lanes + 6
    shapes = []
    for index, event in enumerate(events):
        x = _LABEL + index * cell
        if event.step % 5 == 0:
            shapes.append(_text(x, 11, str(event.step), 9))
        if blank_after and event.step > at.step:
            continue
        for forward in event.passes:
            for row in forward.finished_rows:
                shapes.append(_rect(x, 18 + row.lane * _CELL, cell, _CELL, "url(#pads)", "#999"))
        for segment in event.segments:
            shapes += _lane_cell(at, segment, x, cell, HUES[hues[segment.request]])
    for lane in range(at.config.num_lanes):
        shapes.append(_text(2, 18 + lane * _CELL + 12, t(f"lane {lane}"), 10))
        shapes.append(_rect(_LABEL, 18 + lane * _CELL, cell * len(events), _CELL, "none", "#bbb"))
    marked = next(i for i, e in enumerate(events) if e.step == at.step)
    line = f"M{_LABEL + (marked + 1) * cell:.1f} 14V{height - 4}"
    shapes.append(Element("path", {"d": line, "stroke": "#111", "stroke-width": "1.5"}))
    return _picture(width, height, shapes, f"{t('Lanes of the run')} “{at.trace.header.workload}”")


def mask_picture(at: At, blank: bool = False) -> Element:
    """The mask of the step's last pass. blank: an empty grid to fill in by hand."""
    mask = at.trace.mask(at.step, len(at.event.passes) - 1)
    hues = deal(at.trace)
    rows, columns = len(mask.queries), len(mask.keys)
    cell = max(6.0, min(_CELL, 560 / max(1, columns)))
    shapes = []
    for q, k in product(range(rows), range(columns)):
        is_drawn = mask.allowed[q][k] and not blank
        fill = HUES[hues[mask.keys[k].request]] if is_drawn else "#fff"
        shapes.append(_rect(96 + k * cell, 64 + q * cell, cell, cell, fill, "#bbb"))
    if cell >= 10:
        for k, key in enumerate(mask.keys):
            turned = f"translate({96 + (k + 0.7) * cell:.1f} 60) rotate(-90)"
            shapes.append(_text(0, 0, _label(at, key.request, key.text), 9, turned))
        for q, query in enumerate(mask.queries):
            text = t("pad") if query.position is None else query.text
            shapes.append(_text(2, 64 + (q + 0.7) * cell, _label(at, query.request, text), 9))
    return _picture(
        100 + columns * cell, 68 + rows * cell, shapes, t(f"Attention mask of step {at.step}")
    )


def _lane_cell(at: At, segment: Segment, x: float, cell: float, hue: str) -> list[Element]:
    y = 18 + segment.lane * _CELL
    prefill = segment.phase == "prefill"
    shapes = [_rect(x, y, cell, _CELL, tint(hue) if prefill else hue, hue if prefill else "#fff")]
    if prefill and segment.start == 0:
        shapes.append(_text(x + 1.5, y + 12, at.letters[segment.request], 10, weight=700))
    return shapes


def _label(at: At, request: str, text: str) -> str:
    shown = text.replace("\n", "↵").strip()
    return f"{at.letters[request]} {shown[:9]}"


def _rect(x: float, y: float, width: float, height: float, fill: str, stroke: str) -> Element:
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "width": f"{width:.1f}", "height": f"{height:.1f}"}
    return Element("rect", {**place, "fill": fill, "stroke": stroke, "stroke-width": ".7"})


def _text(
    x: float, y: float, text: str, size: int, transform: str = "", weight: int = 400
) -> Element:
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}"}
    element = Element("text", {**place, "font-size": str(size), "font-weight": str(weight)})
    if transform:
        element.set("transform", transform)
    element.text = text
    return element


def _picture(width: float, height: float, shapes: list[Element], title: str) -> Element:
    """Shapes on a background, with the hatching of pads defined."""
    svg = Element(
        "svg",
        {
            "viewBox": f"0 0 {width:.0f} {height:.0f}",
            "style": f"max-width: {width:.0f}px",
            "role": "img",
            "aria-label": title,
        },
    )
    hatching = {
        "id": "pads",
        "width": "5",
        "height": "5",
        "patternUnits": "userSpaceOnUse",
        "patternTransform": "rotate(45)",
    }
    pattern = SubElement(SubElement(svg, "defs"), "pattern", hatching)
    SubElement(pattern, "rect", width="5", height="5", fill="#fff")
    SubElement(pattern, "path", {"d": "M0 0V5", "stroke": "#888", "stroke-width": "1.4"})
    svg.extend(shapes)
    return svg
