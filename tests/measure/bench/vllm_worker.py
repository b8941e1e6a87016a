"""vLLM in a process of its own, driven by lines of JSON; vLLM's own output is kept out of them.

The first line holds the arguments of `vllm.LLM`; the answer is `{"ready": version}` once the model
is loaded. Each line after that is a list of `[prompt ids, number of new tokens, ids that end the
answer]`, and the answer is `{"seconds": …, "outputs": [ids, …]}`: from the requests handed over to
the last token. Run by the Python of an environment that has vLLM and knows nothing of this project.
"""

import json
import os
import sys
import time
from typing import IO, Any


def run(llm: Any, work: list[tuple[list[int], int, list[int]]]) -> dict[str, Any]:
    """Answer these requests greedily from an empty engine."""
    from vllm import SamplingParams

    prompts = [{"prompt_token_ids": ids} for ids, *_ in work]
    params = [
        SamplingParams(
            temperature=0.0, max_tokens=new, ignore_eos=True, stop_token_ids=ends, detokenize=False
        )
        for _, new, ends in work
    ]
    started = time.perf_counter()
    answers = llm.generate(prompts, params, use_tqdm=False)
    seconds = time.perf_counter() - started
    return {
        "seconds": seconds,
        "outputs": [list(answer.outputs[0].token_ids) for answer in answers],
    }


def main(lines: IO[str], answers: IO[str]) -> None:
    """Load the model that the first line names, then answer line by line until the input ends."""

    def answer(data: dict[str, Any]) -> None:
        answers.write(json.dumps(data) + "\n")
        answers.flush()

    asked = json.loads(lines.readline())
    import vllm

    llm = vllm.LLM(**asked)
    answer({"ready": vllm.__version__})
    for line in lines:
        answer(run(llm, json.loads(line)))


if __name__ == "__main__":
    del sys.path[0]  # this folder, in which another module is called vllm
    written = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # everything that vLLM prints
    main(sys.stdin, written)
