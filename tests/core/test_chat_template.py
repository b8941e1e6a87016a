"""Chat templates are programs of whoever made a model: they write what transformers lets them
write, in a process of their own, within bounds.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tokenizers.processors import TemplateProcessing

from core.errors import InvalidRequest, Unavailable
from core.workload import chat, template
from core.workload.chat import chat_ids, chat_text
from core.workload.template import TemplateProcess
from worlds import own_models
from worlds.serving import MODEL, char_engine, served

ROOT = Path(__file__).resolve().parents[2]
MESSAGES = [
    {"role": "system", "content": "  Be <brief> & 'kind'.\n"},
    {"role": "user", "content": 'Wie heißt "😀"?\r\n', "name": "Eve"},
    {"role": "assistant", "content": "{{ 1 }}"},
    {"role": "user", "content": "and again"},
]
CHAT_ML = """\
{%- if messages[0].role != 'system' %}
    {{- '<|im_start|>system\\nYou help.<|im_end|>\\n' }}
{%- endif %}
{% for message in messages %}
    {% if message.role == 'assistant' %}{% generation %}{{ message.content | trim }}{% endgeneration %}
    {% continue %}
    {% endif %}
{{ '<|im_start|>' + message.role }}
{{ message.content + eos_token }}
{% endfor %}
{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}
"""  # noqa: E501
WRITES = {
    "own": own_models.CHAT,
    "chat-ml": CHAT_ML,
    "json": "{{ messages | tojson }}{{ messages | tojson(indent=2, sort_keys=true) }}{{ tools }}",
    "unescaped": "{{ messages[0]['content'] }}{{ '<b>' | e }}{{ bos_token is defined }}",
    "names": "{% set n = namespace(a=1, self=2) %}{% set n.a = 3 %}{{ n.a }}{{ dict(b=n.self) }}"
    "{{ dict.fromkeys(['c'], 4) }}{{ documents is none }}{{ unheard_of }}",
    "date": "{{ strftime_now('%Y') }}",
}
REFUSES = {
    "raise_exception": "{{ raise_exception('Roles must alternate: see the docs') }}",
    "syntax": "{% for %}",
    "underscore": "{% set n = namespace() %}{% set n.__class__ = 1 %}",
    "attribute": "{{ messages.__class__.__mro__ }}{{ ''.__class__() }}",
    "changed": "{{ messages.append(1) }}",
    "range": "{% for i in range(10**9) %}{% endfor %}",
    "missing": "{{ messages[0].nothing.more }}",
}
LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
PASSES = {
    "takes more than 256 MiB": "{% set a = 'x' * 10**9 %}{{ messages[0].content }}",
    "writes more than 4,000,000 characters": (
        "{% for i in range(99999) %}{{ 'x' * 999 }}{% endfor %}"
    ),
}


@pytest.fixture
def words():
    """A tokenizer whose template a test sets."""
    return own_models.tokenizer()


def by_transformers(tokenizer) -> str:
    return tokenizer.apply_chat_template(MESSAGES, add_generation_prompt=True, tokenize=False)


def test_special_tokens_are_those_of_the_template_alone(words):
    """The tokenizer puts one before every text, and so does the template of such a model."""
    name, *_ = words.all_special_tokens
    start = words.convert_tokens_to_ids(name)
    words.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{name} $A", special_tokens=[(name, start)]
    )
    assert list(words("a").input_ids)[:1] == [start]
    found = chat_ids(words, f"{name}a")
    assert found.count(start) == 1 and found[0] == start


@pytest.mark.parametrize("name", WRITES)
def test_a_template_writes_what_transformers_lets_it_write(words, name):
    words.chat_template = WRITES[name]
    assert chat_text(words, MESSAGES) == by_transformers(words) != ""


def test_of_several_templates_the_default_one_writes(words):
    words.chat_template = {"default": WRITES["own"], "tool_use": "tools"}
    assert chat_text(words, MESSAGES) == by_transformers(words)
    words.chat_template = {"rag": WRITES["own"]}
    with pytest.raises(InvalidRequest, match="no default"):
        chat_text(words, MESSAGES)


@pytest.mark.parametrize("name", REFUSES)
def test_a_template_refuses_what_transformers_has_it_refuse(words, name):
    words.chat_template = REFUSES[name]
    with pytest.raises(Exception) as found:
        by_transformers(words)
    with pytest.raises(InvalidRequest) as told:
        chat_text(words, MESSAGES)
    assert str(found.value).split(". ")[0].rstrip(".") in str(told.value)


@pytest.mark.parametrize("why", PASSES)
@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded on Linux")
def test_a_template_that_takes_too_much_is_refused_and_the_next_one_is_not(words, why):
    words.chat_template = PASSES[why]
    with pytest.raises(InvalidRequest, match=f"the model's chat template {why}"):
        chat_text(words, MESSAGES)
    words.chat_template = WRITES["own"]
    assert chat_text(words, MESSAGES) == by_transformers(words)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded on Linux")
def test_a_template_that_has_passed_a_bound_is_not_run_for_a_while(monkeypatch):
    """But one that has written a text is not blamed for a conversation."""
    now, asked = [1000.0], []
    monkeypatch.setattr(template.time, "monotonic", lambda: now[0])
    templates = TemplateProcess()
    ask = templates._ask
    monkeypatch.setattr(templates, "_ask", lambda line: asked.append(line) or ask(line))

    def runs(source: str, what: str = "much") -> int:
        """How often it is run for a text that it does not write."""
        before = len(asked)
        with pytest.raises(InvalidRequest, match="chat template takes more than 256 MiB"):
            templates.text(source, {"what": what})
        return len(asked) - before

    too_much = "{% set a = 'x' * 10**9 %}"
    at_times = f"{{% if what == 'much' %}}{too_much}{{% endif %}}{{{{ what }}}}"
    assert templates.text(at_times, {"what": "little"}) == "little"
    assert [runs(too_much), runs(too_much), runs(at_times), runs(at_times)] == [1, 0, 1, 1]
    assert templates.text(at_times, {"what": "little"}) == "little"
    now[0] += 61
    assert [runs(too_much), runs(too_much)] == [1, 0]
    monkeypatch.setattr(templates, "_ask", lambda line: {"exceeds": "takes more than 256 MiB"})
    for number in range(200):
        runs(f"{{# {number} #}}")
    assert len(templates._refused) == template._KNOWN
    templates.end()


@pytest.mark.slow
def test_a_template_without_an_end_keeps_a_server_only_for_a_while():
    engine = char_engine()
    engine.tokenizer = own_models.tokenizer()
    engine.tokenizer.chat_template = LOOP
    with served(engine) as running:
        told = running.post("/v1/chat/completions", {"model": MODEL, "messages": MESSAGES})
        assert told.status_code == 400
        assert "chat template takes longer than 2 s." in told.json()["error"]["message"]
        assert running.serving.num_requests == 0
        answer = running.post("/generate", {"prompt": "to", "max_tokens": 1})
        assert "chat template" not in answer.text


def test_one_process_is_kept_and_one_that_was_ended_is_started_again(words):
    words.chat_template = WRITES["own"]
    text = chat_text(words, MESSAGES)
    first = chat._TEMPLATES._process.pid
    assert chat_text(words, MESSAGES) == text and chat._TEMPLATES._process.pid == first
    os.kill(first, signal.SIGKILL)
    chat._TEMPLATES._process.wait()
    assert chat_text(words, MESSAGES) == text and chat._TEMPLATES._process.pid != first


def test_each_of_many_threads_gets_the_text_of_its_own_messages(words):
    words.chat_template = WRITES["own"]
    texts: dict[int, str] = {}

    def ask(number: int) -> None:
        texts[number] = chat_text(words, [{"role": "user", "content": f"number {number}"}])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {n: f"<|user|>number {n}<|end|><|assistant|>" for n in range(20)}


def test_where_no_process_can_be_started_it_says_so(words, monkeypatch):
    words.chat_template = WRITES["own"]
    chat._TEMPLATES.end()
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(Unavailable, match="No such file or directory"):
        chat_text(words, MESSAGES)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_process_ends_with_the_one_that_started_it_however_that_ends():
    starts = (
        "import os, signal; from core.workload.template import TemplateProcess;"
        "made = TemplateProcess(); made.text('a', {}); print(made._process.pid, flush=True);"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    ran = subprocess.run([sys.executable, "-c", starts], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == -signal.SIGKILL
    own = Path("/proc", ran.stdout.strip(), "stat")
    while own.exists() and own.read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z":
        pass
