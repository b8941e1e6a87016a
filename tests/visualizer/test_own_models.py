"""Models that somebody brings: at home any folder, foreseen before it is loaded; on a public page
only those that its owner names, whatever is sent.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from core.config import BUILTIN_MODELS
from core.torch_engine.models.names import model_named
from visualizer.jobs.limits import HERE, Refused, checked_model
from visualizer.server.limits import SPACE, limits, owners_models
from worlds.own_models import alibi, pickled, save, spec, truncated
from worlds.page_server import ROOT, begin, call, last_of, run, serve
from worlds.visitors import spec as small


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("own models")  # with a blank in its name
    for family in ("qwen3", "gemma3_text", "gpt_oss"):
        save(root / family, family)
    save(root / "chat", "llama", chat=True)
    return root


def look(http, url: str, model: object, **asked) -> dict:
    return call(http, url, "model", {"model": str(model), **asked})


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        (' "/a/b" ', "/a/b"),
        ("'/a b/'", "/a b"),
        ("Qwen/Qwen3", "Qwen/Qwen3"),
        ("~", str(Path.home())),
        ("x", "x"),
        ("./m/../n", "./n"),
        ("../m/", "../m"),
    ],
)
def test_a_name_as_people_paste_it(typed, name):
    assert model_named(typed) == name


def test_the_owner_names_models():
    assert owners_models("") == BUILTIN_MODELS
    assert owners_models(" Qwen/Q , ,~/m,Qwen/Q") == (
        *BUILTIN_MODELS,
        "Qwen/Q",
        str(Path.home() / "m"),
    )
    assert limits({"SPACE_ID": "x", "INFLIGHT_MODELS": "a/b"}).offered == (*BUILTIN_MODELS, "a/b")
    assert checked_model("a/b", "auto", limits({"SPACE_ID": "x", "INFLIGHT_MODELS": "a/b"})) == (
        "a/b",
        "auto",
    )
    with pytest.raises(Refused, match="number format"):
        checked_model(BUILTIN_MODELS[0], "bfloat16", SPACE)
    for name in ("", "  ", '""', "a\0b", "x" * 2000):
        with pytest.raises(Refused):
            checked_model(name, "auto", HERE)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", ["qwen3", "gemma3_text", "gpt_oss"])
def test_a_folder_is_foreseen_and_run(http, page_url, folders, family, dtype):
    """What was foreseen is what the run's header says."""
    asked = {"device": "cpu", "dtype": dtype}
    foreseen = look(http, page_url, f'"{folders / family}"', **asked)
    assert (
        foreseen["name"] == str(folders / family)
        and foreseen["dtype"] == dtype
        and foreseen["stored"] == ["float32"]
    )
    deltas = list(run(http, page_url, spec(folders / family, dtype=dtype), f"{family} {dtype}"))
    header = next(d["header"] for d in deltas if "header" in d)
    model = header["model"]
    assert (model["name"], header["dtype"]) == (foreseen["name"], dtype) and deltas[-1]["url"]
    assert [
        model[k] for k in ("parameters", "layers", "context", "kv_bytes_per_token", "vocab_size")
    ] == [
        foreseen[k] for k in ("parameters", "layers", "context", "kv_bytes_per_token", "vocab_size")
    ]
    assert look(http, page_url, folders / family, **asked)["loaded"]
    pieces = call(http, page_url, "attention", deltas[-1]["id"], 0, 0, 0, 0)["segments"]
    assert pieces and all(
        abs(sum(row) - 1) < 0.02 or family == "gpt_oss" for s in pieces for row in s["weights"]
    )


@pytest.mark.slow
def test_what_cannot_be_run_is_said_before_and_changes_nothing(http, page_url, folders, tmp_path):
    (tmp_path / "empty").mkdir()
    expected = {
        alibi(tmp_path / "alibi"): "it adds ALiBi",
        pickled(tmp_path / "pickled", folders / "chat"): "a pickle",
        truncated(tmp_path / "cut", folders / "chat"): "cut short",
        tmp_path / "empty": "no config.json",
        tmp_path / "nowhere": "no such folder",
    }
    for folder, words in expected.items():
        for refusal in (
            look(http, page_url, folder),
            last_of(run(http, page_url, spec(folder), "me")),
        ):
            assert words in refusal["error"] and refusal["error"].count(". ") == 0, folder
    assert last_of(run(http, page_url, small(), "me"))["url"]


