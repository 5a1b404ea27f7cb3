"""Label maps of human parsers, by the names of their labels, as labels of LIP and CIHP in `person.LABELS`.

Both data sets have twenty labels, of which one differs: LIP's eleventh is jumpsuits, CIHP's is the skin of the torso.
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
# What is no label of CIHP, and the one it becomes: a belt holds trousers, and CIHP's people carry no bags.
_INSTEAD = {'jumpsuits': 'dress', 'belt': 'pants', 'bag': 'background'}
# Maps by their number of labels, without which a person cannot be told apart from what is worn.
_OTHERS = {7: 'Pascal-Person-Part', 19: 'CelebAMask-HQ', 21: 'Pascal VOC', 28: 'Goliath (Sapiens)', 59: 'MHP v2'}
_BY_COUNT = {20: 'lip', 18: 'atr'}  # where nothing is said
FACE, TORSO_SKIN = person.LABELS.index('face'), person.LABELS.index('torso skin')


def choose(name: str, count: int, path: str) -> str:
    """The name of the map that a parser with `count` labels has; `name` is what the user says, or ''.

    Raises:
      UserError: it is none that is known here.
    """
    if name and name not in MAPS:
        close = difflib.get_close_matches(name, MAPS, n=1)
        raise UserError(f'--parser_labels {name}: not a label map. '
                        + (f'Did you mean {close[0]}?' if close else f'Known are {", ".join(MAPS)}.'))
    if name and count != len(MAPS[name]):
        raise UserError(f'--parser_labels {name}: it has {len(MAPS[name])} labels, and {path} gives {count}. Leave out '
                        '--parser_labels, or name the map the parser was trained with.')
    if not name and count not in _BY_COUNT:
        what = f'{_OTHERS[count]}\'s {count} labels' if count in _OTHERS else f'{count} labels'
        raise UserError(f'{path}: it gives {what}, and known are LIP\'s and CIHP\'s 20 and ATR\'s 18. Give a parser '
                        'trained on one of these.')
    return name or _BY_COUNT[count]


def table(name: str) -> np.ndarray:
    """What each label of a map is in `person.LABELS`: uint8."""
    return np.array([person.LABELS.index(_INSTEAD.get(label, label)) for label in MAPS[name]], np.uint8)


def with_neck(labels: np.ndarray, name: str, nose: np.ndarray, chin: np.ndarray) -> np.ndarray:
    """Labels in which the neck is skin of the torso, as in CIHP and in the maps that VITON-HD was trained on.

    ATR calls the neck face; what of the face lies beyond the chin becomes skin. LIP calls it background, and stays.

    Args:
      labels: uint8 [h, w], in the order of `person.LABELS`.
      name: of the map they were made by.
      nose, chin: [2], x and y in pixels.
    """
    if name != 'atr':
        return labels
    y, x = np.indices(labels.shape)
    down = chin - nose
    beyond = (x - chin[0]) * down[0] + (y - chin[1]) * down[1] > 0
    return np.where((labels == FACE) & beyond, np.uint8(TORSO_SKIN), labels)
