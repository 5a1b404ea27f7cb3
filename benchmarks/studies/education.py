"""Test what 'Intelligent Machinery, A Heretical Theory' says about education, on populations of its machines.

    python benchmarks/studies/education.py schooling --out DIR

schooling  Machines whose games end with a key, against machines that play as many without keys, and machines that
           never played.
rules      The crude rule, "whichever has the greatest number of votes", against the learned weights.
faked      "insist on the choice made being a particular one at, say, 10 particular places, and this would mean that
           about one machine in 1024 or more would develop to as high a degree as the one which had been faked".
cheating   Keys without information about the games: those of honest schooling in another order. If they taught
           anything, the schoolmaster would be "a man inside the machine". They are compared with a coin that gives
           pleasure as often. Silence is a worse baseline: a coin teaches nothing, but a machine with any preference,
           right or wrong, plays differently from one that draws every choice.

In all but `faked`, the machines compared have the same tapes, and their opponents the same draws. Intervals are 95%:
for means by resampling machines, for shares by Wilson. Each experiment writes NAME.json and NAME.png to DIR.
"""
import argparse
import dataclasses
import json
import os
import time
from collections.abc import Callable
from typing import Literal

import matplotlib
import numpy as np
import scipy.stats
import tensorflow as tf
from cycler import cycler
from matplotlib.figure import Figure

from data_prep.core import records
from keras_models.learning_machine import PAIN, PLEASURE, Config, Machines
from keras_models.turing import lessons
from keras_models.turing.tape import Tape
from pipelines.core import cli

GAMES = 20  # per machine in an examination by play
TURNS = 1000  # distance between the seeds of two lessons; each turn adds one
POINTS = 8  # examinations after the first, at equal distances
COLOURS = ('#2468a8', '#d1642a', '#3b8f6b', '#8a5aa8', '#a8842a')
STYLE = {'font.size': 9, 'axes.titlelocation': 'left', 'axes.titlesize': 10, 'axes.spines.top': False,
         'axes.spines.right': False, 'axes.grid': True, 'axes.grid.axis': 'y', 'grid.color': '#d8dce0',
         'legend.frameon': False, 'axes.prop_cycle': cycler(color=COLOURS)}

FIGURES = 10  # faked choices
ONE_IN = 2 ** FIGURES
# Every choice is binary, and with thirty men few games have ten choices between equal ones.
FAKED = Config(game='nim', options={'heaps': 1, 'highest': 30, 'most': 2}, memory=192, cards=512, tape=256)
BINS = np.linspace(0, 1, 21)  # of degrees
SCHOOLS, FEW = 3, 12  # sequences of lessons, and their length, after which machines still differ much

Interval = tuple[float, float, float]  # estimate, lower and upper bound


@dataclasses.dataclass(frozen=True)
class Subject:
    """A game, the term of its lessons, and the measure of a machine's degree of education in it."""
    game: str
    term: lessons.Term
    degree: str


SUBJECTS = {'Nim': Subject('nim', lessons.Term('perfect', 400), 'winning positions in which the move is optimal'),
            'noughts and crosses': Subject('noughts', lessons.Term('perfect', 800, drawn=PLEASURE),
                                           'games not lost against perfect play')}

# How keys are pressed: (keys that would be right, int32 [n]; number of the lesson; its seed) -> keys that are.
Press = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]

WAYS: dict[str, Press] = {'honestly': lambda keys, number, seed: keys,
                          'never': lambda keys, number, seed: tf.zeros_like(keys)}


def decided(keys: np.ndarray) -> Press:
    """Return a schoolmaster who presses the keys of an array [count, machines], whatever happens."""
    table = tf.constant(keys)
    return lambda _, number, seed: table[number]


def decisive(game) -> tuple[tf.Tensor, tf.Tensor]:
    """Return Nim's positions with a choice that is not among the best, int32 [x, P], and the best, bool [x, A]."""
    boards = tf.constant(list(np.ndindex(*[game.highest + 1] * game.heaps)), tf.int32)
    best = game.best(boards)
    there = tf.reduce_any(game.legal(boards) & ~best, 1)
    return tf.boolean_mask(boards, there), tf.boolean_mask(best, there)


