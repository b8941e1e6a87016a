"""What README, CONTRIBUTING and docs say is so: paths exist, versions agree, every command of
README runs.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from click import Context
from typer.main import get_group

import core
from core.cli import COMMANDS
from core.config import POLICIES
from core.workload.presets import PRESETS
from measure import files
from visualizer.__main__ import commands as program
from worlds.documented import IN_PYTHON, examples

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCS = sorted((ROOT / "docs").glob("*.md"))
# The same command at less cost: one round, small shapes, one short point of load.
CHEAPER = (
    (r"--repeats \d+", "--repeats 1"),
    (r"--preset six-questions", "--preset gpt2-six"),  # every preset that ships is run elsewhere
    (r"(python tests/measure/(?:speed|gpu)\.py\b.*)", r"\1 --quick"),
    (r"--rate auto", "--rate 8 --point-seconds 1"),
)


def commands(language: str = "bash") -> list[str]:
    """The lines of README's blocks of shell, and the commands in its prose, without what is said
    about them.
    """
    blocks = re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def lower_bounds(text: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w-]+)[>=]=([\d.]+)", text, re.MULTILINE))


def test_the_lowest_versions_are_the_lower_ends_of_the_ranges():
    run, test, lowest = (
        lower_bounds((ROOT / f"requirements{part}.txt").read_text(encoding="utf-8"))
        for part in ("", "-test", "-lowest")
    )
    wanted = run | test
    assert wanted.keys() == lowest.keys() and len(wanted) >= 8
    assert {name: (version + ".0.0").split(".")[:3] for name, version in wanted.items()} == {
        name: version.split(".") for name, version in lowest.items()
    }


def test_the_head_of_readme_is_what_a_space_can_read():
    """A thumbnail would have to be a URL."""
    head = dict(line.split(": ", 1) for line in README.split("---\n")[1].splitlines())
    assert (ROOT / head["app_file"]).is_file() and head.get("thumbnail", "https://").startswith(
        "https://"
    )
    assert len(head["short_description"]) <= 60


def test_the_changelog_knows_the_version():
    assert f"\n## {core.__version__}\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_table_of_policies_has_them_all():
    page = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
    table = page.split("\n## The policies that come with it\n")[1].split("\n\n")[0]
    assert re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE) == list(POLICIES)


def test_one_lowest_python():
    """As the package says it: for a Space, for CI, for the tools, and where `make` refuses an older
    one.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lowest = project["project"]["requires-python"].removeprefix(">=")
    said = re.findall(
        r'python[_-]version: "([\d.]+)"',
        README + (ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"),
    )
    said += re.findall(
        r"needs Python ([\d.]+) or later", (ROOT / "Makefile").read_text(encoding="utf-8")
    )
    said += re.findall(
        r"Python ([\d.]+) or later", README + (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    )
    tools = project["tool"]
    said += [tools["mypy"]["python_version"], tools["ruff"]["target-version"].replace("py3", "3.")]
    assert len(said) >= 8 and set(said) == {lowest}


def test_what_to_open_is_there():
    table = (
        (ROOT / "docs" / "architecture.md")
        .read_text(encoding="utf-8")
        .split("| To change | open |")[1]
        .split("\n\n")[0]
    )
    paths = [path for path in re.findall(r"`([\w./]+)`", table) if "/" in path]
    assert len(paths) > 10 and not [path for path in paths if not (ROOT / path).exists()]


@pytest.mark.slow
def test_every_file_is_listed_with_what_it_says_of_itself():
    assert files.PAGE.read_text(encoding="utf-8") == files.page(), (
        "python tests/measure/files.py writes it anew"
    )
    assert not [path for path, said in files.described() if not said.endswith((".", ":"))]


DOCUMENTS = [
    "README.md",
    "CONTRIBUTING.md",
    *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md"))),
]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if not link.startswith("http")]
    assert links or name.startswith("docs/")
    for link in links:
        file, _, section = link.partition("#")
        page = (ROOT / name).parent / file if file else ROOT / name
        assert page.exists(), link
        if section:
            titles = re.findall(r"^#+ (.*)", page.read_text(encoding="utf-8"), re.MULTILINE)
            assert section in {
                re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles
            }, link


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name.startswith("docs/")])
def test_paths_in_the_docs_exist(name):
    """A word in backticks or in a command is a path of the repository where it begins with one of
    its folders.
    """
    folders = "|".join(
        sorted(
            re.escape(path.name)
            for path in ROOT.iterdir()
            if path.is_dir() and path.name[0] not in "._"
        )
    )
    words = re.findall(
        rf"(?<![\w./-])(?:{folders}|\.ci)/[\w./*-]*\w/?", (ROOT / name).read_text(encoding="utf-8")
    )
    assert [word for word in words if not list(ROOT.glob(word))] == []