def test_a_model_without_a_tokenizer_takes_token_ids(http, page_url, tmp_path):
    folder = save(tmp_path / "bare", "llama", with_tokenizer=False)
    assert not look(http, page_url, folder)["has_tokenizer"]
    assert "needs a tokenizer" in last_of(run(http, page_url, spec(folder), "me"))["error"]
    asked = spec(folder)
    asked["workload"]["requests"] = [
        {"id": "r0", "prompt_token_ids": [5, 6, 7], "sampling": {"max_new_tokens": 3}, "arrival": 0}
    ]
    assert last_of(run(http, page_url, asked, "me"))["url"]


@pytest.mark.slow
def test_messages_become_the_tokens_of_the_template(http, page_url, folders):
    assert look(http, page_url, folders / "chat")["has_chat_template"]
    asked = spec(folders / "chat")
    talk = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "To be?"}]
    asked["workload"]["requests"][0].pop("prompt")
    asked["workload"]["requests"][0]["messages"] = talk
    trace = http.get(f"{page_url}/{last_of(run(http, page_url, asked, 'me'))['url']}").json()
    texts = trace["texts"]["prompt"]
    assert "".join(texts["r0"]) == "<|system|>Be brief.<|end|><|user|>To be?<|end|><|assistant|>"
    assert "".join(texts["r1"]) == "O Romeo, what light"
    for kind, more in (
        ("leak", {}),
        ("fork", {"knob": "max_num_seqs", "value": 1}),
        ("compare", {"policies": ["static"], "repeats": 1}),
    ):
        assert last_of(run(http, page_url, {**asked, **more}, "me", kind=kind)).get("url"), kind
    for broken in (
        [],
        [{"role": "god", "content": "x"}],
        [{"role": "user", "content": ""}],
        "x",
        [{"role": "user", "content": "x", "y": 1}],
    ):
        asked["workload"]["requests"][0]["messages"] = broken
        assert last_of(run(http, page_url, asked, "me"))["error"].startswith("Request A: ")
    asked["workload"]["requests"][0]["messages"] = talk
    assert (
        "has no chat template"
        in last_of(run(http, page_url, {**asked, "model": "shakespeare-bpe"}, "me"))["error"]
    )


# -- a public page ---------------------------------------------------------------------------------


def _attempts(folder: Path) -> list[str]:
    here = str(folder)
    return [
        here,
        f"{here}/",
        f'"{here}"',
        "~",
        "..",
        "/etc",
        "/no/such",
        "nobody/nothing",
        "gpt2",
        "file://" + here,
        " shakespeare-bpe",
        "SHAKESPEARE-BPE",
        str(ROOT / "assets" / "models" / "shakespeare-bpe"),
        "../models/shakespeare-bpe",
        "",
        "\0",
        "x" * 5000,
    ]


@pytest.mark.slow
def test_a_visitor_cannot_make_a_public_page_look_for_a_model(http, space_url, folders):
    """However it is asked for, and whether or not it is there: the answer is the same, so nothing
    is learned about the disk either.
    """
    said = set()
    for name in _attempts(folders / "chat"):
        said.add(look(http, space_url, name)["error"])
        for kind, more in (
            ("run", {}),
            ("leak", {}),
            ("fork", {"knob": "max_num_seqs", "value": 1}),
            ("equivalence", {}),
            ("compare", {"policies": ["static"]}),
        ):
            said.add(begin(http, space_url, kind, {**spec(name), **more}, "attacker")["error"])
        said.add(
            http.post(
                f"{space_url}/inflight/datasets",
                params={"name": "a.csv", "model": name},
                content="x",
            )
            .json()["error"]
            .split(": ", 1)[1]
        )
    assert len(said) == 1 and said.pop().startswith("This page runs its own models only: ")
    assert (
        "runs its own models only" in begin(http, space_url, "run", spec(folders / "chat"))["error"]
    )
    for asked in (
        {"model": ["x"]},
        {"model": None},
        {"model": {"a": 1}},
        {},
        {"model": "shakespeare-bpe", "dtype": "bfloat16"},
        {"model": "shakespeare-bpe", "device": 7},
    ):
        assert "error" in call(http, space_url, "model", asked)
    assert look(http, space_url, "shakespeare-bpe")["parameters"]


