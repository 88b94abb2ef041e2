"""A real git repository in a folder of the test, untouched by the developer's own git settings."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

ISOLATED = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}


@dataclass(frozen=True, slots=True)
class Worktree:
    """A checkout; `git` runs in it, paths are relative to it."""

    root: Path

    @classmethod
    def init(cls, root: Path, *options: str) -> Worktree:
        """Make a repository on branch main; options go to `git init`."""
        root.mkdir(parents=True, exist_ok=True)
        worktree = cls(root)
        worktree.git("init", "--quiet", "-b", "main", *options)
        for name, value in (("user.name", "A"), ("user.email", "a@example.org"), ("commit.gpgsign", "false")):
            worktree.git("config", name, value)
        return worktree

    def git(self, *args: str | bytes | Path, stdin: bytes | None = None) -> str:
        """Run git here and return what it printed, without the last newline; raises if it fails."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        done = subprocess.run(
            ["git", *args],
            cwd=self.root,
            env=environment | ISOLATED,
            input=b"" if stdin is None else stdin,
            capture_output=True,
        )
        if done.returncode != 0:
            raise AssertionError(f"git {args!r} failed: {done.stderr.decode(errors='replace')}")
        return os.fsdecode(done.stdout).removesuffix("\n")

    def write(self, path: str | bytes, content: str | bytes) -> None:
        """Write a file, with the folders above it."""
        full = self._full(path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)

    def delete(self, path: str | bytes) -> None:
        """Remove a file."""
        os.remove(self._full(path))

    def commit(self, message: str) -> str:
        """Commit everything as it is on disk, also nothing, and return the commit's id."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--no-verify", "-m", message)
        return self.git("rev-parse", "HEAD")

    def _full(self, path: str | bytes) -> bytes:
        return os.path.join(os.fsencode(self.root), os.fsencode(path))
