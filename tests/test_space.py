"""Pushing to a Space: to a real git remote with LFS, on this machine. The repository itself needs
no git-lfs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from worlds.pyodide import engine_files_here

ROOT = Path(__file__).parents[1]
WEIGHTS = "assets/models/shakespeare-char/model.safetensors"

pytestmark = pytest.mark.skipif(
    shutil.which("git-lfs") is None or not (ROOT / ".git").exists(),
    reason="wants git-lfs, and a clone of the repository",
)


@pytest.fixture
def git(tmp_path: Path):
    """git with an identity and settings of its own."""
    (tmp_path / "home").mkdir()
    who = {
        f"GIT_{role}_{what}": "someone@example.org"
        for role in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    environment = {**os.environ, **who, "HOME": str(tmp_path / "home"), "GIT_CONFIG_NOSYSTEM": "1"}
    environment |= {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
    }

    def run(*command: str | Path, **more: str) -> str:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment | more, cwd=ROOT
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.mark.slow
def test_what_is_pushed_to_a_space_is_under_lfs_and_comes_back_whole(git, tmp_path: Path) -> None:
    remote, clone = tmp_path / "space.git", tmp_path / "clone"
    git("git", "init", "-q", "--bare", "-b", "main", remote)
    assert "files are under LFS" in git(ROOT / ".ci" / "space", f"file://{remote}")
    pointer = git("git", "-C", remote, "show", f"main:{WEIGHTS}")
    own = subprocess.run(
        ["git", "show", f"HEAD:{WEIGHTS}"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    assert (
        pointer.startswith("version https://git-lfs")
        and f"sha256:{hashlib.sha256(own).hexdigest()}" in pointer
    )
    changes = git(
        "git", "-C", remote, "diff", "--numstat", "4b825dc642cb6eb9a060e54bf8d69288fbee4904", "main"
    )
    assert not [line for line in changes.splitlines() if line.startswith("-")], (
        "what is no text is under LFS"
    )
    git("git", "clone", "-q", f"file://{remote}", clone, GIT_LFS_SKIP_SMUDGE="1")
    git("git", "-C", clone, "lfs", "install", "--local")
    git("git", "-C", clone, "lfs", "pull")
    assert (clone / WEIGHTS).read_bytes() == own
    assert "already" in git(ROOT / ".ci" / "space", f"file://{remote}")


@pytest.mark.slow
def test_a_static_space_gets_the_site_and_the_engine_that_runs_in_its_visitors_tabs(
    git, tmp_path: Path
) -> None:
    engine_files_here()
    remote = tmp_path / "space.git"
    git("git", "init", "-q", "--bare", "-b", "main", remote)
    assert "files are under LFS" in git(ROOT / ".ci" / "space", "--static", f"file://{remote}")
    pushed = git("git", "-C", remote, "ls-tree", "-r", "--name-only", "main").splitlines()
    engine = {Path(name).name for name in pushed if name.startswith("engine/")}
    assert {
        "manifest.json",
        "worker.js",
        "pyodide.asm.wasm.gz",
        "sources.json.gz",
        "weights.gz",
    } <= engine
    assert {"index.html", "watch.html"} <= set(pushed) and "app.py" not in pushed
    assert "sdk: static" in git("git", "-C", remote, "show", "main:README.md")
    assert "already" in git(ROOT / ".ci" / "space", "--static", f"file://{remote}"), (
        "the same sources give the same site"
    )


def test_a_clone_of_the_repository_needs_no_lfs(git) -> None:
    filters = {
        line.rsplit(" ", 1)[1]
        for line in git(
            "git", "check-attr", "filter", *git("git", "ls-files").splitlines()
        ).splitlines()
    }
    assert filters == {"unspecified"}
