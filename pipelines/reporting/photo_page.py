"""The page of photographs: each step of each, what looks wrong, and what to do about it."""
import base64
import collections
import os

from data_prep.core import files, records
from data_prep.photos.folder import GARMENT, KINDS, PERSON, Row
from pipelines.reporting import pages

NAME = 'photos.html'
SHOWN = 60  # photographs with their pictures, 100 KB each; of more, those that look wrong come first
TITLES = {PERSON: 'People', GARMENT: 'Garments'}
_GRADES = 'bad', 'wrong', 'warn', 'good'
_WORDS = dict(zip(_GRADES, ('cannot be used', 'will look wrong', 'look at it', 'looks right')))


def write(rows: list[Row], folder: str) -> str:
    """Writes the page into the folder that the rows are of. Returns its path."""
    shown = sorted(rows, key=lambda row: (not row.wrong, not row.findings))[:SHOWN]
    groups = [(TITLES[kind], [_card(row, folder) for row in rows if row.kind == kind and row in shown])
              for kind in KINDS]
    counts = collections.Counter((row.kind, _grade(row)) for row in rows)
    page = pages.environment().get_template('photos.html.j2').render(
        groups=groups, left_out=len(rows) - len(shown), words=_WORDS,
        counts=[(TITLES[kind], [(grade, counts[kind, grade]) for grade in _GRADES if counts[kind, grade]])
                for kind in KINDS])
    path = os.path.join(folder, NAME)
    records.write_atomically(path, page.encode())
    return path


def _grade(row: Row) -> str:
    if not row.complete:
        return 'bad'
    return 'wrong' if row.wrong else 'warn' if row.findings else 'good'


def _card(row: Row, folder: str) -> dict:
    steps = [(title, _uri(os.path.join(folder, path))) for title, path in row.steps.items()]
    return {'row': row, 'grade': _grade(row), 'steps': steps}


def _uri(path: str) -> str:
    return f'data:image/jpeg;base64,{base64.b64encode(files.read(path, 0, -1)).decode()}'
