"""Run the project's lint rules on files outside the project."""
import json
import pathlib
import subprocess
import sys

from support.commands import ROOT


def ruff(folder: pathlib.Path) -> set[tuple[str, str]]:
    """Returns (file name without .py, code of a rule) for each line that a rule of pyproject.toml finds."""
    done = subprocess.run([sys.executable, '-m', 'ruff', 'check', '--no-cache', '--output-format', 'json',
                           '--config', ROOT / 'pyproject.toml', '.'], cwd=folder, capture_output=True)
    return {(pathlib.Path(each['filename']).stem, each['code']) for each in json.loads(done.stdout)}


def broken_contracts(folder: pathlib.Path) -> str:
    """Returns import-linter's report on the packages in a folder, checked against its own pyproject.toml."""
    code = 'from importlinter.cli import lint_imports_command as lint; lint(["--no-cache"])'
    return subprocess.run([sys.executable, '-c', code], cwd=folder, capture_output=True, text=True).stdout
