"""Page of photographs: the steps of each, the problems found and their remedies."""
import base64
import collections
import os

from data_prep.core import files, records
from data_prep.photos.folder import GARMENT, KINDS, PERSON, Row
from pipelines.reporting import pages

NAME = 'photos.html'
MAX_SHOWN = 60  # photographs on the page, 100 KB each; those that look wrong are shown first
TITLES = {PERSON: 'People', GARMENT: 'Garments'}
_GRADES = 'bad', 'wrong', 'warn', 'good'
_WORDS = dict(zip(_GRADES, ('cannot be used', 'will look wrong', 'check it', 'looks right')))


def write(rows: list[Row], folder: str) -> str:
    """Write the page into the folder of the rows; return its path."""
    shown = sorted(rows, key=lambda row: (not row.wrong, not row.findings))[:MAX_SHOWN]
    groups = [(TITLES[kind], [_card(row, folder) for row in shown if row.kind == kind])
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
    if row.wrong:
        return 'wrong'
    return 'warn' if row.findings else 'good'


def _card(row: Row, folder: str) -> dict:
    steps = [(title, _uri(os.path.join(folder, path))) for title, path in row.steps.items()]
    return {'row': row, 'grade': _grade(row), 'steps': steps}


def _uri(path: str) -> str:
    return f'data:image/jpeg;base64,{base64.b64encode(files.read(path, 0, -1)).decode()}'
