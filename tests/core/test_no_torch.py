"""An engine without torch: in an interpreter that has the standard library and `core` alone,
simulated runs are saved, opened, checked, measured.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from core.policy import POLICIES

ROOT = Path(__file__).resolve().parents[2]
ALONE = """
import importlib.abc
import json
import sys
from pathlib import Path

class NothingElse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        if top != "core" and top not in sys.stdlib_module_names:
            raise ImportError(f"{name} is not of the standard library")

sys.meta_path.insert(0, NothingElse())

from core import EngineConfig, Trace, Workload, metrics
from core.engine.requests import validate_request
from core.errors import InvalidRequest
from core.proof.verify import verify
from core.simulate.fitted import fit_passes, measured
from core.simulate.roofline import Roofline
from core.simulate.engine import SimulatedEngine
from core.workload.presets import PRESETS

class Letters:  # a tokenizer in plain Python
    unk_token_id, unk_token = None, None

    def __call__(self, text, **options):
        return {"input_ids": [ord(letter) % 128 for letter in text]}

    def decode(self, ids, **options):
        return "".join(map(chr, ids))

def run(policy):
    preset = PRESETS["kv-pressure"]
    engine = SimulatedEngine(Roofline.named("h100", "124m"), preset.config.under(policy), Letters(), vocab_size=128)
    trace = engine.run(preset.workload)
    path = Path(sys.argv[1]) / f"{policy}.jsonl"
    trace.save(path)
    opened = Trace.load(path)
    verdict = verify(path.read_text().splitlines(), lambda name: None)
    numbers = metrics(opened)
    assert opened.outputs == trace.outputs and numbers["finished"] == len(preset.workload.requests)
    assert opened.mask(0).num_allowed and opened.frames
    assert fit_passes(measured(trace.events, 1), 1).base_s > 0
    try:
        validate_request(preset.workload.requests[0], trace.header.model, None, trace.header.config)
    except InvalidRequest as error:
        assert "needs a tokenizer" in str(error)
    assert verdict.not_replayed is None and verdict.num_steps == numbers["steps"]
    return numbers["steps"]

print(json.dumps({policy: run(policy) for policy in sys.argv[2:]}))
"""  # noqa: E501


@pytest.mark.slow
def test_a_simulated_engine_runs_is_checked_and_measured_with_the_standard_library_alone(
    tmp_path,
) -> None:
    policies = list(POLICIES)
    ran = subprocess.run(
        [sys.executable, "-c", ALONE, str(tmp_path), *policies],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert list(found) == policies
    assert found["static"] > found["continuous"] > 0


@pytest.mark.parametrize("name", ["torch", "transformers", "numpy"])
def test_importing_the_engine_imports_none_of(name: str) -> None:
    asks = (
        "import sys, core.engine.engine, core.simulate.engine, core.account.metrics;"
        f" print({name!r} in sys.modules)"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", asks], cwd=ROOT, capture_output=True, text=True
        ).stdout
        == "False\n"
    )
