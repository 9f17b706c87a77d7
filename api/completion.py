"""Completion for shells: `everstep completion bash`, `zsh` or `fish` prints a script made from the commands' arguments.

    eval "$(everstep completion bash)"            in ~/.bashrc
    eval "$(everstep completion zsh)"             in ~/.zshrc, after compinit
    everstep completion fish | source             in ~/.config/fish/config.fish
"""
from __future__ import absolute_import, division, print_function

import argparse
import re
from collections import namedtuple

try:
    from typing import Optional, Sequence  # noqa: F401
except ImportError:  # Python 2
    pass

SHELLS = ("bash", "zsh", "fish")

# name, help: of a command. options: its `Option`s. words: what its positional arguments can be; None if they are files
Command = namedtuple("Command", "name help options words")
# flags: ["-h", "--help"]. words: what its value can be; () if it takes none or nobody knows
Option = namedtuple("Option", "flags help words")

BASH = """\
# Completion of everstep for bash. Load it: eval "$(everstep completion bash)"
_everstep() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} command=${{COMP_WORDS[1]}} words=
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{commands} {flags}"
    else
        case "$command $previous" in
{values}
        *)
            case "$command $word" in
{options}
            esac
            ;;
        esac
    fi
    if [ -n "$words" ]; then
        COMPREPLY=($(compgen -W "$words" -- "$word"))
    fi
}}
complete -o default -F _everstep everstep
"""

ZSH = """\
#compdef everstep
# Completion of everstep for zsh. Load it after compinit: eval "$(everstep completion zsh)"
_everstep() {{
    local -a names
    if (( CURRENT == 2 )); then
        names=({commands})
        _describe command names
        return
    fi
    case "$words[2] $words[CURRENT-1]" in
{values}
    esac
    case "$words[2] $words[CURRENT]" in
{options}
    *) _files ;;
    esac
}}
compdef _everstep everstep
"""


def script(shell, parser, words):
    """Returns the script for a shell.

    Args:
        shell: one of `SHELLS`.
        parser: the parser of all commands.
        words: `{metavar: what such an argument can be}`.
    """
    commands = list(_commands(parser, words))
    flags = [flag for action in parser._actions for flag in action.option_strings]
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](commands, flags)


def _commands(parser, words):
    """Yields the `Command`s of a parser."""
    subparsers = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)][0]
    helps = {action.dest: action.help for action in subparsers._choices_actions}
    for name in sorted(subparsers.choices):
        options = []
        names = ()  # type: Optional[Sequence[str]]
        for action in subparsers.choices[name]._actions:
            can_be = action.choices or words.get(action.metavar, ())
            if action.option_strings:
                options.append(Option(action.option_strings, action.help or "", can_be))
            elif can_be:
                names = can_be
            else:
                names = None
        yield Command(name, helps[name], options, names)


def _bash(commands, flags):
    values, options = [], []
    for command in commands:
        for option in command.options:
            if option.words:
                patterns = "|".join('"{} {}"'.format(command.name, flag) for flag in option.flags)
                values.append('        {}) words="{}" ;;'.format(patterns, " ".join(option.words)))
        every = " ".join(flag for option in command.options for flag in option.flags)
        options.append('            "{} -"*) words="{}" ;;'.format(command.name, every))
        if command.words:
            options.append('            "{} "*) words="{}" ;;'.format(command.name, " ".join(command.words)))
    return BASH.format(commands=" ".join(command.name for command in commands), flags=" ".join(flags),
                       values="\n".join(values), options="\n".join(options))


def _zsh(commands, flags):
    values, options = [], []
    for command in commands:
        for option in command.options:
            if option.words:
                patterns = "|".join('"{} {}"'.format(command.name, flag) for flag in option.flags)
                values.append("    ({})\n        compadd -- {}\n        return ;;".format(
                    patterns, " ".join(option.words)))
        every = " ".join(_quoted("{}:{}".format(flag, _short(option.help).replace(":", " ")))
                         for option in command.options for flag in option.flags)
        options.append('    "{} -"*)\n        names=({})\n        _describe option names\n        ;;'.format(
            command.name, every))
        if command.words is not None:
            options.append('    "{} "*) compadd -- {} ;;'.format(command.name, " ".join(command.words)))
    names = " ".join(_quoted("{}:{}".format(command.name, command.help.replace(":", " "))) for command in commands)
    return ZSH.format(commands=names, values="\n".join(values), options="\n".join(options))


def _fish(commands, flags):
    lines = ["# Completion of everstep for fish. Load it: everstep completion fish | source"]
    for flag in flags:
        lines.append("complete -c everstep -n __fish_use_subcommand {}".format(_fish_flag(flag)))
    for command in commands:
        lines.append("complete -c everstep -n __fish_use_subcommand -f -a {} -d {}".format(
            command.name, _fish_quoted(command.help)))
        here = "complete -c everstep -n '__fish_seen_subcommand_from {}'".format(command.name)
        if command.words is not None:
            lines.append(here + " -f" + (" -a " + _quoted(" ".join(command.words)) if command.words else ""))
        for option in command.options:
            value = " -x -a " + _quoted(" ".join(option.words)) if option.words else ""
            flags_ = " ".join(map(_fish_flag, option.flags))
            lines.append("{} {}{} -d {}".format(here, flags_, value, _fish_quoted(_short(option.help))))
    return "\n".join(lines) + "\n"


def _fish_flag(flag):
    return "-l " + flag[2:] if flag.startswith("--") else "-s " + flag[1:]


def _short(text):
    """Returns the beginning of a help text, as a description of one line."""
    return re.split(r"[;:,] ", text)[0]


def _quoted(text):
    """Returns text in single quotes for bash and zsh."""
    return "'{}'".format(text.replace("'", "'\\''"))


def _fish_quoted(text):
    return "'{}'".format(text.replace("\\", "\\\\").replace("'", "\\'"))