def test_readme_is_short_and_leads_to_every_document():
    assert len(README.splitlines()) <= 80 and "(docs/index.md)" in README
    site = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    listed = re.findall(r"[\w-]+\.md", str(site["nav"]))
    assert sorted(listed) == [path.name for path in DOCS]


def test_every_command_in_the_documents_exists():
    group = get_group(program)
    known = {
        name: {
            option
            for parameter in group.resolve_command(Context(group), [name])[1].params
            for option in (*parameter.opts, *parameter.secondary_opts)
        }
        for name in group.commands
    }
    said = [
        words.split("#")[0].split()
        for path in DOCS
        for block in re.findall(
            r"^```(?:sh|bash)\n(.*?)^```",
            path.read_text(encoding="utf-8"),
            re.MULTILINE | re.DOTALL,
        )
        for words in re.findall(r"python -m inflight ([a-z]+ [^|\n]*)", block)
    ]
    assert len(said) > 40
    for name, *words in said:
        if name != "page":  # its options are those of app.py
            options = {word.split("=")[0] for word in words if word.startswith("--")}
            assert name in known and options <= known[name], [name, *words]
    listed = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    ours = re.findall(
        r"^\| `([a-z-]+)", listed.partition("## The page's commands")[2], re.MULTILINE
    )
    assert set(ours) == known.keys() - COMMANDS.keys()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_command_of_the_readme_runs(tmp_path):
    """In a clean clone, in the order of reading, each at its cheapest. Of `make` only that the
    target is there: CI runs it.
    """
    clone = tmp_path / "clone"
    names = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    for name in names:
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, clone / name)
    # A comparison is recorded on a quiet machine alone.
    in_prose = re.findall(r"`(python -m inflight [^`]+)`", README)
    walked = [*commands(), *[command.replace("FOLDER", "site") for command in in_prose]]
    assert len([c for c in walked if c.startswith("python -m ")]) >= 5
    for command in walked:
        assert set(re.findall(r"--preset (\S+)", command)) <= PRESETS.keys()
        for pattern, cheaper in CHEAPER:
            command = re.sub(pattern, cheaper, command)
        words = shlex.split(command)
        if words[0] == "make":
            words.insert(1, "-n")
        assert words[0] in ("make", "python", "pip"), command
        if words[0] == "pip":
            continue  # tests/page/test_installed.py installs
        words[0] = sys.executable if words[0] == "python" else words[0]
        done = subprocess.run(words, cwd=clone, capture_output=True, text=True)
        if "gpu.py" in command and not torch.cuda.is_available():
            assert done.returncode == 2 and "needs a CUDA device" in done.stderr
            continue
        assert done.returncode == 0, f"{command}\n{done.stdout[-1500:]}{done.stderr[-1500:]}"


def test_what_readme_has_you_write_is_not_of_the_repository():
    written = [name for command in commands() for name in re.findall(r"--out (\S+)", command)]
    ignored = subprocess.run(
        ["git", "check-ignore", *written], cwd=ROOT, capture_output=True, text=True
    ).stdout.split()
    assert written == ignored != []


@pytest.mark.slow
def test_the_python_is_typed_for_its_readers(tmp_path):
    """Examples pass mypy as strictly as a reader may ask, and a name that is not there is a
    fault.
    """
    names = [f"page{number}.py" for number in range(len(IN_PYTHON))]
    for name, page in zip(names, IN_PYTHON, strict=True):
        (tmp_path / name).write_text(examples(page), encoding="utf-8")
    every = "".join(
        f"from inflight import {name} as {name}\n" for name in ("__version__", *core.__all__)
    )
    (tmp_path / "every.py").write_text(every, encoding="utf-8")
    wrong = (
        "from inflight import Engin",
        "import inflight; inflight.nonsense",
        'from inflight import Engine; Engine(1).run("a")',
    )
    (tmp_path / "wrong.py").write_text("\n".join(wrong), encoding="utf-8")
    told = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--no-site-packages",
            "--ignore-missing-imports",
            "--follow-imports=silent",
        ]
        + ["--cache-dir", str(tmp_path / "cache"), *names, "every.py", "wrong.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
    ).stdout
    assert [line.rpartition("[")[2] for line in told.splitlines()[:-1]] == [
        "attr-defined]",
        "attr-defined]",
        "arg-type]",
    ], told
