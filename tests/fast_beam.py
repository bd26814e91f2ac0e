"""Remembers what Beam works out anew for each pipeline: half of the CPU of a small one.

Beam inspects every method of a DoFn some 80 times a pipeline, and makes a hundred parsers of
options. Both depend on classes and flags alone, so they are remembered for a process of tests.
`--plain-beam` runs the tests without it; tests/test_fast_beam.py compares both answers.
"""

from __future__ import annotations

import argparse
import sys
import types
from collections.abc import Callable, MutableMapping
from typing import Any
from weakref import WeakKeyDictionary


def install() -> Callable[[], None]:
    """Patches Beam in this process; returns what takes the patches back."""
    from apache_beam.options import pipeline_options
    from apache_beam.transforms import core, userstate

    patches: list[tuple[Any, str, Any]] = [
        (userstate, "get_dofn_specs", _specs_by_class(userstate.get_dofn_specs)),
        (core, "get_function_args_defaults", _by_function(core.get_function_args_defaults)),
        (
            pipeline_options.PipelineOptions,
            "__init__",
            _options_by_flags(pipeline_options.PipelineOptions.__init__),
        ),
    ]
    originals = [(owner, name, getattr(owner, name)) for owner, name, _ in patches]
    for owner, name, patch in patches:
        setattr(owner, name, patch)

    def uninstall() -> None:
        for owner, name, original in originals:
            setattr(owner, name, original)

    return uninstall


def _specs_by_class(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    known: MutableMapping[type, Any] = WeakKeyDictionary()

    def get_dofn_specs(dofn: Any) -> Any:
        if any(isinstance(value, types.MethodType) for value in vars(dofn).values()):
            return original(dofn)  # this object's methods are not those of its class
        if type(dofn) not in known:
            known[type(dofn)] = original(dofn)
        states, timers = known[type(dofn)]
        return set(states), set(timers)

    return get_dofn_specs


def _by_function(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    known: MutableMapping[Any, Any] = WeakKeyDictionary()
    bound: MutableMapping[Any, Any] = WeakKeyDictionary()

    def get_function_args_defaults(function: Any) -> Any:
        is_method = isinstance(function, types.MethodType)
        memory = bound if is_method else known
        key = function.__func__ if is_method else function
        if not isinstance(key, types.FunctionType):
            return original(function)
        if key not in memory:
            memory[key] = original(function)
        arguments, defaults = memory[key]
        return [*arguments], [*defaults]

    return get_function_args_defaults


def _options_by_flags(original: Callable[..., None]) -> Callable[..., None]:
    known: dict[Any, argparse.Namespace] = {}

    def init(self: Any, flags: Any = None, **kwargs: Any) -> None:
        if isinstance(flags, str):
            original(self, flags, **kwargs)  # which refuses it
            return
        key = type(self), tuple(sys.argv[1:] if flags is None else flags)
        if key not in known:
            original(self, flags, **kwargs)
            known[key] = _copied(self._visible_options)
            return
        self._flags, self._visible_options = flags, _copied(known[key])
        self._all_options = kwargs
        for name in self._visible_option_list():
            kwargs.setdefault(name, getattr(self._visible_options, name))

    return init


def _copied(options: argparse.Namespace) -> argparse.Namespace:
    """With lists and dicts of its own, as users of options add to them."""
    mutable = (list, dict)
    return argparse.Namespace(
        **{
            name: value.copy() if isinstance(value, mutable) else value
            for name, value in vars(options).items()
        }
    )
