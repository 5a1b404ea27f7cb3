"""A pytest plugin that reduces Beam's work for the tests' hundreds of small jobs by a third.

Most of what such a job costs is none of its own. Of 0.96 CPU s of one over 30 images, Beam took 0.3 to ask again and
again for the signatures of every method of its functions, in search of user state that none has, and to measure over
the globals of all modules how much memory a cached value takes. What a job computes is the same.
"""
import sys
import types
from collections.abc import Callable


def pytest_collection_finish() -> None:
    if 'apache_beam' in sys.modules:  # its import takes 3 s, and not every file needs it
        install()


def install() -> None:
    from apache_beam.runners.worker import statecache
    from apache_beam.transforms import core, userstate
    statecache.get_deep_size = lambda *values: 1024
    core.get_function_args_defaults = _remembering(core.get_function_args_defaults, _function)
    userstate.get_dofn_specs = _remembering(userstate.get_dofn_specs, _function_of)


def _remembering(ask: Callable, key: Callable) -> Callable:
    """`ask`, which returns a tuple of collections, called once for each `key(argument)` that is not None."""
    answers: dict = {}

    def answer(argument):
        if (name := key(argument)) is None:
            return ask(argument)
        if name not in answers:
            answers[name] = ask(argument)
        return tuple(each.copy() for each in answers[name])
    return answer


def _function(function):
    """What decides on a function's arguments: the function, and whether it is bound to an object."""
    if isinstance(function, types.FunctionType | types.MethodType):
        return getattr(function, '__func__', function), isinstance(function, types.MethodType)
    return None


def _function_of(dofn):
    """What decides on a DoFn's state: its class, and the function that an element-wise transform has put into it."""
    if not hasattr(dofn, '_fn'):
        return type(dofn), None
    function = _function(dofn._fn)
    return function and (type(dofn), function)
