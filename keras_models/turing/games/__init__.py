"""Games as tensors: thousands of boards at once, a row each, by plain functions that compile under XLA.

A module has a frozen dataclass `Game`, whose fields are its parameters. Boards [n, …] are seen by the player to move:
own men are 1, those of the other side -1, empty points 0.

- `moves`, `size`, `most_turns`: A, the number of choices; P, the numbers in a board; the largest number of turns.
- `start(seed, n)`: int32 [2] -> boards int32 [n, P], a function of the seed alone.
- `legal(board)`: bool [n, A], all false once a game is over.
- `play(board, move)`: with int32 [n] -> [n, P], as the other player sees it. A board that is over stays as it is. The
  caller checks that the move is legal.
- `result(board)`: over, bool [n], and outcome, int32 [n]: 1 won, -1 lost, 0 drawn or not over.
- `best(board)`: bool [n, A], the choices of perfect play, all that keep the board's value; none once a game is over.
- `features`, `keys(board)`: the names of F indexes; int32 [n, A, F] from 0 to 2^31 - 1, the key of each choice in each
  index. The first is the whole position with the choice; the others are coarser, 'patterns of men on parts of' the
  board (Turing). The key of an illegal choice is undefined.
- `conditions`, `condition_keys(board)`: names of C features of a position without a choice; int32 [n, C] from 0. The
  first is the whole position; the others are shared by similar positions.
- `language`: the statements about positions (`nim_language.Language`), or None.
- `read(texts)`, `write(board)`: strings [n] -> boards and back, in a graph: `3 4 5` for Nim, else as `games.texts`.
- `show(board)`, `name(move)`, `move(text)`: a board [P] for a terminal, a choice as a person types it, and back.
"""
import dataclasses

from keras_models import ModelError
from keras_models.turing.games import go, nim, noughts

GAMES: dict[str, type] = {'nim': nim.Game, 'noughts': noughts.Game, 'go': go.Game}


def make(name: str, options: dict | None = None):
    """Return the `Game` of a name with its parameters.

    Raises:
      ModelError: there is no such game or option, or the option cannot have this value.
    """
    if name not in GAMES:
        raise ModelError(f'there is no game {name!r}; choose of {", ".join(GAMES)}')
    defaults = {field.name: field.default for field in dataclasses.fields(GAMES[name])}
    for key, value in (options or {}).items():
        if key not in defaults:
            known = f'its options are {", ".join(defaults)}' if defaults else 'it has none'
            raise ModelError(f'the game {name!r} has no option {key!r}; {known}')
        kind = type(defaults[key])
        if type(value) is not kind and not (kind is float and type(value) is int):
            raise ModelError(f'the game {name!r}: {key} is {value!r}; give it as {kind.__name__}, '
                             f'such as {defaults[key]!r}')
    try:
        return GAMES[name](**(options or {}))
    except ValueError as error:
        raise ModelError(f'the game {name!r}: {error}') from error
