"""Games on tensors against plain Python versions, known results, and XLA."""
import collections
import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf

from data_prep.games import board_games
from keras_models import ModelError
from keras_models.turing import games
from keras_models.turing.games import go, nim, noughts

DRAW = np.random.default_rng
LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]


class PlainNim:
    def __init__(self, game, board):
        self.game, self.heaps = game, list(board)

    def view(self):
        return self.heaps

    def over(self):
        return not any(self.heaps)

    def outcome(self):
        return -1 if self.over() else 0

    def legal(self):
        return [taken <= men for men in self.heaps for taken in range(1, self.game.most + 1)]

    def play(self, move):
        self.heaps[move // self.game.most] -= move % self.game.most + 1


class PlainNoughts:
    def __init__(self, game, board):
        self.squares, self.turn = list(board), 1

    def view(self):
        return [man * self.turn for man in self.squares]

    def _winner(self):
        return next((self.squares[a] for a, b, c in LINES if self.squares[a]
                     and self.squares[a] == self.squares[b] == self.squares[c]), 0)

    def over(self):
        return bool(self._winner()) or all(self.squares)

    def outcome(self):
        return self._winner() * self.turn

    def legal(self):
        return [not man and not self.over() for man in self.squares]

    def play(self, move):
        self.squares[move] = self.turn
        self.turn = -self.turn


class PlainGo:
    """Men in a dict by (row, column), Black 1; a group and its liberties by walking."""

    def __init__(self, game, board):
        self.game, self.men, self.ko, self.passes, self.turns = game, {}, None, 0, 0
        self.points = list(itertools.product(range(game.side), repeat=2))
        for point, man in zip(self.points, board):
            self.men[point] = man

    @property
    def side(self):
        return 1 if self.turns % 2 == 0 else -1

    def beside(self, point):
        row, column = point
        return [p for p in ((row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1))
                if p in self.men]

    def group(self, point, men):
        found, edge = {point}, [point]
        while edge:
            for p in self.beside(edge.pop()):
                if men[p] == men[point] and p not in found:
                    found.add(p)
                    edge.append(p)
        return found, {p for q in found for p in self.beside(q) if men[p] == 0}

    def tried(self, point):
        """The men after a move there, those taken and the liberties of the group it makes."""
        men = {**self.men, point: self.side}
        taken = set()
        for p in self.beside(point):
            if men[p] == -self.side:
                group, liberties = self.group(p, men)
                taken |= set() if liberties else group
        men.update(dict.fromkeys(taken, 0))
        return men, taken, self.group(point, men)

    def view(self):
        ko = 0 if self.ko is None else self.points.index(self.ko) + 1
        return [self.men[p] * self.side for p in self.points] + [ko, self.passes, self.turns]

    def over(self):
        return self.passes == 2 or self.turns >= self.game.most_turns

    def outcome(self):
        if not self.over():
            return 0
        score = -self.game.komi + sum(self.men.values())
        empty = {p for p in self.points if not self.men[p]}
        while empty:
            region = self.group(empty.pop(), self.men)[0]
            empty -= region
            seen = {self.men[p] for q in region for p in self.beside(q)} - {0}
            score += len(region) * seen.pop() if len(seen) == 1 else 0
        return int(np.sign(score)) * self.side

    def legal(self):
        points = [not self.over() and not self.men[p] and p != self.ko and bool(self.tried(p)[2][1])
                  for p in self.points]
        return [*points, not self.over()]

    def play(self, move):
        ko = None
        if move < len(self.points):
            point = self.points[move]
            self.men, taken, (group, liberties) = self.tried(point)
            if len(taken) == 1 and len(group) == 1 and liberties == taken:
                ko, = taken
        self.ko, self.passes = ko, self.passes + 1 if move == len(self.points) else 0
        self.turns += 1


GAMES = [nim.Game(), nim.Game(heaps=2, highest=9, most=3, opening='full'), noughts.Game(), go.Game()]
NAMES = ['nim', 'nim, 3 at most', 'noughts', 'go', 'go 3 x 3']


def some(allowed, draw):
    """bool [n, A] -> int32 [n], one of the allowed in each row, by chance."""
    return np.argmax(draw.random(allowed.shape) * allowed, -1).astype(np.int32)


@functools.cache
def compiled(game, name):
    return tf.function(getattr(game, name), jit_compile=True)


@functools.cache
def boards_of(game, n=16, seed=0):
    """int32 [many, P]: every board of n games played at random, start to end."""
    draw, board = DRAW(seed), game.start(tf.constant([seed, 1]), n).numpy()
    found = [board]
    for _ in range(game.most_turns):
        board = compiled(game, 'play')(board, some(compiled(game, 'legal')(board).numpy(), draw)).numpy()
        found.append(board)
    return np.unique(np.concatenate(found), axis=0)


@pytest.mark.parametrize('plain, game', zip([PlainNim, PlainNim, PlainNoughts, PlainGo, PlainGo],
                                            [*GAMES, go.Game(side=3, komi=1.0, most_turns=100)]), ids=NAMES)
def test_random_games_go_as_in_plain_python(plain, game):
    draw, n = DRAW(3), 16
    board = game.start(tf.constant([3, 4]), n).numpy()
    others = [plain(game, row) for row in board]
    for _ in range(game.most_turns + 1):
        legal, (over, outcome) = compiled(game, 'legal')(board).numpy(), compiled(game, 'result')(board)
        move = some(legal, draw)
        after = compiled(game, 'play')(board, move).numpy()
        for row, other in enumerate(others):
            assert board[row].tolist() == other.view()
            assert legal[row].tolist() == other.legal()
            assert (over[row], outcome[row]) == (other.over(), other.outcome())
            if other.over():
                assert not legal[row].any() and (after[row] == board[row]).all()
            else:
                other.play(move[row])
        board = after
    assert compiled(game, 'result')(board)[0].numpy().all()


@pytest.mark.parametrize('theirs, game', zip(
    [board_games.Nim(), board_games.Nim(2, 9, 3), board_games.Noughts(), board_games.Go()], GAMES), ids=NAMES[:4])
def test_examinations_are_of_these_games(theirs, game):
    """Positions are examined by rules of their own, `data_prep.games.board_games`: with the same boards and choices."""
    boards = boards_of(game)[::4]
    legal, (over, outcome) = game.legal(boards).numpy(), game.result(boards)
    move = some(legal, DRAW(5))
    after = game.play(boards, move).numpy()
    best = legal & False if isinstance(game, go.Game) else game.best(boards).numpy()  # nobody knows
    for row, board in enumerate(map(tuple, boards.tolist())):
        assert np.flatnonzero(legal[row]).tolist() == theirs.legal(board)
        assert theirs.outcome(board) == (int(outcome[row]) if over[row] else None)
        assert over[row] or tuple(after[row].tolist()) == theirs.play(board, int(move[row]))
        assert over[row] or tuple(np.flatnonzero(best[row]).tolist()) == theirs.best(board)
    assert [game.name(move) for move in range(game.moves)] == [theirs.name(move) for move in range(theirs.moves)]


@pytest.mark.parametrize('game', GAMES, ids=NAMES[:4])
def test_xla_changes_nothing(game):
    board = boards_of(game)
    seed = tf.constant([7, 8])
    np.testing.assert_array_equal(tf.function(lambda seed: game.start(seed, 50), jit_compile=True)(seed),
                                  game.start(seed, 50))
    move = some(game.legal(board).numpy(), DRAW(0))
    names = ['legal', 'result', 'keys', 'condition_keys', 'greedy' if isinstance(game, go.Game) else 'best']
    for name in names:
        for one, other in zip(compiled(game, name)(board), getattr(game, name)(board)):
            np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(compiled(game, 'play')(board, move), game.play(board, move))
    keys = game.keys(board).numpy()
    assert keys.shape == (len(board), game.moves, len(game.features)) and keys.min() >= 0
    conditions = game.condition_keys(board).numpy()
    assert conditions.shape == (len(board), len(game.conditions)) and conditions.min() >= 0
    assert keys.dtype == conditions.dtype == board.dtype == np.int32
    assert board.shape[1] == game.size


@pytest.mark.parametrize('game', GAMES, ids=NAMES[:4])
def test_a_batch_may_have_any_size(game):
    board = boards_of(game)[:5]
    serve = tf.function(lambda board: (game.play(board, tf.argmax(game.legal(board), -1, tf.int32)), game.keys(board)),
                        input_signature=[tf.TensorSpec([None, game.size], tf.int32)])
    for rows in (1, 5):
        after, keys = serve(board[:rows])
        assert after.shape == (rows, game.size)
        np.testing.assert_array_equal(keys, game.keys(board[:rows]))


@pytest.mark.parametrize('game', GAMES, ids=NAMES[:4])
def test_choices_are_typed_as_they_are_named(game):
    assert [game.move(f' {game.name(move).upper()} ') for move in range(game.moves)] == list(range(game.moves))
    for text in ('', 'z', '0', 'z1', 'b0', 'b99', '-1', 'pas', '²'):
        with pytest.raises(ValueError, match='is not a move; name a'):
            game.move(text)


def one_to_one(keys, features):
    """Equal features have equal keys, and others have others."""
    pairs = set(zip(keys, features))
    return len(pairs) == len(set(keys)) == len(set(features))


# Nim

@pytest.mark.parametrize('options', [{}, {'most': 2}, {'heaps': 2, 'highest': 8, 'most': 3},
                                     {'heaps': 1, 'highest': 20, 'most': 2}])
def test_nims_best_is_that_of_the_whole_game_tree(options):
    game = nim.Game(**options)

    def after(heaps, move):
        heap, taken = move // game.most, move % game.most + 1
        return (*heaps[:heap], heaps[heap] - taken, *heaps[heap + 1:]) if heaps[heap] >= taken else None

    @functools.cache
    def won(heaps):
        return any(left is not None and not won(left) for left in (after(heaps, move) for move in range(game.moves)))

    boards = list(itertools.product(range(game.highest + 1), repeat=game.heaps))
    expected = [[left is not None and not (won(heaps) and won(left)) for left in
                 (after(heaps, move) for move in range(game.moves))] for heaps in boards]
    best = game.best(tf.constant(boards)).numpy()
    assert best.tolist() == expected
    lost = [heaps for heaps in boards if not won(heaps)]
    assert 1 < len(lost) < len(boards)


def test_nim_starts_at_every_position_but_the_empty_one_equally_often():
    boards = nim.Game().start(tf.constant([1, 2]), 215 * 100).numpy()
    found = collections.Counter(map(tuple, boards.tolist()))
    assert set(found) == set(itertools.product(range(6), repeat=3)) - {(0, 0, 0)}
    chi_square = sum((count - 100) ** 2 / 100 for count in found.values())  # 214 degrees of freedom, deviation 21
    assert 214 - 5 * 21 < chi_square < 214 + 5 * 21
    assert (nim.Game(opening='full').start(tf.constant([1, 2]), 4).numpy() == 5).all()


def test_nims_keys_are_equal_where_its_features_are():
    game = nim.Game(heaps=3, highest=4, most=3)
    boards = list(itertools.product(range(5), repeat=3))
    legal, keys = game.legal(tf.constant(boards)).numpy(), game.keys(tf.constant(boards)).numpy()
    features = []
    for row, move in np.argwhere(legal):
        heaps, heap, taken = boards[row], move // 3, move % 3 + 1
        left = [*heaps[:heap], heaps[heap] - taken, *heaps[heap + 1:]]
        features.append(((heaps, move), (tuple(sorted(heaps)), heaps[heap], taken), (heaps[heap], taken),
                         tuple(sorted(left))))
    for index in range(4):
        assert one_to_one(keys[legal][:, index].tolist(), [each[index] for each in features])


def test_nim_shows_its_choices():
    assert nim.Game().show(np.array([2, 0, 5])) == (
        'a  | |         a1 a2\n'
        'b\n'
        'c  | | | | |   c1 c2 c3 c4 c5')
    assert nim.Game(most=2).show([5, 1, 0]).splitlines()[0] == 'a  | | | | |   a1 a2'


# Noughts and crosses

@functools.cache
def noughts_levels():
    """The reachable boards after 0 to 9 moves, with the number of ways to each: {board: ways} a level."""
    game, levels = noughts.Game(), [{(0,) * 9: 1}]
    for _ in range(9):
        boards = np.array(list(levels[-1]), np.int32)
        rows, moves = np.nonzero(game.legal(boards).numpy())
        level: dict = collections.Counter()
        for row, board in zip(rows, game.play(boards[rows], moves.astype(np.int32)).numpy().tolist()):
            level[tuple(board)] += levels[-1][tuple(boards[row].tolist())]
        levels.append(level)
    return levels


@functools.cache
def turned(side):
    """The 8 ways to lay a sheet of paper: which square of it comes to stand at each place."""
    sheets = [np.rot90(np.arange(side ** 2).reshape(side, side), turns) for turns in range(4)]
    return [sheet.ravel().tolist() for each in sheets for sheet in (each, each.T)]


def test_noughts_has_as_many_positions_and_games_as_are_known():
    levels = noughts_levels()
    boards = [board for level in levels for board in level]
    assert len(boards) == 5478
    assert len({min(tuple(board[square] for square in way) for way in turned(3)) for board in boards}) == 765
    ends: dict = collections.Counter()
    for turn, level in enumerate(levels):
        over, outcome = noughts.Game().result(np.array(list(level), np.int32))
        for ways, ended, value in zip(level.values(), over.numpy(), outcome.numpy()):
            ends['draw' if value == 0 else 'XO'[turn % 2] if value == 1 else 'OX'[turn % 2]] += ways * ended
    assert ends == {'X': 131184, 'O': 77904, 'draw': 46080}  # 255,168 games


def test_noughts_best_keeps_every_boards_value():
    @functools.cache
    def value(board):
        plain = PlainNoughts(None, board)
        return plain.outcome() if plain.over() else max(-value(after(board, move)) for move in range(9)
                                                        if not board[move])

    def after(board, move):
        return tuple(-1 if square == move else -man for square, man in enumerate(board))

    boards = [board for level in noughts_levels() for board in level]
    best = noughts.Game().best(tf.constant(boards)).numpy()
    for board, row in zip(boards, best):
        open_ = not PlainNoughts(None, board).over()
        assert row.tolist() == [open_ and not board[move] and -value(after(board, move)) == value(board)
                                for move in range(9)]
    assert value((0,) * 9) == 0


@pytest.mark.parametrize('against', ['best', 'legal'])
def test_perfect_play_at_noughts_never_loses(against):
    game, n, draw = noughts.Game(), 500, DRAW(1)
    board = game.start(None, n)
    for _ in range(10):
        mine = (np.arange(n) + np.count_nonzero(board, -1)) % 2 == 0  # sides alternate from game to game
        over, outcome = game.result(board)
        result = np.where(mine, outcome, -outcome)
        allowed = np.where(mine[:, None], game.best(board), getattr(game, against)(board))
        board = game.play(board, some(allowed, draw))
    assert over.numpy().all()
    if against == 'best':
        assert (result == 0).all()
    else:
        assert (result >= 0).all() and (result == 1).mean() > 0.8


def test_noughts_keys_are_equal_where_its_features_are():
    game = noughts.Game()
    boards = [board for level in noughts_levels() for board in level]
    legal, keys = game.legal(tf.constant(boards)).numpy(), game.keys(tf.constant(boards)).numpy()
    features = []
    for row, move in np.argwhere(legal):
        board = boards[row]
        sheets = min((tuple(board[square] for square in way), way.index(move)) for way in turned(3))
        lines = tuple(sorted(tuple(sorted(board[square] for square in line if square != move))
                             for line in LINES if move in line))
        kind = 'centre' if move == 4 else 'corner' if move in (0, 2, 6, 8) else 'edge'
        features.append(((board, move), sheets, lines, (kind, np.count_nonzero(board))))
    assert len(features) == 16167  # moves from all positions: a known count
    for index in range(4):
        assert one_to_one(keys[legal][:, index].tolist(), [each[index] for each in features])


def test_noughts_shows_its_squares():
    game = noughts.Game()
    assert game.show([0, 0, 0, 0, -1, 0, 0, 0, 0]).splitlines() == [
        ' 1 | 2 | 3', '---+---+---', ' 4 | X | 6', '---+---+---', ' 7 | 8 | 9', 'O to move']
    assert game.show([-1, -1, -1, 1, 1, 0, 0, 0, 0]).splitlines()[-1] == ' 7 | 8 | 9'


# Go

def board_of(text, ko=0, passes=0, turns=0):
    """Rows from the top; X is who is to move."""
    rows = text.split()
    return np.array([{'X': 1, 'O': -1, '.': 0}[man] for row in reversed(rows) for man in row] + [ko, passes, turns],
                    np.int32)


def played(board, *moves):
    """The board after those moves, or None where one of them is illegal."""
    game = go.Game()
    for text in moves:
        if not game.legal(board[None])[0, game.move(text)]:
            return None
        board = game.play(board[None], np.array([game.move(text)], np.int32))[0].numpy()
    return board


def men(board):
    return board[:25].tolist()


def test_go_takes_men_without_liberties():
    corner = played(board_of('..... ..... ..... X.... O....'), 'b1')
    assert men(corner) == men(board_of('..... ..... ..... O.... .O...'))
    four_men = played(board_of('..X.. .XOX. XO.OX .XOX. ..X..'), 'c3')
    assert men(four_men) == men(board_of('..O.. .O.O. O.O.O .O.O. ..O..'))
    chain = played(board_of('OOOO. XXXOX ..XXX ..... .....'), 'e5')
    assert men(chain) == men(board_of('....O OOO.O ..OOO ..... .....'))
    liberty_left = played(board_of('OOOO. XXXO. ..XXX ..... .....'), 'e5')
    assert men(liberty_left) == men(board_of('XXXXO OOOX. ..OOO ..... .....'))


def test_go_forbids_suicide_but_not_taking_without_a_liberty_of_ones_own():
    assert played(board_of('..... ..... ..... O.... .O...'), 'a1') is None
    assert played(board_of('..... ..... OO... XXO.. .XO..'), 'a1') is None  # of a group
    taking = played(board_of('..... ..... X.... OX... .OX..'), 'a1')
    assert men(taking) == men(board_of('..... ..... O.... .O... O.O..'))
    assert taking[go.KO] == 0  # two men were taken
    assert played(board_of('OO... .O... OO... ..... .....'), 'a4') is None


def test_go_forbids_retaking_a_ko_at_once_only():
    taken = played(board_of('..... .XO.. XO.O. .XO.. .....'), 'c3')
    assert men(taken) == men(board_of('..... .OX.. O.OX. .OX.. .....'))
    assert go.Game().name(taken[go.KO] - 1) == 'b3'
    assert played(taken, 'b3') is None
    assert men(played(taken, 'e1', 'a1', 'b3')) == men(board_of('..... .XO.. XO.O. .XO.. X...O'))
    snap = board_of('..... ..... XX... OOX.. X.X..')  # the man on a1 is alone, and O takes it by b1
    back = played(snap, 'pass', 'b1')
    assert men(back) == men(board_of('..... ..... XX... OOX.. .OX..')) and back[go.KO] == 0
    assert men(played(back, 'a1')) == men(board_of('..... ..... OO... ..O.. O.O..'))  # all three, at once


@pytest.mark.parametrize('text, komi, outcome', [
    ('..... ..... ..... ..... .....', 0.5, -1),  # nobody's, so White's by komi
    ('..... ..... ..X.. ..... .....', 24.5, 1),  # all 25 are Black's
    ('..... ..... ..X.. ..... .....', 25.5, -1),
    ('..X.. ..... .XXX. ..... .O...', 0.5, 1),  # 4 men against 1, and no point of either's own
    ('.XO.. .XO.. .XO.. .XO.. .XO..', 0.5, -1),  # 10 against 15
    ('.X.O. .X.O. .X.O. .X.O. .X.O.', 0.5, -1),  # 10 each, 5 nobody's
    ('.XX.O XXX.O ..X.O ..X.O ..X.O', 0.5, 1),
    ('.XO.. .XO.. .XOO. .XXXX .....', 0.0, 1),
    ('.X.O. .X.O. .X.O. .X.O. .X.O.', 0.0, 0)])
def test_go_counts_area(text, komi, outcome):
    game = go.Game(komi=komi)
    over, result = game.result(board_of(text, passes=2, turns=20)[None])
    assert over[0] and result[0] == outcome
    white_to_move = board_of(text.translate(str.maketrans('XO', 'OX')), passes=2, turns=21)
    assert game.result(white_to_move[None])[1][0] == -outcome
    assert game.result(board_of(text, turns=60)[None])[1][0] == outcome
    over, result = game.result(board_of(text, passes=1, turns=20)[None])
    assert not over[0] and result[0] == 0


@pytest.mark.parametrize('side, positions', [(2, 57), (3, 12675)])
def test_go_reaches_every_legal_position(side, positions):
    """As many as Tromp and Farneback counted. Each can be reached: men are put down in any order, and none is taken."""
    game = go.Game(side=side, most_turns=1000)
    frontier, seen = game.start(None, 1).numpy(), set()
    while len(frontier):
        rows, moves = np.nonzero(game.legal(frontier).numpy())
        after = game.play(frontier[rows], moves.astype(np.int32)).numpy()
        after[:, go.TURNS] %= 2
        new = [row for row in np.unique(after, axis=0) if row.tobytes() not in seen and row[go.PASSES] < 2]
        seen.update(row.tobytes() for row in new)
        frontier = np.array(new).reshape([-1, game.size])
    boards = np.array([np.frombuffer(row, np.int32) for row in seen])
    colours = np.where(boards[:, go.TURNS:] == 0, 1, -1) * boards[:, :side ** 2]
    assert len(np.unique(colours, axis=0)) == positions


def test_go_has_no_perfect_player_and_a_plain_one():
    game = go.Game()
    with pytest.raises(ModelError, match='capturing'):
        game.best(game.start(None, 1))

    def choices(text, **rest):
        return {game.name(move) for move in np.flatnonzero(game.greedy(board_of(text, **rest)[None])[0])}

    assert choices('O.... X.... ..... ..... .....') == {'b5'}
    assert choices('O...O X...X ..... ..... .....') == {'b5', 'd5'}
    assert choices('O.... X.... ..... .XX.. XOO..') == {'d1'}  # two men rather than one
    assert choices('..... ..... .O... OXO.. .....') == {'b1'}  # or b2 would be taken
    not_to_be_saved = choices('..... ..... ..... OO... X.O..')
    assert len(not_to_be_saved) == 20 and not not_to_be_saved & {'b1', 'pass'}
    assert choices('.X.X. XXXXX .X.X. XXXXX .X.X.') == {'pass'}  # all are eyes
    assert choices('..... ..... ..... ..... .....', passes=2) == set()


def test_the_plain_player_beats_chance_at_go():
    game, n, draw = go.Game(), 200, DRAW(2)
    board = game.start(None, n)
    for turn in range(game.most_turns):
        mine = (np.arange(n) + turn) % 2 == 0
        allowed = np.where(mine[:, None], compiled(game, 'greedy')(board), compiled(game, 'legal')(board))
        board = compiled(game, 'play')(board, some(allowed, draw))
    over, outcome = game.result(board)
    won = np.where((np.arange(n) + board[:, go.TURNS]) % 2 == 0, outcome, -outcome) == 1
    assert over.numpy().all() and won.mean() > 0.9


def features_of_go(game, row, move):
    """What `keys` looks up, by walking over one board."""
    other = PlainGo(game, row[:25] * (1 if row[go.TURNS] % 2 == 0 else -1))
    other.turns = row[go.TURNS]
    seen = (tuple(row[:-1]), row[go.TURNS] % 2)
    if move == game.points:
        return (seen, move), 'pass', 'pass', ('pass', row[go.PASSES])
    point = other.points[move]
    sheet = [other.men.get((point[0] + y, point[1] + x), 'edge')
             for y in (-1, 0, 1) for x in (-1, 0, 1)]
    sheet = [cell if cell == 'edge' else int(cell * other.side) for cell in sheet]
    men, taken, (_, liberties) = other.tried(point)
    atari = any(men[p] == -other.side and len(other.group(p, men)[1]) == 1 for p in other.beside(point))
    return ((seen, move), tuple(sheet), min(tuple(str(sheet[square]) for square in way) for way in turned(3)),
            (min(len(liberties), 4), min(len(taken), 3), atari))


def test_gos_keys_are_equal_where_its_features_are():
    game = go.Game()
    boards = boards_of(game)[::8]
    legal, keys = game.legal(boards).numpy(), game.keys(boards).numpy()
    features = [features_of_go(game, boards[row], move) for row, move in np.argwhere(legal)]
    for index in range(4):
        assert one_to_one(keys[legal][:, index].tolist(), [each[index] for each in features])
    conditions = [each[0][0] for each in features]
    assert one_to_one(game.condition_keys(boards).numpy()[np.nonzero(legal)[0], 0].tolist(), conditions)


def test_symmetric_boards_of_go_share_patterns_and_no_position():
    game = go.Game()
    board = board_of('.XO.. XX.O. ..O.. ..XX. O....')
    keys = game.keys(board[None])[0].numpy()
    shared = np.zeros(4, int)
    for way in turned(5):
        other = np.array([[*board[way], 0, 0, 0]], np.int32)
        legal = game.legal(other)[0].numpy()
        before, after = keys[[*way, 25]][legal], game.keys(other)[0].numpy()[legal]
        assert (before[:, 2:] == after[:, 2:]).all()
        shared += np.all(before == after, 0)
        assert (before[:, 0] == after[:, 0]).any() == (way == list(range(25)))
    assert shared.tolist() == [1, 1, 8, 8]


def test_go_shows_whose_turn_it_is():
    lines = go.Game().show(board_of('..... ..X.. ..... ..... O....', ko=7, passes=1, turns=3)).splitlines()
    assert lines == ['5 . . . . .', '4 . . O . .', '3 . . . . .', '2 . . . . .', '1 X . . . .', '  a b c d e',
                     'White (O) to move; Black has passed; ko at b2']
    assert len(go.Game().show(board_of('..... ..... ..... ..... .....', passes=2)).splitlines()) == 6


# Making one

def test_a_game_is_made_from_its_name_and_options():
    assert games.make('nim', {'heaps': 1, 'highest': 20, 'most': 2}).moves == 2
    assert games.make('go', {'komi': 7}) == go.Game(komi=7)
    assert games.make('noughts') == noughts.Game()


@pytest.mark.parametrize('name, options, sentence', [
    ('chess', {}, "there is no game 'chess'; choose of nim, noughts, go"),
    ('go', {'sides': 5}, "the game 'go' has no option 'sides'; its options are side, komi, most_turns"),
    ('noughts', {'side': 3}, "the game 'noughts' has no option 'side'; it has none"),
    ('nim', {'most': '2'}, "the game 'nim': most is '2'; give it as int, such as 5"),
    ('nim', {'heaps': True}, "the game 'nim': heaps is True; give it as int, such as 3"),
    ('nim', {'heaps': 0}, "the game 'nim': heaps, highest and most must be 1 or more; they are 0, 5 and 5"),
    ('nim', {'opening': 'half'}, "the game 'nim': opening is 'half'; choose 'any' or 'full'"),
    ('nim', {'heaps': 12}, "the game 'nim': 12 heaps of up to 5 have more positions than keys of 31 bits; "
                           'choose fewer or lower heaps'),
    ('go', {'side': 9}, "the game 'go': side is 9; choose 2 to 7, whose points fit in 63 bits"),
    ('go', {'most_turns': 0}, "the game 'go': most_turns is 0; choose 1 or more")])
def test_what_a_game_cannot_be_is_said_in_a_sentence(name, options, sentence):
    with pytest.raises(ModelError) as error:
        games.make(name, options)
    assert str(error.value) == sentence
