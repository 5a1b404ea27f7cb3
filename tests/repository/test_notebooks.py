"""The notebooks of examples/, run whole as a user would run them."""
import os
import pathlib

import nbclient
import nbformat
import pytest

from support.commands import ROOT

EXAMPLES = sorted((ROOT / 'examples').glob('*.ipynb'))
# What is printed where a notebook went as it says.
ENDS = {'translation': ['BLESSED: all thresholds are met', ' -> '], 'your_images': ['BLESSED: all thresholds are met'],
        'try_on': ['BLESSED: all thresholds are met', 'reconstruction.png']}


def texts(notebook) -> str:
    return '\n'.join(str(output.get('text') or output.get('data')) for cell in notebook.cells
                     for output in cell.get('outputs', []))


@pytest.mark.slow  # two to six minutes each: whole runs, which a reader starts as they stand
@pytest.mark.parametrize('path', [pytest.param(path, id=path.stem) for path in EXAMPLES])
def test_a_notebook_ends_as_it_says(path, tmp_path, monkeypatch):
    monkeypatch.setenv('PYTHONPATH', f'{ROOT}{os.pathsep}{os.environ.get("PYTHONPATH", "")}')
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=900, resources={'metadata': {'path': str(tmp_path)}}).execute()
    printed = texts(notebook)
    for words in ENDS[path.stem]:
        assert words in printed, printed[-3000:]
    images = [output for cell in notebook.cells for output in cell.get('outputs', [])
              if 'image/png' in output.get('data', {})]
    assert images, 'no picture was shown'


def test_notebooks_are_kept_without_outputs_and_name_no_folder_of_a_machine():
    assert {path.stem for path in EXAMPLES} == {*ENDS}
    for path in EXAMPLES:
        cells = nbformat.read(path, as_version=4).cells
        assert not any(cell.get('outputs') or cell.get('execution_count') for cell in cells), path
        assert not any(f'"{pathlib.Path.home()}' in cell.source for cell in cells), path
