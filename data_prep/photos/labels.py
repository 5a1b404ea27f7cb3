"""Label maps of human parsers, translated by label names into `person.LABELS`.

LIP and CIHP have twenty labels each and differ in one: LIP's eleventh is jumpsuits, CIHP's is torso skin.
"""
import difflib

import numpy as np

from data_prep import UserError
from data_prep.people import person

MAPS = {
    'lip': tuple('jumpsuits' if label == 'torso skin' else label for label in person.LABELS),
    'atr': ('background', 'hat', 'hair', 'sunglasses', 'upper', 'skirt', 'pants', 'dress', 'belt', 'left shoe',
            'right shoe', 'face', 'left leg', 'right leg', 'left arm', 'right arm', 'bag', 'scarf'),
    'cihp': person.LABELS}
# Labels that CIHP lacks, and the label each becomes: a belt belongs to trousers; CIHP has no label for bags.
_REPLACEMENTS = {'jumpsuits': 'dress', 'belt': 'pants', 'bag': 'background'}
# Label maps that cannot be used, by number of labels: they do not separate what try-on needs.
_UNSUPPORTED = {7: 'Pascal-Person-Part', 19: 'CelebAMask-HQ', 21: 'Pascal VOC', 28: 'Goliath (Sapiens)', 59: 'MHP v2'}
_BY_COUNT = {20: 'lip', 18: 'atr'}  # default map by number of labels
FACE, TORSO_SKIN = person.LABELS.index('face'), person.LABELS.index('torso skin')


def choose(name: str, count: int, path: str) -> str:
    """Return the name of a parser's label map.

    Args:
      name: the user's choice, a key of `MAPS`; '' chooses by `count`.
      count: number of labels of the parser.
      path: of the parser, for messages.

    Raises:
      UserError: the map is unknown, or has another number of labels.
    """
    if name and name not in MAPS:
        close = difflib.get_close_matches(name, MAPS, n=1)
        raise UserError(f'--parser_labels {name}: not a label map. '
                        + (f'Did you mean {close[0]}?' if close else f'Choose one of {", ".join(MAPS)}.'))
    if name and count != len(MAPS[name]):
        raise UserError(f'--parser_labels {name}: the map has {len(MAPS[name])} labels, but {path} has {count}. Omit '
                        '--parser_labels, or name the map the parser was trained with.')
    if not name and count not in _BY_COUNT:
        what = f'{_UNSUPPORTED[count]}\'s {count} labels' if count in _UNSUPPORTED else f'{count} labels'
        raise UserError(f'--parser {path}: it has {what}; supported are the 20 of LIP and CIHP and the 18 of ATR. Give '
                        'a parser trained on one of these.')
    return name or _BY_COUNT[count]


def table(name: str) -> np.ndarray:
    """Return the index in `person.LABELS` of each label of a map: uint8 [labels]."""
    return np.array([person.LABELS.index(_REPLACEMENTS.get(label, label)) for label in MAPS[name]], np.uint8)


def with_neck(labels: np.ndarray, name: str, nose: np.ndarray, chin: np.ndarray) -> np.ndarray:
    """Relabel the neck as torso skin, as in CIHP and in the maps that VITON-HD was trained on.

    ATR labels the neck as face, so face pixels beyond the chin become torso skin. LIP labels it as background, which
    stays.

    Args:
      labels: uint8 [h, w], indices in `person.LABELS`.
      name: label map of the parser, a key of `MAPS`.
      nose, chin: [2], x and y in pixels.
    """
    if name != 'atr':
        return labels
    y, x = np.indices(labels.shape)
    down = chin - nose
    beyond = (x - chin[0]) * down[0] + (y - chin[1]) * down[1] > 0
    return np.where((labels == FACE) & beyond, np.uint8(TORSO_SKIN), labels)
