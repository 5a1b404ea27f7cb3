"""The school of Turing's learning machines, the module that the pipelines use.

The machine is `learning_machine.py`; lessons and examinations are `turing/lessons.py`, the exported machine is
`turing/educated.py`, and the games are in `turing/games`.
"""
import dataclasses

import tensorflow as tf

from keras_models import ModelError, learning_machine
from keras_models.core import layers
from keras_models.learning_machine import Machines
from keras_models.turing import games
from keras_models.turing.lessons import Term, opponents

THROUGHPUT_UNIT = 'games'
TASKS = ('play',)
SERVING = SCORER = 'keras_models.turing.educated'
STAGE_OVERRIDES = {'train': 'educate'}  # the stage that takes another's place


@dataclasses.dataclass
class Config(learning_machine.Config):
    """The machines and their lessons.

    Attributes:
      game, options: those of the data by default.
      terms: terms in order, each with the fields of `lessons.Term`; the last one lasts until the end.
    """
    game: str | None = None  # type: ignore[assignment]
    options: dict[str, float] | None = None  # type: ignore[assignment]
    terms: list[dict[str, str | int]] = dataclasses.field(default_factory=lambda: [
        {'against': 'perfect', 'lessons': 800, 'drawn': 1}, {'against': 'random', 'lessons': 400}])

    def __post_init__(self):
        super().__post_init__()
        game = games.make(self.game or 'noughts', self.options or {})
        for number, term in enumerate(self.terms, 1):
            unknown = {*term} - {field.name for field in dataclasses.fields(Term)}
            if unknown or not {'against', 'lessons'} <= {*term}:
                raise ValueError(f'terms: number {number} has {", ".join(term)}; give against and lessons, and '
                                 'optionally won, drawn and lost')
            if term['against'] not in (known := (*opponents(game), 'each other')):
                raise ValueError(f'terms: {term["against"]!r} is not an opponent in this game; choose '
                                 f'{", ".join(known)}')
            lessons = term['lessons']
            if type(lessons) is not int or lessons < 1:
                raise ValueError(f'terms: lessons of number {number} is {lessons!r}; give 1 or more')
            for key in ('won', 'drawn', 'lost'):
                pressed = term.get(key, 0)
                if type(pressed) is not int or abs(pressed) > 1:
                    raise ValueError(f'terms: {key} of number {number} is {pressed!r}; give 1 for pleasure, '
                                     '-1 for pain or 0 for none')
        if not self.terms:
            raise ValueError('terms is empty; give at least one term of lessons')
        if self.machines % 2 and any(term['against'] == 'each other' for term in self.terms):
            raise ValueError(f'machines is {self.machines}, which cannot play each other in pairs; give an even number')

    def term(self, lesson: int) -> tuple[Term, int]:
        """Return the term of a lesson, counted from 0, and in its first lesson the number of earlier terms, else 0."""
        terms = [Term(**term) for term in self.terms]  # type: ignore[arg-type]
        before = 0
        while before < len(terms) - 1 and lesson >= terms[before].lessons:
            lesson -= terms[before].lessons
            before += 1
        return terms[before], 0 if lesson else before


class Register(tf.Module):
    """The school's record: the `degree` of education of each machine, float32 [machines], at the last examination."""

    def __init__(self, config: Config):
        super().__init__()
        self.degree = tf.Variable(tf.zeros([config.machines]), trainable=False, name='degree')


def build(config: Config) -> dict[str, tf.Module]:
    """Return a population, whose tapes are still empty, and its register."""
    return {'machines': Machines(config), 'register': Register(config)}


def parameters(config: Config) -> int:
    """Return how many numbers a population's memories, indexes and tapes hold."""
    return layers.count_params(Machines(config))


def check_game(config: Config, game: str, options: dict) -> None:
    """Raise ModelError unless the machines learn the game of the data set."""
    if games.make(game, options) != games.make(str(config.game), config.options):
        raise ModelError(f'model.game {config.game} with {config.options} is not the game of the data set, '
                         f'{game} with {options}; leave it out to take that one.')
