"""The wheel holds what the installed program needs."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_wheel_in_a_fresh_venv_finds_its_sql(wheel: Path, tmp_path: Path) -> None:
    """Migrations and queries come with the wheel, numbered without a gap."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv/bin/python"
    install = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel]
    subprocess.run(install, check=True, capture_output=True)
    code = (
        "from headwatch_sql import migrations, queries\n"
        "numbers = [number for number, _ in migrations()]\n"
        "assert numbers == list(range(1, len(numbers) + 1)) and numbers, numbers\n"
        "assert b'insert into file' in queries('apply')['add_files']\n"
    )
    subprocess.run([python, "-I", "-c", code], check=True, cwd=tmp_path)


def test_wheel_holds_every_data_file(wheel: Path) -> None:
    """Each file of the three packages that git knows is in the wheel."""
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "daemon", "indexer", "sql"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    packed = set(zipfile.ZipFile(wheel).namelist())
    missing = [path for path in listed if path.partition("/")[2] not in packed]
    assert not missing


def test_wheel_says_its_command_and_licence(wheel: Path) -> None:
    """`headwatch` is the console script; the licence travels along."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        points = next(name for name in names if name.endswith("entry_points.txt"))
        assert "headwatch = headwatch.cli:main" in archive.read(points).decode()
    assert any(name.endswith("LICENSE") for name in names)
