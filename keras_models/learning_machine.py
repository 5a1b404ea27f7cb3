"""The learning machine of 'Intelligent Machinery, A Heretical Theory' (Turing, about 1951).

Machines form a population: each is a row of every tensor, and all take a step at once. This module has the parts of a
machine, each below the passage it comes from; memory and tape are in `keras_models/turing`. Teaching
(`keras_models/school.py`) and games (`keras_models/turing/games`) are separate from the machine.
"""
import dataclasses
import math
import zlib
from typing import Literal, NamedTuple

import tensorflow as tf

from keras_models import ModelError
from keras_models.turing import games
from keras_models.turing.games.nim_language import LENGTH, with_word
from keras_models.turing.memory import HEARD, MOVED, NONE, PAIN, PLEASURE, SAID, Memory
from keras_models.turing.tape import Tape

MOST_BYTES = 4 * 2 ** 30  # the memories of a population
# The number that is mixed into the tags of each index.
CONDITION, WORD, RULE, OF_MOVES, OF_WORDS, THOUGHT = range(0, 300, 50)


@dataclasses.dataclass
class Config:
    """Construction of the machines.

    Attributes:
      game, options: the game they learn, and its parameters (`keras_models/turing/games`).
      machines: size of the population.
      memory: capacity of a machine in moments. Nothing is forgotten; a full memory is an error.
      cards: capacity of a machine's indexes in cards, one per feature it meets; full indexes are an error.
      looked_up: number of latest outcomes of a feature that count for a choice; all outcomes are remembered.
      tape: length of a machine's random tape in figures, as many 0 as 1; the tape is read in a circle.
      places: number of choices, from a machine's first, that can be faked.
      constancy: number of times that a condition must come with pleasure alone, or with pain alone, to stand for it.
      rule: `majority` is the crude rule, `learned` weighs indications by the machine's record; with `grows`, a machine
        changes from the first to the second when its record shows that the second is better.
      certainty: standard deviations by which the share of good outcomes must be higher where the second rule agreed
        with the first. With 8, machines of Nim change between lessons 175 and 300.
      combined: number of indexes a machine makes from features of its other indexes.
    """
    game: str = 'noughts'
    options: dict[str, int] = dataclasses.field(default_factory=dict)
    machines: int = 256
    memory: int = 4096
    cards: int = 16384
    looked_up: int = 16
    tape: int = 8192
    places: int = 16
    constancy: int = 3
    rule: Literal['majority', 'learned', 'grows'] = 'grows'
    certainty: float = 8.0
    combined: int = 0

    def __post_init__(self):
        if self.tape % 2:
            raise ValueError(f'tape is {self.tape}, which cannot hold as many 0 as 1; give an even number')
        if not 2 * self.constancy <= self.looked_up <= 30:
            raise ValueError(f'looked_up is {self.looked_up}; give 30 at most and twice constancy, '
                             f'{2 * self.constancy}, at least, or no condition can be constant')
        if self.combined > 2:
            raise ValueError(f'combined is {self.combined}; a machine has features for 2 such indexes at most')


class Thought(NamedTuple):
    """Result of looking up the present situation, for every choice and every index of situation and choice.

    Attributes:
      tags: int32 [n, A, J], the features looked up.
      good, bad: int32 [n, A, J], counts of good and bad outcomes among the latest moments of those features.
      crude, learned, votes: float32 [n, A], votes by the two rules, and by the rule that the machine uses.
    """
    tags: tf.Tensor
    good: tf.Tensor
    bad: tf.Tensor
    crude: tf.Tensor
    learned: tf.Tensor
    votes: tf.Tensor


