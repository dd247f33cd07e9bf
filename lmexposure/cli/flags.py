"""Flags made of declared settings: a command names the groups that it takes, and gets their values.

A flag that is not given is None: a settings file may speak.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import update_wrapper
from typing import Literal, ParamSpec, TypeAlias, get_origin

import typer
from typer.models import OptionInfo

from lmexposure._settings import Setting, build
from lmexposure._style import sentence

Given: TypeAlias = dict[str, object]
P = ParamSpec("P")


@dataclass(frozen=True, kw_only=True)
class Group:
    """Flags of a command that become one of its arguments.

    Attributes:
        flags: argument of the command line -> what is declared of it.
        first: those among them that people use most: they come first in the help, in no panel.
        said: other words for some, where they mean less to this command.
        more: parameters that are no settings, such as a file of them.
        old: name of old -> its type; read, and in no help.
        make: what the command gets, of the flags that were given (not None) by their arguments.
    """

    flags: Mapping[str, Setting]
    first: Sequence[str] = ()
    said: Mapping[str, str] = field(default_factory=dict)
    more: Sequence[inspect.Parameter] = ()
    old: Mapping[str, type] = field(default_factory=dict)
    make: Callable[[Given], object] = dict


def takes(**groups: Group) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Give a command these groups of flags, each for one of its arguments.

    Args:
        groups: by the argument that gets what a group makes.
    """

    def command_of(function: Callable[P, None]) -> Callable[P, None]:
        own = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for name, parameter in inspect.signature(function).parameters.items()
            if name not in groups
        ]
        parts = {name: _parameters(group) for name, group in groups.items()}

        def command(**given: object) -> None:
            made = {name: group.make(_given(parts[name], given)) for name, group in groups.items()}
            build(function, {**{p.name: given[p.name] for p in own}, **made})

        update_wrapper(command, function)
        every = [*own, *(parameter for part in parts.values() for parameter in part)]
        vars(command)["__signature__"] = inspect.Signature(every)
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in every}
        return command  # type: ignore[return-value]

    return command_of


def option_of(told: Setting, *, panel: str | None = None, said: str | None = None) -> OptionInfo:
    """The flag of a setting.

    Args:
        told: what is declared of it.
        panel: of the help; None: above all panels.
        said: its words; None: those that are declared.
    """
    return _option(
        told.flag or "", help=said or help_of(told), metavar=told.metavar or None, panel=panel
    )


def help_of(told: Setting) -> str:
    """What a help says of a setting: a sentence, and its default."""
    said = sentence(told.help)
    return said if told.default is False else f"{said}  [default: {told.shown_default}]"


def _option(
    flag: str,
    *,
    help: str | None = None,
    metavar: str | None = None,
    panel: str | None = None,
    hidden: bool = False,
) -> OptionInfo:
    made: OptionInfo = typer.Option(
        ..., flag, help=help, metavar=metavar, rich_help_panel=panel, hidden=hidden
    )
    return made


def _parameters(group: Group) -> list[inspect.Parameter]:
    """As Typer reads them; those that people use most come first, in their order."""
    names = [*group.first, *(name for name in group.flags if name not in group.first)]
    found = [_flag_of(name, group) for name in names]
    old = [
        _parameter(name, _option("--" + name.replace("_", "-"), hidden=True), kind)
        for name, kind in group.old.items()
    ]
    return [*found, *group.more, *old]


def _flag_of(name: str, group: Group) -> inspect.Parameter:
    told = group.flags[name]
    panel = None if name in group.first else told.panel
    option = option_of(told, panel=panel, said=group.said.get(name))
    return _parameter(name, option, _type_of(told))


def _parameter(name: str, option: OptionInfo, kind: object) -> inspect.Parameter:
    option.default = None
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option, annotation=kind)


def _type_of(told: Setting) -> object:
    """What the command line reads a flag as; a list where it may be repeated."""
    if told.parse is not None or get_origin(told.kind) is Literal:
        return str
    return list[str] if get_origin(told.kind) is tuple else told.kind


def _given(parameters: Sequence[inspect.Parameter], given: Mapping[str, object]) -> Given:
    """Those of a group's flags that were given."""
    return {one.name: given[one.name] for one in parameters if given[one.name] is not None}


def parsed(flags: Mapping[str, Setting], given: Given) -> Given:
    """The same, with the texts of flags read that have a way of their own to be written."""
    return {
        name: told.parse(told.flag or name, value)
        if (told := flags.get(name)) is not None and told.parse is not None
        else value
        for name, value in given.items()
    }