@pytest.mark.slow
def test_a_file_cannot_make_a_public_page_read_a_folder(http, page_url, space_url, folders):
    """A recording of another engine that names a folder with a tokenizer, and a trace whose
    attention weights are asked for.
    """
    raw = gzip.decompress(
        (ROOT / "tests" / "data" / "vllm-0.32.raw.jsonl.gz").read_bytes()
    ).decode()
    first, rest = raw.split("\n", 1)

    def texts(url: str, model: object) -> object:
        named = json.dumps({**json.loads(first), "model": str(model)}) + "\n" + rest
        opened = http.post(
            f"{url}/inflight/uploads", params={"name": "a.raw.jsonl"}, content=named.encode()
        ).json()
        return http.get(f"{url}/{opened['url']}").json()["texts"]

    unread = texts(space_url, "nobody/nothing")
    assert texts(page_url, folders / "chat") != unread == texts(space_url, folders / "chat")
    mine = last_of(run(http, page_url, spec(folders / "chat"), "me"))
    saved = call(http, page_url, "export", "jsonl", mine["id"], None)
    trace = http.get(f"{page_url}/{saved['url']}").content
    opened = http.post(
        f"{space_url}/inflight/uploads", params={"name": "a.jsonl"}, content=trace
    ).json()
    assert call(http, space_url, "attention", opened["id"], 0, 0, 0, 0) == {
        "error": "Attention weights are shown for this page's own models only."
    }


@pytest.mark.slow  # it starts a page of its own
def test_visitors_of_a_space_choose_what_its_owner_names(http, folders):
    with serve(
        SPACE_ID="someone/inflight", INFLIGHT_MODELS=f"{folders / 'chat'}, {folders / 'qwen3'}"
    ) as url:
        state = http.get(f"{url}/inflight/state").json()
        assert (
            state["models"] == [*BUILTIN_MODELS, str(folders / "chat"), str(folders / "qwen3")]
            and not state["any_model"]
        )
        assert look(http, url, folders / "chat")["has_chat_template"]
        done = last_of(run(http, url, spec(folders / "chat"), "a visitor"))
        assert done["url"] and call(http, url, "attention", done["id"], 0, 0, 0, 0)["segments"]
        assert "own models only" in look(http, url, folders / "gpt_oss")["error"]
        assert "own models only" in look(http, url, f"{folders / 'chat'}/../gpt_oss")["error"]


@pytest.mark.slow  # as above
def test_a_wrong_model_on_the_command_line_is_refused_at_once(tmp_path):
    import subprocess
    import sys

    said = subprocess.run(
        [sys.executable, "app.py", "--model", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (
        said.returncode == 2
        and "there is no config.json in that folder" in said.stderr
        and "Traceback" not in said.stderr
    )


@pytest.mark.slow  # as above
def test_the_teacher_shares_another_model_and_viewers_see_which(http, folders):
    """On the stream that they have open; a wrong token and a wrong model change nothing."""
    token = {"x-teacher-token": "t" * 22}
    with serve(INFLIGHT_TEACHER_TOKEN="t" * 22) as url:

        def share(model: object, **headers: str) -> tuple[int, dict]:
            said = http.post(
                f"{url}/inflight/shared-model", json={"model": str(model)}, headers=headers
            )
            return said.status_code, said.json()

        def generated() -> str:
            answer = (
                http.post(f"{url}/serve/generate", json={"prompt": "To be", "max_tokens": 3})
                .raise_for_status()
                .json()
            )
            return answer["finish_reason"]

        assert generated() == "length"
        assert share(folders / "qwen3")[0] == 403 and share("/no/such", **token)[0] == 400
        assert (
            http.get(f"{url}/serve/health").json()["model"] == BUILTIN_MODELS[0]
            and generated() == "length"
        )
        assert share(folders / "qwen3", **token) == (200, {"model": str(folders / "qwen3")})
        assert generated() == "length"
        assert http.get(f"{url}/serve/health").json()["model"] == "qwen3"
        names = []
        with http.stream("GET", f"{url}/inflight/live/steps", params={"from": 0}) as viewed:
            for line in viewed.iter_lines():
                if line.startswith("data: "):
                    names += [
                        delta["header"]["model"]["name"]
                        for delta in json.loads(line[6:])
                        if "header" in delta
                    ]
                if "qwen3" in names:
                    break
