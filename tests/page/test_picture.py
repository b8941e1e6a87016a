"""The picture that is taken away is the page: twice its pixels, its fonts, what its fields say."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from visualizer.documents.replay import replay
from worlds.browser import seek, still

_DIFFERENT = """async (pictures) => {
    const read = async (data) => {
        const image = new Image();
        image.src = "data:image/png;base64," + data;
        await image.decode();
        const g = Object.assign(document.createElement("canvas"), { width: image.width, height: image.height }).getContext("2d");
        g.drawImage(image, 0, 0);
        return [image.width, image.height, g.getImageData(0, 0, image.width, image.height).data];
    };
    const [[w, h, a], [w2, h2, b]] = [await read(pictures[0]), await read(pictures[1])];
    let n = 0;
    for (let i = 0; i < a.length; i += 4) n += Math.abs(a[i] - b[i]) + Math.abs(a[i + 1] - b[i + 1]) + Math.abs(a[i + 2] - b[i + 2]) > 60;
    return [w, h, w2, h2, a.subarray(0, 4 * w).every((value, i) => value === b[i]), n / (w * h)];
}"""  # noqa: E501


@pytest.mark.parametrize("drawer", ["closed", "open"])
def test_the_picture_is_the_page(visit, traces, drawer):
    page = visit(replay=replay(traces["continuous"]), device_scale_factor=2)
    page.evaluate("inflight.intro.used()")
    seek(page, 6)
    if drawer == "open":  # it fades in
        page.evaluate("inflight.editor.drawer.hidden = false")
    page.mouse.move(3, 700)
    still(page)
    seen = page.screenshot()
    with page.expect_download() as download:
        page.evaluate("inflight.take('png')")
    assert download.value.suggested_filename.endswith("step-6.png")
    taken = Path(download.value.path()).read_bytes()
    *sizes, edge, share = page.evaluate(
        _DIFFERENT, [base64.b64encode(data).decode() for data in (seen, taken)]
    )
    assert sizes == [2880, 1800, 2880, 1800]
    assert edge, "there is a frame around it"
    # Another font changes one in twenty; words that Chromium sets one pixel lower, as it may from
    # its second picture on, one in a hundred, and two beside the form, which is full of words.
    assert share < 0.03, f"{share:.1%} of the pixels differ"
