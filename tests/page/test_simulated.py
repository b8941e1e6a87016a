"""A simulated run on the page: marked as one, named after the model that it stands for, with what
its cost model assumes and no text that no model wrote.
"""

from __future__ import annotations

import pytest

from core import EngineConfig, Request, SamplingParams, Workload
from core.account.perfetto import chrome_trace
from core.simulate.cost import Cost, Load
from core.simulate.engine import TOKEN, SimulatedEngine
from core.simulate.fitted import Linear
from core.simulate.named import cost_named
from core.torch_engine.models.tokenizer import describe_model
from visualizer.documents.replay import translated_replay
from visualizer.page.step import step_page
from visualizer.words.language import catalogue
from worlds.browser import settled

ERROR = {
    "held_out_passes": 90,
    "folds": 5,
    "median": 0.021,
    "p90": 0.13,
    "total": -0.004,
    "worst": 0.1,
}
FITTED = Linear(
    0.010,
    0.001,
    1e-6,
    100,
    Load(8, 10_000),
    ERROR,
    {"model": {"name": "measured-one"}, "engine": "vLLM 0.32.0", "steps": 90},
)


def _drawn(cost: Cost) -> dict:
    sampling = SamplingParams(4, ignore_eos=True)
    requests = [
        Request(f"r{i}", prompt_token_ids=(5,) * (40 * (i + 1)), sampling=sampling)
        for i in range(3)
    ]
    return translated_replay(
        SimulatedEngine(cost, EngineConfig(max_num_seqs=2)).run(Workload(requests))
    )


SPEAK_GERMAN = "(words) => inflightModules['parts/speech.js'].speak({ name: 'de', words })"


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("cost", "where", "english", "german"),
    [
        (
            cost_named("h100x2:70b"),
            " · Llama 3.1 70B · SIMULATED H100X2",
            (
                "70.6 B parameters, float16\nDevice\nSIMULATED H100X2, 2 × NVIDIA H100 SXM 80"
                " GB\nCost model\nnothing was measured: times follow from the data sheet of NVIDIA"
                " H100 SXM 80 GB and the config of Llama 3.1 70B; assumed: 60 % of each peak number"
                " is reached, each pass takes 0.20 ms besides, 90 %"
            ),
            "Datenblatt von NVIDIA H100 SXM 80 GB",
        ),
        (
            FITTED,
            " · measured-one · SIMULATED CPU",
            (
                "fitted to 90 measured steps of vLLM 0.32.0; on steps left out of the fit it is off"
                " by 2.1 % (median), by 13 % for one in ten, and in total by -0.4 %"
            ),
            "um 2,1 % (Median) ab, bei einem von zehn um 13 %, und insgesamt um -0,4 %",
        ),
    ],
)
def test_what_the_times_rest_on_is_said(visit, cost, where, english, german):
    page = visit(replay=_drawn(cost))
    assert (
        page.text_content(".source .word") == "Simulated"
        and page.text_content(".source .rest") == where
    )
    page.click(".source")
    assert english in page.inner_text(".card[open]")
    page.keyboard.press("Escape")
    page.evaluate(SPEAK_GERMAN, catalogue("de"))
    page.click(".source")
    assert page.evaluate("[...inflight.speech.missingKeys]") == []
    assert german in page.inner_text(".card[open]")


@pytest.mark.parametrize("size", [(1440, 900), (1100, 800), (700, 900), "phone"], ids=str)
@pytest.mark.parametrize("detail", ["simple", "full"])
def test_every_line_with_a_time_of_it_says_that_it_is_simulated(visit, size, detail):
    page = visit(replay=_drawn(FITTED), size=size, detail=detail)
    said = page.evaluate(
        "[...document.querySelectorAll('#watch .totals, .totals, .lanes h3 > .key, .time-key')]"
        ".filter(line => line.checkVisibility()).map(line => line.textContent).filter(Boolean)"
    )
    assert all(line.startswith("Simulated") for line in said)
    assert said or (size, detail) == ("phone", "full")
    page.evaluate("inflight.pin(inflight.run.requests[0])")
    settled(page, "!document.querySelector('.request-card').hidden")
    assert "Simulated" in page.text_content(".card-name")
    assert page.title() == "Simulated · Inflight"
    with page.expect_download() as saved:
        page.evaluate("inflight.take('replay')")
    assert saved.value.suggested_filename.startswith("inflight-simulated-")


def test_files_of_it_say_so():
    run = SimulatedEngine(FITTED, EngineConfig(max_num_seqs=2)).run(
        Workload([Request("r0", prompt_token_ids=(5, 6), sampling=SamplingParams(4))])
    )
    assert chrome_trace(run)["traceEvents"][0]["args"]["name"].startswith("simulated: ")
    page = step_page(run, 0)
    assert "<title>Inflight: step 0, simulated</title>" in page and "Simulated. Step 0:" in page


@pytest.mark.parametrize("detail", ["simple", "full"])
def test_what_no_model_wrote_is_nowhere(visit, detail):
    """The prompts are real, and shown; a made-up token is a dash."""
    tokenizer = describe_model("shakespeare-bpe").tokenizer
    made_up = tokenizer.decode([TOKEN.token_id])
    requests = [
        Request(f"r{i}", prompt="What is thy name?", sampling=SamplingParams(8, stop=(made_up,)))
        for i in range(3)
    ]
    engine = SimulatedEngine(FITTED, EngineConfig(max_num_seqs=2), tokenizer, vocab_size=2048)
    page = visit(replay=translated_replay(engine.run(Workload(requests))), detail=detail)
    assert len(made_up) > 5 and page.evaluate("inflight.run.length") == 16  # no stop string came
    for step, said in ((0, "What is thy name?—"), (3, "What is thy name? (simulated: no text) —")):
        page.evaluate(f"inflight.seekStep({step})")
        settled(page, f"document.querySelector('.texts').textContent.includes('{said}')")
        assert made_up not in page.evaluate("document.documentElement.outerHTML")
    assert set(page.evaluate("Object.values(inflight.run.texts.output).flat()")) == {""}
    assert page.evaluate("inflight.run.tokenText(inflight.run.requests[0], 12)") == "—"
    page.evaluate(SPEAK_GERMAN, catalogue("de"))
    settled(page, "document.querySelector('.texts').textContent.includes('(simuliert: kein Text)')")
    assert page.evaluate("[...inflight.speech.missingKeys]") == []
