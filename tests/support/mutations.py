"""Mutants of a source file: every small change at one place of its syntax tree that a test should detect.

Docstrings, annotations and messages stay: string constants with a space, f-strings, and what is raised.
"""
import ast
import copy
from collections.abc import Iterator
from typing import NamedTuple

COMPARISONS = {ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE),
               ast.GtE: (ast.Gt, ast.Lt), ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.In: (ast.NotIn,),
               ast.NotIn: (ast.In,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,)}
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
             ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
             ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitAnd}
OPPOSITES = [('min', 'max'), ('any', 'all'), ('minimum', 'maximum'), ('reduce_any', 'reduce_all'),
             ('zeros', 'ones'), ('reduce_min', 'reduce_max'), ('reduce_sum', 'reduce_mean'),
             ('zeros_like', 'ones_like'), ('equal', 'not_equal'), ('startswith', 'endswith'),
             ('removeprefix', 'removesuffix'), ('argmin', 'argmax')]
OPPOSITE = {**dict(OPPOSITES), **{other: one for one, other in OPPOSITES}}


class Mutant(NamedTuple):
    """Bytes `start` to `end` of a source become `new`."""
    line: int
    start: int
    end: int
    old: str
    new: str

    @property
    def change(self) -> str:
        return ' -> '.join(' '.join(text.split()) for text in (self.old, self.new))

    def applied(self, source: bytes) -> bytes:
        return source[:self.start] + self.new.encode() + source[self.end:]


def other_constants(value) -> list:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1]
    if isinstance(value, float):
        return [2 * value or 1.0]
    if isinstance(value, str):
        return [] if ' ' in value else [f'XX{value}']
    return [b'XX' + value] if isinstance(value, bytes) else []


def changed(node: ast.AST, **fields) -> ast.AST:
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


def expressions(node: ast.AST) -> Iterator[ast.AST | None]:
    """What may stand in an expression's place."""
    match node:
        case ast.Compare(ops=ops):
            for place, op in enumerate(ops):
                for other in COMPARISONS[type(op)]:
                    yield changed(node, ops=[*ops[:place], other(), *ops[place + 1:]])
        case ast.BoolOp(op=op, values=values):
            yield changed(node, op=ast.Or() if isinstance(op, ast.And) else ast.And())
            for place in range(len(values)):
                yield changed(node, values=values[:place] + values[place + 1:]) if len(values) > 2 else (
                    values[1 - place])
        case ast.UnaryOp(operand=operand) if not isinstance(operand, ast.Constant):
            yield operand
        case ast.BinOp(op=op) if type(op) in OPERATORS:
            yield changed(node, op=OPERATORS[type(op)]())
        case ast.Constant(value=value):
            for other in other_constants(value):
                yield ast.Constant(other)
        case ast.IfExp():
            yield from (node.body, node.orelse)
        case ast.Call(func=func, args=args, keywords=keywords):
            for place, keyword in enumerate(keywords):
                if keyword.arg:
                    yield changed(node, keywords=keywords[:place] + keywords[place + 1:])
            if len(args) > 1:
                yield changed(node, args=args[:-1])
            name = func.id if isinstance(func, ast.Name) else getattr(func, 'attr', '')
            if name in OPPOSITE:
                field = 'id' if isinstance(func, ast.Name) else 'attr'
                yield changed(node, func=changed(func, **{field: OPPOSITE[name]}))
        case ast.Subscript(slice=ast.Slice() as part):
            for name in ('lower', 'upper'):
                if bound := getattr(part, name):
                    yield changed(node, slice=changed(part, **{name: None}))
                    for op in (ast.Add(), ast.Sub()):
                        other = ast.BinOp(bound, op, ast.Constant(1))
                        yield changed(node, slice=changed(part, **{name: other}))


def statements(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Expr(value=ast.Call()) | ast.Raise():
            yield 'pass'
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield 'pass'
        case ast.AugAssign(op=op):
            yield 'pass'
            if type(op) in OPERATORS:
                yield ast.unparse(changed(node, op=OPERATORS[type(op)]()))
        case ast.Return(value=value) if value and not (isinstance(value, ast.Constant)
                                                       and value.value is None):
            yield 'return None'
        case ast.Continue():
            yield 'break'
        case ast.Break():
            yield 'pass'


def conditions(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Conditions, and what may stand in their place; no loop is made endless."""
    if isinstance(node, ast.If):
        yield from ((node.test, value) for value in ('True', 'False'))
    elif isinstance(node, ast.While) and not isinstance(node.test, ast.Constant):
        yield node.test, 'False'
    elif isinstance(node, ast.comprehension):
        yield from ((test, 'True') for test in node.ifs)
    elif isinstance(node, ast.ExceptHandler) and isinstance(node.type, ast.Tuple):
        for place in range(len(node.type.elts)):
            rest = node.type.elts[:place] + node.type.elts[place + 1:]
            yield node.type, ast.unparse(changed(node.type, elts=rest))


def changeable(node: ast.AST) -> Iterator[ast.AST]:
    """Every node below that may be changed; no docstring, annotation or message."""
    for name, field in ast.iter_fields(node):
        for child in field if isinstance(field, list) else [field]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr):
                continue
            if name in ('annotation', 'returns'):
                continue
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                continue
            if isinstance(child, ast.If) and ast.unparse(child.test) == "__name__ == '__main__'":
                continue
            yield child
            if not isinstance(child, ast.Raise):
                yield from changeable(child)


def mutants(source: bytes, functions: tuple[str, ...] = ()) -> list[Mutant]:
    """All mutants of a module's source, or of some functions of it; a few of them may be no Python."""
    tree, found, starts = ast.parse(source), {}, [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def add(node, new: str) -> None:
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        found[start, end, new] = Mutant(node.lineno, start, end, source[start:end].decode(), new)

    named = [node for node in ast.walk(tree) if getattr(node, 'name', '') in functions]
    parts = named if functions else [tree]
    for node in (each for part in parts for each in changeable(part)):
        for new in expressions(node):
            plain = isinstance(new, ast.Constant | ast.Call | ast.Name | ast.Subscript)
            add(node, ast.unparse(new) if plain else f'({ast.unparse(new)})')
        for new in statements(node):
            add(node, new)
        for test, new in conditions(node):
            add(test, new)
    return [found[key] for key in sorted(found)]


def differs(mutant: Mutant, source: bytes) -> bool:
    """Whether a mutant is Python and does not mean the same as before."""
    try:
        return ast.dump(ast.parse(mutant.applied(source))) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False