def examiner(machines: Machines, seed: int) -> Callable[[], tf.Tensor]:
    """Return a function that returns the machines' degrees of education, float32 [machines]."""
    if machines.config.game == 'nim':
        boards, best = decisive(machines.game)
        return tf.function(lambda: lessons.examine(machines, boards, best), autograph=False)
    return tf.function(lambda: 1 - lessons.trial(machines, 'perfect', GAMES, tf.constant([seed, -2 ** 30]))[:, 0],
                       autograph=False)


def school(subject: Subject, config: Config, press: Press, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Educate a population.

    Returns:
      Degrees of education after `lessons_at(count)`, [points, machines]; and the keys pressed, int32 [count, machines].
    """
    machines = Machines(config)
    machines.jit = True
    machines.tape.supply(seed)
    examine, pressed = examiner(machines, seed), tf.Variable(tf.zeros([count, config.machines], tf.int32))

    def noted(number, keys):
        pressed.scatter_nd_update([[number]], keys[None])
        return keys
    lesson = tf.function(lambda number, seed: lessons.lesson(
        machines, subject.term, number, seed, lambda outcome, key: noted(number, press(key, number, seed))),
        autograph=False)
    degrees = [examine().numpy()]
    for number in range(count):
        lesson(tf.constant(number), tf.constant([seed, TURNS * number]))
        if number + 1 in lessons_at(count):
            degrees.append(examine().numpy())
    return np.array(degrees), pressed.numpy()


def lessons_at(count: int) -> list[int]:
    return sorted({count * point // POINTS for point in range(POINTS + 1)})


def mean_of(values: np.ndarray) -> Interval:
    """Return the mean over machines and its 95% interval."""
    found = scipy.stats.bootstrap((values,), np.mean, n_resamples=2000, method='percentile', random_state=0)
    return float(values.mean()), *map(float, found.confidence_interval)


def share_of(those: np.ndarray) -> Interval:
    """Return the share of true values, bool [n], and its 95% interval."""
    found = scipy.stats.binomtest(int(those.sum()), len(those)).proportion_ci(method='wilson')
    return float(those.mean()), float(found.low), float(found.high)


def verdict(found: Interval, more: str, none: str, less: str, than: float = 0) -> str:
    return more if found[1] > than else less if found[2] < than else none


# The experiments on curves: a subject's populations by what was done to them, and the comparisons of these at the end.

Degrees = dict[str, np.ndarray]  # [points, machines]
Compared = list[tuple[str, str, tuple[str, str, str]]]  # this, that, what is said if it is more, no other, or less

PLAYERS: tuple[Literal['perfect', 'random'], ...] = ('perfect', 'random')
NO_DIFFERENCE = 'no difference shown'
TEACHES = 'schooling teaches', NO_DIFFERENCE, 'schooling does harm'
CHEATS = 'something was learned of keys that tell nothing', 'nothing was learned', 'nothing was learned, and worse'
HABIT = 'habits alone do better than none', NO_DIFFERENCE, 'habits alone do worse than none'
SHUFFLED, COIN = 'the same keys, shuffled', "a coin's keys"


def schooling(subject: Subject, config: Config, count: int, seed: int) -> tuple[Degrees, Compared]:
    found = {name: school(subject, config, press, count, seed)[0]
             for name, press in (('schooled', WAYS['honestly']), ('played, keys never pressed', WAYS['never']))}
    found['never played'] = 0 * found['schooled'] + found['schooled'][:1]
    return found, [
        ('schooled', 'played, keys never pressed', TEACHES),
        ('played, keys never pressed', 'never played', ('play alone teaches', NO_DIFFERENCE, 'play alone does harm'))]


def rules(subject: Subject, config: Config, count: int, seed: int) -> tuple[Degrees, Compared]:
    configs = {'crude majority': dataclasses.replace(config, rule='majority'),
               'learned weighting': dataclasses.replace(config, rule='learned')}
    found = {name: school(subject, one, WAYS['honestly'], count, seed)[0] for name, one in configs.items()}
    words = 'the learned weighting is better', NO_DIFFERENCE, 'the crude rule is better'
    return found, [('learned weighting', 'crude majority', words)]


def cheating(subject: Subject, config: Config, count: int, seed: int) -> tuple[Degrees, Compared]:
    honest, keys = school(subject, config, WAYS['honestly'], count, seed)
    draw = np.random.default_rng(seed)
    given = {SHUFFLED: draw.permutation(keys.ravel()).reshape(keys.shape),
             COIN: np.where(draw.random(keys.shape) < np.mean(keys == PLEASURE), PLEASURE, PAIN).astype(np.int32)}
    found = {'schooled honestly': honest} | {
        name: school(subject, config, decided(keys), count, seed)[0] for name, keys in given.items()}
    found['keys never pressed'], _ = school(subject, config, WAYS['never'], count, seed)
    return found, [('schooled honestly', COIN, TEACHES), (SHUFFLED, COIN, CHEATS), (COIN, 'keys never pressed', HABIT)]


def against_all() -> dict[str, Subject]:
    """Return the subjects against perfect play and against chance, each with half the lessons."""
    return {f'{name}, {player} player': dataclasses.replace(subject, term=dataclasses.replace(
        subject.term, against=player, lessons=subject.term.lessons // 2))
        for name, subject in SUBJECTS.items() for player in PLAYERS}


def compare(name: str, machines: int, count: int | None, seed: int) -> dict:
    """Run an experiment on every subject; return its curves, and the verdicts on their ends."""
    experiment, subjects = CURVES[name], against_all() if name == 'cheating' else SUBJECTS
    curves, rows = {}, []
    for title, subject in subjects.items():
        config, many = Config(game=subject.game, machines=machines), count or subject.term.lessons
        degrees, compared = experiment(subject, config, many, seed)
        curves[title] = {'degree': subject.degree, 'lessons': lessons_at(many), 'machines': {
            series: [mean_of(point) for point in all_] for series, all_ in degrees.items()}}
        for this, that, words in compared:
            difference = mean_of(degrees[this][-1] - degrees[that][-1])
            rows.append({'game': title, 'of': this, 'less': that, 'difference': difference,
                         'verdict': verdict(difference, *words)})
    return {'curves': curves, 'rows': rows}


def print_curves(found: dict) -> None:
    for name, curve in found['curves'].items():
        print(f'{name}: {curve["degree"]}, after {curve["lessons"][-1]:,} lessons [95%]')
        for series, all_ in curve['machines'].items():
            print(f'  {series:34}{all_[-1][0]:7.1%} [{all_[-1][1]:.1%}, {all_[-1][2]:.1%}]')
        for row in found['rows']:
            if row['game'] == name:
                mean, low, high = (100 * value for value in row['difference'])
                print(f'  {row["of"]} less {row["less"]}: {mean:+.1f} points [{low:+.1f}, {high:+.1f}]: '
                      f'{row["verdict"]}')


def draw_curves(found: dict, figure: Figure) -> None:
    rows = -(-len(found['curves']) // 2)
    figure.set_figheight(4 * rows)
    for axes, (name, curve) in zip(figure.subplots(rows, 2, squeeze=False).flat, found['curves'].items()):
        for series, all_ in curve['machines'].items():
            mean, low, high = np.array(all_).T
            axes.plot(curve['lessons'], mean, label=f'{series} {mean[-1]:.1%}',
                      linestyle=':' if series == 'never played' else '-')
            axes.fill_between(curve['lessons'], low, high, alpha=0.2, linewidth=0)
        axes.set(title=name, xlabel='lessons', ylabel=curve['degree'], ylim=(0, 1))
        axes.legend(loc='best')


@dataclasses.dataclass(frozen=True)
class Faked:
    """A population whose first choices were faked, and a free one with the same lessons.

    Attributes:
      choices: the faked choices, those of the best machine of a pilot population.
      expected: expected share of tapes that make them, the product of 1/k over choices between k equal ones.
      model: that machine's degree of development.
      faked, free: degrees after each lesson, [count, machines].
      agree: bool [machines], whether a free machine's own tape made the same choices.
    """
    choices: np.ndarray
    expected: float
    model: float
    faked: np.ndarray
    free: np.ndarray
    agree: np.ndarray

    def as_high(self) -> np.ndarray:
        """Return whether a free machine reaches the median of the faked ones, bool [count, machines]."""
        return self.free >= np.median(self.faked, 1, keepdims=True) - 1e-6  # degrees are sums of float32


def same_lesson(machines: Machines, number, seed) -> None:
    """Give a lesson against chance with the same opening and the same draws of the opponent for all machines.

    So machines differ by their tapes alone.
    """
    game, n = machines.game, machines.config.machines
    rows = tf.range(n)

    def chance(board, active, turn):
        draw = tf.random.stateless_uniform([1, game.moves], seed + tf.stack([0, 1 + turn]))
        return tf.argmax(tf.where(game.legal(board), draw, -1.0), 1, tf.int32)
    machines.feel(rows, lessons.match(game, lessons.player(machines, rows), chance,
                                      tf.repeat(game.start(seed, 1), n, 0), tf.equal(number % 2, 0)))


def develop(config: Config, count: int, seed: int, tapes: int, choices=None) -> tuple[np.ndarray, Tape]:
    """Educate a population with the lessons of a seed, faking its first `choices` if any are given.

    Returns:
      Degrees of development after each lesson, [count, machines], and the tapes, which record the first choices.
    """
    machines, rows = Machines(config), tf.range(config.machines)
    machines.jit = True
    machines.tape.supply(tapes)
    if choices is not None:
        machines.tape.insist(rows, tf.range(FIGURES), choices)
    examine = examiner(machines, seed)
    lesson = tf.function(lambda number, seed: same_lesson(machines, number, seed), autograph=False)
    degrees = []
    for number in range(count):
        lesson(tf.constant(number), tf.constant([seed, TURNS * number]))
        degrees.append(examine().numpy())
    return np.array(degrees), machines.tape


def fake(machines: int, count: int, seed: int) -> Faked:
    """Find a machine that developed well, and fake its first choices in a population.

    Raises:
      ValueError: no machine of the pilot population made as many choices.
    """
    config = dataclasses.replace(FAKED, machines=machines, places=FIGURES)
    pilot, tape = develop(dataclasses.replace(config, machines=min(machines, 4 * ONE_IN)), count, seed, 3 * seed)
    best = int(np.argmax(np.where(tape.made.numpy() >= FIGURES, pilot[-1], -1)))
    if tape.made.numpy()[best] < FIGURES:
        raise ValueError(f'no machine made {FIGURES} choices in {count} lessons; give more')
    choices, among = (part.numpy()[best] for part in tape.beginnings())
    faked, _ = develop(config, count, seed, 3 * seed + 1, choices)
    free, others = develop(config, count, seed, 3 * seed + 2)
    agree = (others.beginnings()[0].numpy() == choices).all(1)
    return Faked(choices, float(np.prod(1 / among)), float(pilot[-1, best]), faked, free, agree)


def claim(machines: int, count: int | None, seed: int) -> dict:
    """Test the text's claim about faked choices, in several schools and in all of them together."""
    schools = [fake(machines, count or FEW, seed + number) for number in range(SCHOOLS)]
    expected = (f'more than 1 in {ONE_IN:,}', f'about 1 in {ONE_IN:,}', f'fewer than 1 in {ONE_IN:,}')

    def shares(some: list[Faked]) -> dict[str, Interval]:
        parts = {'own tape agrees at those places': [one.agree for one in some],
                 'as high as the median of the faked': [one.as_high()[-1] for one in some],
                 'as high as the one that was faked': [one.free[-1] >= one.model - 1e-6 for one in some]}
        return {name: share_of(np.concatenate(those)) for name, those in parts.items()}
    rows = [{'share': name, 'found': found, 'verdict': verdict(found, *expected, than=1 / ONE_IN)}
            for name, found in shares(schools).items()]
    for name, those in (('whose own tape agrees', lambda one: one.agree), ('all', lambda one: one.agree | True)):
        if len(further := np.concatenate([one.free[-1, those(one)] - one.faked[-1].mean() for one in schools])):
            rows.append({'degree': f'of the unfaked, {name}, less the faked', 'found': (found := mean_of(further)),
                         'verdict': verdict(found, 'higher', NO_DIFFERENCE, 'lower')})
    return {'lessons': count or FEW, 'unfaked machines': SCHOOLS * machines, 'rows': rows, 'schools': [
        {'seed': seed + number, 'choices': one.choices.tolist(), 'expected': one.expected,
         'degree of the one faked': one.model, 'shares': shares([one]),
         'median of the faked': np.median(one.faked, 1).tolist(),
         'as high': [share_of(those) for those in one.as_high()],
         'degrees': {name: np.histogram(all_[-1], BINS)[0].tolist()
                     for name, all_ in (('faked', one.faked), ('unfaked', one.free))}}
        for number, one in enumerate(schools)]}


def print_claim(found: dict) -> None:
    print(f'{found["unfaked machines"]:,} unfaked machines, after {found["lessons"]} lessons [95%]; one in {ONE_IN:,} '
          f'is {1 / ONE_IN:.3%}')
    for row in found['rows']:
        mean, low, high = (100 * value for value in row['found'])
        name, unit = (row['share'], '%') if 'share' in row else (row['degree'], ' points')
        print(f'  {name}: {mean:.3f}{unit} [{low:.3f}, {high:.3f}]: {row["verdict"]}')
    for one in found['schools']:
        shares = ', '.join(f'{name} {value:.3%}' for name, (value, *_) in one['shares'].items())
        print(f'  seed {one["seed"]}, choices {"".join(map(str, one["choices"]))}: degree of the one faked '
              f'{one["degree of the one faked"]:.1%}, of the faked {one["median of the faked"][-1]:.1%}; {shares}')


def draw_claim(found: dict, figure: Figure) -> None:
    curves, bars = figure.subplots(1, 2)
    for one in found['schools']:
        mean, low, high = np.array(one['as high']).T
        after = np.arange(1, len(mean) + 1)
        curves.plot(after, mean, label=f'lessons of seed {one["seed"]}')
        curves.fill_between(after, np.maximum(low, 1e-5), high, alpha=0.2, linewidth=0)
    curves.axhline(1 / ONE_IN, color='black', linewidth=0.8, linestyle=':', label=f'1 in {ONE_IN:,}')
    curves.set(title='Unfaked as high as the median of the faked', xlabel='lessons', ylabel='share', yscale='log')
    curves.legend(loc='best')
    for side in ('faked', 'unfaked'):
        counts = np.sum([one['degrees'][side] for one in found['schools']], 0)
        bars.stairs(counts / counts.sum(), BINS, label=side, fill=True, alpha=0.5)
    bars.set(title=f'Degree of development after {found["lessons"]} lessons', xlabel='degree', ylabel='share')
    bars.legend(loc='best')


CURVES = {'schooling': schooling, 'rules': rules, 'cheating': cheating}


def run(name: str, folder: str, machines: int | None, count: int | None, seed: int) -> dict:
    """Run an experiment, print its result, and write NAME.json and NAME.png."""
    started = time.monotonic()
    if name in CURVES:
        found, show, draw = compare(name, machines or 128, count, seed), print_curves, draw_curves
    else:
        found, show, draw = claim(machines or 20 * ONE_IN, count, seed), print_claim, draw_claim
    found = {'experiment': name, 'seed': seed, 'seconds': round(time.monotonic() - started), **found}
    show(found)
    os.makedirs(folder, exist_ok=True)
    records.write_atomically(os.path.join(folder, f'{name}.json'), json.dumps(found, indent=1).encode())
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(11, 4), dpi=120, layout='constrained')
        draw(found, figure)
        figure.savefig(os.path.join(folder, f'{name}.png'), metadata={'Software': None})
    return found


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('name', choices=[*CURVES, 'faked'])
    flags.add_argument('--out', required=True, help='a folder for the results')
    flags.add_argument('--machines', type=int, help=f'of a population (default: 128; for faked {20 * ONE_IN:,})')
    flags.add_argument('--lessons', type=int, help=f'(default: 400 of Nim, 800 of noughts; for faked {FEW})')
    flags.add_argument('--seed', type=int, default=1)
    args = flags.parse_args()
    cli.prepare_libraries()
    run(args.name, args.out, args.machines, args.lessons, args.seed)


if __name__ == '__main__':
    main()
