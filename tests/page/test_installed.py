"""The wheel in an environment of its own: one package, one command, the page with its assets. And
what app.py takes.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from visualizer.write.tasks import tasks
from worlds.documented import IN_PYTHON, examples
from worlds.page_server import ROOT, serve
from worlds.sites import some
from worlds.wrong_answers import RIGHT


def run(*command: str | Path, folder: Path, code: int = 0) -> subprocess.CompletedProcess:
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == code, done.stdout[-2000:] + done.stderr[-2000:]
    return done


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Path:
    """A fresh environment with the wheel of these sources, which finds torch and the rest here."""
    folder = tmp_path_factory.mktemp("installed")
    clone = folder / "clone"
    for name in run(
        "git", "ls-files", "-co", "--exclude-standard", folder=ROOT
    ).stdout.splitlines():
        if (ROOT / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, clone / name)
    run(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--wheel-dir",
        folder,
        clone,
        folder=folder,
    )
    (wheel,) = folder.glob("inflight-*.whl")
    venv.create(folder / "env")
    python = folder / "env" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python)
    run(*pip, "install", "--no-deps", "--no-index", wheel, folder=folder)
    own = run(
        python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=folder
    ).stdout.strip()
    (Path(own) / "here.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return folder


@pytest.mark.slow
def test_a_wheel_is_one_package_and_describes_itself(environment):
    (path,) = environment.glob("inflight-*.whl")
    with zipfile.ZipFile(path) as wheel:
        tops = {name.split("/")[0] for name in wheel.namelist()}
        (about,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
        description = wheel.read(about).decode().partition("\n\n")[2]
        assets = {name for name in wheel.namelist() if name.startswith("inflight/assets/")}
    assert tops == {"inflight", about.split("/")[0]}
    clone = environment / "clone"
    ours = [path for path in (clone / "assets").rglob("*") if path.name != "train.py"]
    assert assets == {f"inflight/{path.relative_to(clone)}" for path in ours if path.is_file()}
    assert description.startswith("# Inflight\n")


@pytest.mark.slow
def test_an_installed_package_runs_by_its_own_names(environment):
    python, inflight = (environment / "env" / "bin" / name for name in ("python", "inflight"))
    words = (
        "import inflight; print(inflight.__version__, inflight.Engine.__module__,"
        " inflight.core.config.ASSETS)"
    )
    version, module, assets = run(python, "-c", words, folder=environment).stdout.split()
    assert module.startswith("inflight.core.") and Path(assets).is_relative_to(environment / "env")
    assert (environment / f"inflight-{version}-py3-none-any.whl").exists()
    # nothing of ours beside other people's packages
    for package in ("core", "visualizer", "app"):
        assert (
            "ModuleNotFoundError"
            in run(python, "-c", f"import {package}", folder=environment, code=1).stderr
        )
    assert (Path(assets).parent / "py.typed").exists() and version in run(
        inflight, "--version", folder=environment
    ).stdout
    run(
        inflight,
        "run",
        "--preset",
        "chunk-7-by-4",
        "--out",
        "run.jsonl",
        "--html",
        "run.html",
        folder=environment,
    )
    assert "</html>" in (environment / "run.html").read_text(encoding="utf-8")
    run(inflight, "check", "run.jsonl", folder=environment)
    ran = run(
        inflight,
        "compare",
        "--preset",
        "chunk-7-by-4",
        "--policy",
        "static",
        "--policy",
        "continuous",
        "--repeats",
        "1",
        "--json",
        folder=environment,
    )
    assert json.loads(ran.stdout)["outputs_identical"] is True
    assert (
        "`inflight presets` lists the presets."
        in run(inflight, "run", folder=environment, code=2).stderr
    )
    grade = (inflight, "grade", "yours.py")
    assert "inflight grade" in run(*grade, "--start", folder=environment).stdout
    assert run(*grade, folder=environment, code=1).stdout.count("Not written yet") == 4
    (environment / "yours.py").write_text(RIGHT, encoding="utf-8")
    assert run(*grade, folder=environment).stdout.count("right.") == 4
    assert json.loads(run(*grade, "--json", "mask", folder=environment).stdout)["passed"] == 1
    for ours in ("inflight.visualizer", "visualizer"):
        code = f"from {ours}.write.schedulers import *\n"
        (environment / "yours.py").write_text(code, encoding="utf-8")
        said = run(*grade, folder=environment, code=1).stdout
        assert "of Inflight nothing can be imported here" in said
    # a policy as it is written in a clone
    (environment / "mine.py").write_text(tasks()["arrival"].code, encoding="utf-8")
    said = run(inflight, "grade", "mine.py", "arrival", folder=environment, code=1).stdout
    assert "Nobody joins before" in said and "fault" not in said
    code = tasks()["arrival"].code.replace("-request.num_prompt_tokens", "request.arrival_index")
    (environment / "mine.py").write_text(code, encoding="utf-8")
    run(inflight, "grade", "mine.py", "arrival", folder=environment)
    # the command would write all that ships, which takes long
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from inflight.visualizer.page.site import export_site\n"
        "export_site(*map(Path, sys.argv[1:]))"
    )
    run(python, "-c", code, "site", *some(environment, "chunk-7-by-4"), folder=environment)
    assert (environment / "site" / "index.html").exists()


@pytest.mark.slow
def test_the_python_of_the_documents_runs_there_and_is_typed(
    environment, tmp_path, monkeypatch, users_models
):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("INFLIGHT_MODELS_DIR", users_models)
    # All kernels would be compiled anew there, for a minute; other tests compute with them.
    script = "import sys; sys.modules['numba'] = None\n" + "\n".join(
        f"exec(compile({examples(name)!r}, {name!r}, 'exec'), {{'__name__': '__main__'}})"
        for name in IN_PYTHON
    )
    python = environment / "env" / "bin" / "python"
    run(python, "-c", script.replace("repeats=3", "repeats=1"), folder=tmp_path)
    assert {"run.jsonl", "steps.csv", "requests.html", "race.html"} <= {
        path.name for path in tmp_path.iterdir()
    }
    (tmp_path / "theirs.py").write_text(
        "from inflight import Engine,"
        " Trace\nreveal_type(Trace.load('a'))\nEngine.from_pretrained(3)\n"
    )
    (tmp_path / "mypy.ini").write_text(
        "[mypy]\nstrict = true\nfollow_imports = skip\n[mypy-inflight.*]\nfollow_imports = normal\n"
    )
    told = run(
        python, "-m", "mypy", "--config-file", "mypy.ini", "theirs.py", folder=tmp_path, code=1
    ).stdout
    assert (
        'Revealed type is "inflight.core.trace.trace.Trace"' in told
        and told.count("error:") == 1
        and "[arg-type]" in told
    )


@pytest.mark.slow
def test_the_page_opens_from_the_installed_package(environment, visit):
    with serve((str(environment / "env" / "bin" / "inflight"), "page"), environment) as url:
        page = visit(url, hash="run=kv-pressure&step=3")
        assert page.evaluate("[inflight.run.header.source, inflight.frame.event.step]") == [
            "recorded",
            3,
        ]


def test_the_app_says_what_it_takes_without_loading_anything():
    words = (
        "import runpy, sys; sys.argv = ['app.py', '--help']\ntry: runpy.run_path('app.py',"
        " run_name='__main__')\n"
    )
    words += (
        "except SystemExit: print('loaded', sorted({'torch', 'gradio', 'core'} & set(sys.modules)))"
    )
    said = run(sys.executable, "-c", words, folder=ROOT).stdout
    assert all(
        option in said for option in ("--host", "--port", "--share", "--root-path")
    ) and said.endswith("loaded []\n")


def test_a_port_that_is_taken_is_one_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run(sys.executable, "app.py", "--port", str(port), folder=ROOT, code=2)
    assert done.stderr == f"Port {port} is taken: choose another with --port.\n" and not done.stdout
    assert run(sys.executable, "app.py", "--port", "70000", folder=ROOT, code=2).stderr.startswith(
        "Port 70000 does not exist"
    )
    odd = run(sys.executable, "app.py", "--host", "a\nb", folder=ROOT, code=2).stderr
    assert odd.startswith("Cannot listen on 'a\\nb':7860: ") and odd.count("\n") == 1
