"""The learning machine of 'Intelligent Machinery, A Heretical Theory' (Turing, about 1951).

A population of machines: one machine is a row of every tensor, and a step is taken by all of them at once. What a
machine is made of stands here part by part, each with the passage it comes from; its memory and its tape are in
`keras_models/turing`. How it is taught, and what a game is, it does not know (`keras_models/school.py`,
`keras_models/turing/games`).
"""
import dataclasses
import math
from typing import Literal, NamedTuple

import tensorflow as tf

from keras_models import ModelError
from keras_models.turing import games
from keras_models.turing.games.nim_language import LENGTH, with_word
from keras_models.turing.memory import HEARD, MOVED, NONE, PAIN, PLEASURE, SAID, Memory
from keras_models.turing.tape import Tape

MOST_BYTES = 4 * 2 ** 30  # of a population's memories
# Indexes by the number that is mixed into their tags.
CONDITION, WORD, RULE, OF_MOVES, OF_WORDS, THOUGHT = range(0, 300, 50)


@dataclasses.dataclass
class Config:
    """How the machines are built.

    Attributes:
      game, options: what they are taught, and its parameters (`keras_models/turing/games`).
      machines: in the population.
      memory: moments a machine has room for. It forgets nothing, and says so when the room is full.
      cards: a machine has for its indexes, one for every feature it meets; likewise.
      looked_up: the latest outcomes of a feature that count for a choice; all are remembered.
      tape: figures on a machine's random tape, whose ends are joined; half of them are 0.
      places: of choices, from a machine's first, that may be faked.
      constancy: how often a condition must have come with pleasure (or pain) and nothing else to be taken for it.
      rule: `majority` is the crude rule, `learned` weighs an indication by what came of such before; with `grows` a
        machine goes from the first to the second when it finds that it should.
      combined: indexes a machine makes for itself out of features of its others.
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
    combined: int = 0

    def __post_init__(self):
        if self.tape % 2:
            raise ValueError(f'tape is {self.tape}, which cannot bear as many 0 as 1; give an even number')
        if not 2 * self.constancy <= self.looked_up <= 30:
            raise ValueError(f'looked_up is {self.looked_up}; give 30 at most and twice constancy, '
                             f'{2 * self.constancy}, at least, or no condition could ever be constant')
        if self.combined > 2:
            raise ValueError(f'combined is {self.combined}; a machine has features for 2 such indexes at most')


class Thought(NamedTuple):
    """What looking up the present situation gave, for every choice and index of situation and choice.

    Attributes:
      tags: int32 [n, A, J], the features looked up.
      good, bad: int32 [n, A, J], how the latest moments of those features came out.
      crude, learned, votes: float32 [n, A], what the two rules make of them, and the one that the machine goes by.
    """
    tags: tf.Tensor
    good: tf.Tensor
    bad: tf.Tensor
    crude: tf.Tensor
    learned: tf.Tensor
    votes: tf.Tensor


class Machines(tf.Module):
    """A population. `rows` [n] int32 says which machines a call is about, each at most once.

    `jit` compiles thinking and finding cards by XLA. A lesson as a whole is not compiled: XLA would copy all memories.

    Attributes:
      indexes: names of those of situation and move, J: the game's, that of words, and those the machine combines.
      words: names of those of situation and word of a statement, J there; in memory they have the same places.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.config, self.game, self.jit = config, games.make(config.game, config.options), False
        self.indexes = (*self.game.features, 'word', *(f'combined {n + 1}' for n in range(config.combined)))
        self.language = self.game.language
        self.words = (*self.language.features, 'remark and words') if self.language else ()
        self.conditions, several = len(self.game.conditions), max(len(self.indexes), len(self.words))
        self.features = self.conditions + 2  # where those of situation and choice begin in a moment
        sizes = config.memory, config.cards, self.game.size, self.features + 2 * several
        if (bytes_ := config.machines * Memory.bytes(*sizes)) > MOST_BYTES:
            raise ModelError(f'model.machines, memory and cards: {config.machines:,} machines with room for '
                             f'{config.memory:,} moments and {config.cards:,} cards each take {bytes_ / 2 ** 30:.1f} '
                             'GiB; give fewer, so that they take 4 at most')
        self.memory = Memory(config.machines, *sizes, config.looked_up)
        self.tape = Tape(config.machines, config.tape, config.places)
        # What was said to a machine and is part of its situation until it moves.
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
        """Looks a situation up, int32 [n, P], with every move."""
        return self._compiled(self._think, rows, board)

    def _think(self, rows, board):
        keys = self.game.keys(board)  # [n, A, F]
        heard = tf.gather(self.heard, rows)[:, None]
        move = tf.range(self.game.moves)
        word = tf.where(heard >= 0, tag(OF_MOVES + keys.shape[2], mix(heard, move)), NONE)[..., None]
        tags = tf.concat([tag(OF_MOVES + tf.range(keys.shape[2]), keys), word], 2)
        return self._consider(rows, self._with_combined(rows, tags), OF_MOVES)

    def _consider(self, rows, tags, kind: int) -> Thought:
        """Looks features up, and weighs what is found."""
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
        """How many more memories are for a choice than against it, float32 [n, A]."""
        return tf.cast(tf.reduce_sum(good - bad, 2), tf.float32)

    def learned(self, rows, good, bad, kind: int):
        """The odds of a good outcome by each index, as logarithms, times how often it was right for once wrong."""
        counts = *self.record(rows, good.shape[2], kind), good, bad
        right, wrong, good, bad = (tf.cast(count, tf.float32) for count in counts)
        odds = (2 * good + 1) / (2 * bad + 1)  # by Jeffreys's prior
        return tf.reduce_sum(tf.math.log(odds) * ((right + 1) / (wrong + 1))[:, None], 2)

    def record(self, rows, indexes: int, kind: int = OF_MOVES):
        """How often each of so many indexes was right, and wrong, of choices that it spoke for or against: int32
        [n, indexes] each.

        Looked up in the index of thoughts, whose features are that an index spoke for a choice and against it.
        """
        tags = tf.tile(tag(THOUGHT + kind + tf.range(indexes), [[0], [1]])[None], [tf.shape(rows)[0], 1, 1])
        good, bad = self.memory.count(rows, tags)  # [n, 2, J]
        return bad[:, 0] + good[:, 1], good[:, 0] + bad[:, 1]

    def _thoughts(self, good, bad, kind: int):
        """Features of a moment for `record`: int32 [n, J]."""
        said = tag(THOUGHT + kind + tf.range(good.shape[1]), tf.cast(good > bad, tf.int32))
        return tf.where(good == bad, NONE, said)

    def grown(self, rows):
        """Whether machines go by what they have learned of their indications, bool [n].

        A machine has looked up how its choices by the crude rule came out, those that the other rule would have made
        too and those that it would not: the first did better.
        """
        good, bad = self.memory.count(rows, tf.tile(tag(RULE, [[0, 1]]), [tf.shape(rows)[0], 1]))  # [n, 2]
        all_ = good + bad
        share = (good + 1) / (all_ + 2)
        return tf.reduce_all(all_ >= self.config.constancy, 1) & (share[:, 1] > share[:, 0])

    def _of_rule(self, thought: Thought, legal, choice):
        """The feature of a moment that `grown` looks up: what the rules said of the choice, int32 [n]."""
        crude, learned = (tf.gather(favourites(votes, legal), choice, axis=1, batch_dims=1)
                          for votes in (thought.crude, thought.learned))
        return tf.where(crude, tag(RULE, tf.cast(learned, tf.int32)), NONE)

    # "New forms of index might be introduced on account of special features observed in the indexes already used."

    def combine(self, number: int) -> None:
        """Every machine makes index `number` of its own, from 0, and enters in it all that it remembers: of features
        of the index that was right most often for its errors, the exact situation aside, and of the next."""
        rows = tf.range(self.config.machines)
        right, wrong = (tf.cast(count + 1, tf.float32) for count in self.record(rows, len(self.indexes)))
        order = 1 + tf.math.top_k((right / wrong)[:, 1:len(self.game.features)], number + 2).indices
        pair = tf.stack([order[:, 0], order[:, number + 1]], 1)  # [n, 2]
        self.pair[:, number].assign(pair)
        place = self.features + len(self.game.features) + 1 + number
        self.memory.enter(rows, place, self.features + pair, mix)

    def _with_combined(self, rows, tags):
        """The features and those of two of them: int32 [n, A, J]."""
        if not self.config.combined:
            return tags
        pair = tf.gather(self.pair, rows)
        first, second = (tf.gather(tags, tf.maximum(pair[..., side], 0), axis=2, batch_dims=1) for side in (0, 1))
        made = tf.where((pair[:, None, :, 0] >= 0) & (first >= 0) & (second >= 0), mix(first, second), NONE)
        return tf.concat([tags, made], 2)

    # "I suggest that there should be two keys which can be manipulated by the schoolmaster, and which represent the
    # ideas of pleasure and pain."

    def feel(self, rows, signal) -> None:
        """What was done since the last time anything was felt comes out so: PLEASURE, PAIN or 0, int32 [n]."""
        self.memory.feel(rows, signal)

    # "At later stages in education the machine would recognise certain other conditions as desirable owing to their
    # having been constantly associated in the past with pleasure, and likewise certain others as undesirable. Certain
    # expressions of anger on the part of the schoolmaster might … be recognised as so ominous that they could never be
    # overlooked."

    def recognise(self, rows, tags):
        """What conditions, int32 [n, C], have always come with: PAIN if any of them has, PLEASURE, or 0.

        Of those after the first, which other situations have too, it takes twice as many.
        """
        good, bad = self.memory.look_up(rows, tags)
        enough = good + bad >= self.config.constancy * tf.minimum(1 + tf.range(tags.shape[1]), 2)
        pain, pleasure = (tf.reduce_any(enough & (other == 0), 1) for other in (good, bad))
        return tf.where(pain, PAIN, tf.where(pleasure, PLEASURE, 0))

    # What a machine does.

    def move(self, rows, board, active):
        """Sees a position, feels what it stands for, chooses a move and remembers it. Returns moves, int32 [n]."""
        conditions = tag(CONDITION + tf.range(self.conditions), self.game.condition_keys(board))
        self.feel(rows, tf.where(active, self.recognise(rows, conditions), 0))
        choice = self._choose(rows, self.think(rows, board), self.game.legal(board), active)
        self._act(rows, MOVED, OF_MOVES, choice, conditions, board, active)
        self._listen(rows, tf.where(active, NONE, tf.gather(self.heard, rows)))  # the remark was about this move
        return choice[0]

    def _choose(self, rows, thought: Thought, legal, active):
        """What is chosen, int32 [n], and what the machine remembers of its thought."""
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
        """A word of another's, int32 [n], while a position is before it: it feels what the word stands for."""
        tags = tag(WORD, word)[:, None]
        self.feel(rows, tf.where(active, self.recognise(rows, tags), 0))
        places = tf.range(self.memory.places)
        self._remember(rows, HEARD, word, board, tf.where(places == self.conditions, tags, NONE), active)
        self._listen(rows, tf.where(active, word, tf.gather(self.heard, rows)))

    def _listen(self, rows, word) -> None:
        self.heard.scatter_update(tf.IndexedSlices(word, rows))

    # "It also types out any remarks that it wishes to make", word by word: each is a choice.

    def say(self, rows, board, active):
        """Composes a statement about a position and remembers it. Returns words of the language, int32 [n, LENGTH]."""
        said, none = tf.fill([tf.shape(rows)[0], LENGTH], NONE), tf.fill([tf.shape(rows)[0], self.conditions], NONE)
        for place in range(LENGTH):
            thought = self.word(rows, board, said)
            choice = self._choose(rows, thought, self.language.may_follow(said), active)
            self._act(rows, SAID, OF_WORDS, choice, none, board, active)
            said = with_word(said, place, choice[0])
        self._listen(rows, tf.where(active, NONE, tf.gather(self.heard, rows)))
        return said

    def word(self, rows, board, said) -> Thought:
        """Looks a situation up, and the words said so far, int32 [n, LENGTH], with every word that may be next."""
        return self._compiled(self._word, rows, board, said)

    def _word(self, rows, board, said):
        keys, heard = self.language.keys(board, said), tf.gather(self.heard, rows)[:, None]
        remark = tf.where(heard >= 0, tag(OF_WORDS + keys.shape[2], mix(heard, keys[..., 0])), NONE)[..., None]
        tags = tf.concat([tag(OF_WORDS + tf.range(keys.shape[2]), keys), remark], 2)
        return self._consider(rows, tags, OF_WORDS)

    # "The mechanic who has constructed the machine … may put it back to one of its previous positions and ask the
    # schoolmaster to repeat his lessons from that point on."

    def put_back(self, rows, earlier: 'Machines') -> None:
        """Makes machines what the same rows of another population of this construction are."""
        n = self.config.machines
        for now, then in zip(self.variables, earlier.variables):
            if not tf.size(now):  # pairs of machines that combine nothing
                continue
            several = tf.concat([[n], [tf.size(then) // n]], 0)
            values = tf.tensor_scatter_nd_update(tf.reshape(now, several), rows[:, None],
                                                 tf.gather(tf.reshape(then, several), rows))
            now.assign(tf.reshape(values, now.shape))

    def alone(self, row: int) -> 'Machines':
        """One machine as a population of its own."""
        construction = {field.name: getattr(self.config, field.name) for field in dataclasses.fields(Config)}
        one = Machines(Config(**{**construction, 'machines': 1}))
        for own, all_ in zip(one.variables, self.variables):
            own.assign(tf.reshape(tf.reshape(all_, [self.config.machines, -1])[row], own.shape))
        return one


def favourites(votes, legal):
    """The legal choices with the greatest number of votes: bool [n, A]."""
    votes = tf.where(legal, votes, -math.inf)
    return legal & (votes == tf.reduce_max(votes, 1, keepdims=True))


def tag(index, key):
    """A feature of an index as one number, int32 of 31 bits: a hash, under which two of 2^31 meet by chance."""
    return mix(tf.convert_to_tensor(key, tf.int32), index)


def mix(a, b):
    """One feature of two, as `tag`."""
    # The constants are those of MurmurHash3's finaliser (Appleby), whose multiplications wrap around.
    x = tf.bitwise.bitwise_xor(a * -1640531535 + b, tf.bitwise.right_shift(a, 15))
    x = tf.bitwise.bitwise_xor(x, tf.bitwise.bitwise_and(tf.bitwise.right_shift(x, 16), 0xFFFF)) * -2048144789
    x = tf.bitwise.bitwise_xor(x, tf.bitwise.bitwise_and(tf.bitwise.right_shift(x, 13), 0x7FFFF)) * -1028477387
    return tf.bitwise.bitwise_and(x, 0x7FFFFFFF)