class Machines(tf.Module):
    """A population of learning machines.

    `rows`, int32 [n], selects the machines of a call, each at most once. `jit` compiles thinking and finding cards by
    XLA. A whole lesson is not compiled, because XLA would copy all memories.

    Attributes:
      indexes: names of the J indexes of situation and move: the game's, that of words, and the combined ones.
      words: names of the indexes of situation and next word; their features have the same places in a moment.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.config, self.game, self.jit = config, games.make(config.game, config.options), False
        self.indexes = (*self.game.features, 'word', *(f'combined {n + 1}' for n in range(config.combined)))
        self.language = self.game.language
        self.words = (*self.language.features, 'remark and words') if self.language else ()
        self.conditions, several = len(self.game.conditions), max(len(self.indexes), len(self.words))
        self.features = self.conditions + 2  # the first place of situation and choice in a moment
        sizes = config.memory, config.cards, self.game.size, self.features + 2 * several
        if (bytes_ := config.machines * Memory.bytes(*sizes)) > MOST_BYTES:
            raise ModelError(f'model.machines, memory and cards: {config.machines:,} machines with '
                             f'{config.memory:,} moments and {config.cards:,} cards each need {bytes_ / 2 ** 30:.1f} '
                             'GiB; give fewer, so that they need 4 at most')
        self.memory = Memory(config.machines, *sizes, config.looked_up)
        self.tape = Tape(config.machines, config.tape, config.places)
        # The last word a machine heard; it is part of the situation until the machine acts.
        self.heard = tf.Variable(tf.fill([config.machines], NONE), trainable=False, name='heard')
        self.pair = tf.Variable(tf.fill([config.machines, config.combined, 2], NONE), trainable=False, name='pair')

    def _compiled(self, function, *args):
        return tf.function(function, autograph=False, jit_compile=True)(*args) if self.jit else function(*args)

    # "The machine would incorporate a memory … a list of all the statements that had been made to it or by it, and all
    # the moves it had made … in chronological order. Besides this straightforward memory there would be a number of
    # 'indexes of experiences' … giving the 'times' at which they had been used."

    def _remember(self, rows, kind: int, choice, scene, tags, active) -> None:
        tags = tf.where(active[:, None], tags, NONE)
        card = self._compiled(self.memory.places_for, rows, tags)
        self.memory.remember(rows, kind, choice, scene, tags, card, active)

    # "Whenever a choice has to be made as to what to do next, features of the present situation are looked up in the
    # indexes available, and the previous choice in the similar situations, and the outcome, good or bad, is discovered.
    # The new choice is made accordingly."

    def think(self, rows, board) -> Thought:
        """Look up a situation, int32 [n, P], with every move."""
        return self._compiled(self._think, rows, board)

    def _think(self, rows, board):
        keys = self.game.keys(board)  # [n, A, F]
        heard = tf.gather(self.heard, rows)[:, None]
        move = tf.range(self.game.moves)
        word = tf.where(heard >= 0, tag(OF_MOVES + keys.shape[2], mix(heard, move)), NONE)[..., None]
        tags = tf.concat([tag(OF_MOVES + tf.range(keys.shape[2]), keys), word], 2)
        return self._consider(rows, self._with_combined(rows, tags), OF_MOVES)

    def _consider(self, rows, tags, kind: int) -> Thought:
        """Look up features, int32 [n, A, J], and weigh the outcomes."""
        good, bad = self.memory.look_up(rows, tags)
        crude, learned = self.crude(good, bad), self.learned(rows, good, bad, kind)
        votes = {'majority': lambda: crude, 'learned': lambda: learned,
                 'grows': lambda: tf.where(self.grown(rows)[:, None], learned, crude)}[self.config.rule]()
        return Thought(tags, good, bad, crude, learned, votes)

    # "If some of the indications are favourable and some are unfavourable what is one to do? The answer to this will
    # probably differ from machine to machine and will also vary with its degree of education. At first probably some
    # quite crude rule will suffice, e.g. to do whichever has the greatest number of votes in its favour. At a very late
    # stage of education the whole question of procedure in such cases will probably have been investigated by the
    # machine itself, by means of some kind of index" of a memory that would "include important parts of the
    # configuration of the machine at each moment, or in other words it would begin to remember what its thoughts had
    # been."

    def crude(self, good, bad):
        """Return the majority of memories for each choice: good less bad outcomes, float32 [n, A]."""
        return tf.cast(tf.reduce_sum(good - bad, 2), tf.float32)

    def learned(self, rows, good, bad, kind: int):
        """Return the sum of each index's log odds of a good outcome, weighted by its odds of being right."""
        counts = *self.record(rows, good.shape[2], kind), good, bad
        right, wrong, good, bad = (tf.cast(count, tf.float32) for count in counts)
        odds = (2 * good + 1) / (2 * bad + 1)  # by Jeffreys's prior
        return tf.reduce_sum(tf.math.log(odds) * ((right + 1) / (wrong + 1))[:, None], 2)

    def record(self, rows, indexes: int, kind: int = OF_MOVES):
        """Return how often each index was right and wrong about the choices taken, int32 [n, indexes] each.

        Both are looked up in the index of thoughts, whose features are that an index spoke for a choice, or against it.
        """
        tags = tf.tile(tag(THOUGHT + kind + tf.range(indexes), [[0], [1]])[None], [tf.shape(rows)[0], 1, 1])
        good, bad = self.memory.count(rows, tags)  # [n, 2, J]
        return bad[:, 0] + good[:, 1], good[:, 0] + bad[:, 1]

    def _thoughts(self, good, bad, kind: int):
        """Return the features of a moment for `record`, int32 [n, J]."""
        said = tag(THOUGHT + kind + tf.range(good.shape[1]), tf.cast(good > bad, tf.int32))
        return tf.where(good == bad, NONE, said)

    def grown(self, rows):
        """Return whether machines have found the learned rule to be better, bool [n].

        The index of rules holds the outcomes of choices by the crude rule: those that the learned rule agreed with, and
        the others. A machine compares the two shares of good outcomes, by Laplace's rule of succession.
        """
        counts = self.memory.count(rows, tf.tile(tag(RULE, [[0, 1]]), [tf.shape(rows)[0], 1]))  # [n, 2] each
        good, bad = (tf.cast(count + 1, tf.float32) for count in counts)
        share, mean = good / (good + bad), tf.reduce_sum(good, 1) / tf.reduce_sum(good + bad, 1)
        deviation = tf.sqrt(mean * (1 - mean) * tf.reduce_sum(1 / (good + bad), 1))
        return share[:, 1] - share[:, 0] > self.config.certainty * deviation

    def _of_rule(self, thought: Thought, legal, choice):
        """Return the feature of a moment that `grown` looks up, int32 [n]: whether the learned rule agreed."""
        crude, learned = (tf.gather(favourites(votes, legal), choice, axis=1, batch_dims=1)
                          for votes in (thought.crude, thought.learned))
        return tf.where(crude, tag(RULE, tf.cast(learned, tf.int32)), NONE)

    # "New forms of index might be introduced on account of special features observed in the indexes already used."

    def combine(self, number: int) -> None:
        """Make index `number`, from 0, of every machine from two of its indexes, and enter all its memories.

        The two are the index with the best odds of being right, the exact situation excepted, and one of the next.
        """
        rows = tf.range(self.config.machines)
        right, wrong = (tf.cast(count + 1, tf.float32) for count in self.record(rows, len(self.indexes)))
        order = 1 + tf.math.top_k((right / wrong)[:, 1:len(self.game.features)], number + 2).indices
        pair = tf.stack([order[:, 0], order[:, number + 1]], 1)  # [n, 2]
        self.pair[:, number].assign(pair)
        place = len(self.game.features) + 1 + number
        self.memory.enter(rows, self.features + place, self.features + pair,
                          lambda first, second: tag(OF_MOVES + place, mix(first, second)))

    def _with_combined(self, rows, tags):
        """Return the features with those of the combined indexes appended, int32 [n, A, J]."""
        if not self.config.combined:
            return tags
        pair = tf.gather(self.pair, rows)
        first, second = (tf.gather(tags, tf.maximum(pair[..., side], 0), axis=2, batch_dims=1) for side in (0, 1))
        index = OF_MOVES + tags.shape[2] + tf.range(self.config.combined)  # two combined indexes may have one pair
        there = (pair[:, None, :, 0] >= 0) & (first >= 0) & (second >= 0)
        return tf.concat([tags, tf.where(there, tag(index, mix(first, second)), NONE)], 2)

    # "I suggest that there should be two keys which can be manipulated by the schoolmaster, and which represent the
    # ideas of pleasure and pain."

    def feel(self, rows, signal) -> None:
        """Give everything done since the last feeling its outcome: PLEASURE, PAIN or 0 for none, int32 [n]."""
        self.memory.feel(rows, signal)

    # "At later stages in education the machine would recognise certain other conditions as desirable owing to their
    # having been constantly associated in the past with pleasure, and likewise certain others as undesirable. Certain
    # expressions of anger on the part of the schoolmaster might … be recognised as so ominous that they could never be
    # overlooked."

    def recognise(self, rows, tags):
        """Return what conditions, int32 [n, C], have always come with: PAIN if any has, else PLEASURE, else 0.

        The conditions after the first are shared by several situations, so they must have come twice as often.
        """
        good, bad = self.memory.look_up(rows, tags)
        enough = good + bad >= self.config.constancy * tf.minimum(1 + tf.range(tags.shape[1]), 2)
        pain, pleasure = (tf.reduce_any(enough & (other == 0), 1) for other in (good, bad))
        return tf.where(pain, PAIN, tf.where(pleasure, PLEASURE, 0))

    # The actions of a machine.

    def move(self, rows, board, active):
        """Feel what a position stands for, choose a move and remember it; return the moves, int32 [n]."""
        conditions = tag(CONDITION + tf.range(self.conditions), self.game.condition_keys(board))
        self.feel(rows, tf.where(active, self.recognise(rows, conditions), 0))
        choice = self._choose(rows, self.think(rows, board), self.game.legal(board), active)
        self._act(rows, MOVED, OF_MOVES, choice, conditions, board, active)
        self._listen(rows, tf.where(active, NONE, tf.gather(self.heard, rows)))  # a remark holds for one action
        return choice[0]

    def _choose(self, rows, thought: Thought, legal, active):
        """Return the choice, int32 [n], and the parts of the thought that the machine remembers."""
        choice = self.tape.choose(rows, favourites(thought.votes, legal), active)
        parts = (tf.gather(part, choice, axis=1, batch_dims=1) for part in thought[:3])  # [n, J]
        return choice, self._of_rule(thought, legal, choice), *parts

    def _act(self, rows, kind: int, of: int, choice, conditions, board, active) -> None:
        choice, rule, tags, good, bad = choice
        several = (self.memory.places - self.features) // 2
        features = [tf.pad(part, [[0, 0], [0, several - part.shape[1]]], constant_values=NONE)
                    for part in (tags, self._thoughts(good, bad, of))]
        others = tf.stack([tf.fill(tf.shape(rows), NONE), rule], 1)
        self._remember(rows, kind, choice, board, tf.concat([conditions, others, *features], 1), active)

    def hear(self, rows, word, board, active) -> None:
        """Hear a word, int32 [n], in a position: feel what the word stands for and remember it."""
        tags = tag(WORD, word)[:, None]
        self.feel(rows, tf.where(active, self.recognise(rows, tags), 0))
        places = tf.range(self.memory.places)
        self._remember(rows, HEARD, word, board, tf.where(places == self.conditions, tags, NONE), active)
        self._listen(rows, tf.where(active, word, tf.gather(self.heard, rows)))

    def _listen(self, rows, word) -> None:
        self.heard.scatter_update(tf.IndexedSlices(word, rows))

    # "It also types out any remarks that it wishes to make", word by word: each is a choice.

    def say(self, rows, board, active):
        """Compose a statement about a position and remember it; return its words, int32 [n, LENGTH]."""
        said, none = tf.fill([tf.shape(rows)[0], LENGTH], NONE), tf.fill([tf.shape(rows)[0], self.conditions], NONE)
        for place in range(LENGTH):
            thought = self.word(rows, board, said)
            choice = self._choose(rows, thought, self.language.may_follow(said), active)
            self._act(rows, SAID, OF_WORDS, choice, none, board, active)
            said = with_word(said, place, choice[0])
        self._listen(rows, tf.where(active, NONE, tf.gather(self.heard, rows)))
        return said

    def word(self, rows, board, said) -> Thought:
        """Look up a situation and the words said so far, int32 [n, LENGTH], with every next word."""
        return self._compiled(self._word, rows, board, said)

    def _word(self, rows, board, said):
        keys, heard = self.language.keys(board, said), tf.gather(self.heard, rows)[:, None]
        remark = tf.where(heard >= 0, tag(OF_WORDS + keys.shape[2], mix(heard, keys[..., 0])), NONE)[..., None]
        tags = tf.concat([tag(OF_WORDS + tf.range(keys.shape[2]), keys), remark], 2)
        return self._consider(rows, tags, OF_WORDS)

    def word_number(self, word: str) -> int:
        """Return the number of a typed word: that of the language, or a hash of 30 bits, which two share by chance."""
        words = self.language.words if self.language else ()
        return words.index(word) if word in words else zlib.crc32(word.encode()) & 0x3FFFFFFF

    def written(self, word: int) -> str:
        """Return the text of a word's number; only words of the language are kept as text."""
        words = self.language.words if self.language else ()
        return words[word] if word < len(words) else f'word {word}'

    # "The mechanic who has constructed the machine … may put it back to one of its previous positions and ask the
    # schoolmaster to repeat his lessons from that point on."

    def put_back(self, rows, earlier: 'Machines') -> None:
        """Put machines into the state of the same rows of another population with the same construction."""
        n = self.config.machines
        for now, then in zip(self.variables, earlier.variables):
            if not tf.size(now):  # pairs of machines that combine nothing
                continue
            several = tf.concat([[n], [tf.size(then) // n]], 0)
            values = tf.tensor_scatter_nd_update(tf.reshape(now, several), rows[:, None],
                                                 tf.gather(tf.reshape(then, several), rows))
            now.assign(tf.reshape(values, now.shape))

    def alone(self, row: int) -> 'Machines':
        """Return one machine as a population of its own."""
        construction = {field.name: getattr(self.config, field.name) for field in dataclasses.fields(Config)}
        one = Machines(Config(**{**construction, 'machines': 1}))
        for own, all_ in zip(one.variables, self.variables):
            own.assign(tf.reshape(tf.reshape(all_, [self.config.machines, -1])[row], own.shape))
        return one


def favourites(votes, legal):
    """Return the legal choices with the most votes, bool [n, A]."""
    votes = tf.where(legal, votes, -math.inf)
    return legal & (votes == tf.reduce_max(votes, 1, keepdims=True))


def tag(index, key):
    """Return a feature of an index as one number, int32 of 31 bits: a hash, which two features share by chance."""
    return mix(tf.convert_to_tensor(key, tf.int32), index)


def mix(a, b):
    """Return one feature made of two, as `tag`."""
    # The constants are those of MurmurHash3's finaliser (Appleby), whose multiplications wrap around.
    x = tf.bitwise.bitwise_xor(a * -1640531535 + b, tf.bitwise.right_shift(a, 15))
    x = tf.bitwise.bitwise_xor(x, tf.bitwise.bitwise_and(tf.bitwise.right_shift(x, 16), 0xFFFF)) * -2048144789
    x = tf.bitwise.bitwise_xor(x, tf.bitwise.bitwise_and(tf.bitwise.right_shift(x, 13), 0x7FFFF)) * -1028477387
    return tf.bitwise.bitwise_and(x, 0x7FFFFFFF)
