"""Command-line options of all commands, apart from what the commands do.

It imports next to nothing, so that help, the version and a mistyped command are answered at once.
"""

from __future__ import annotations

import argparse
import difflib
import pathlib
from collections.abc import Iterable, Sequence
from typing import Final

_NAME: Final = "interpreter-bot"
_START: Final = """\
Start here:
  interpreter-bot run                       the page, and Slack and Discord where they are set up
  interpreter-bot ask "plot x**2 - x"       one question, answered in this terminal
  interpreter-bot ask                       a chat in this terminal
  interpreter-bot exec --cell "print(2)"    your own code, without a model
  interpreter-bot doctor                    check the sandbox of this machine

`interpreter-bot COMMAND --help` explains a command."""
_RUN: Final = (
    "Ends on SIGTERM or SIGINT once running turns are over; a second signal ends it at once. "
    "Exit status: 0 ended as asked, 1 a platform failed, 2 nothing could be started."
)
_SETUP: Final = """\
Each is tried before it is stored, encrypted, in the data directory. What the environment or the
configuration file says counts before it.
"""
_ASK: Final = """\
Several prompts are several turns of one session. Without a prompt, standard input is the question,
or, at a terminal, a chat begins. With a prompt, what comes through a pipe is a file of the session.

  interpreter-bot ask --file sales.csv "plot units by region" "and which region grew fastest?"
  curl -s "$address" | interpreter-bot ask "how many rows have no price?"
  interpreter-bot ask --keep pictures "plot the revenue by month"
  interpreter-bot ask < question.txt
  interpreter-bot ask

Exit status: 0 if every turn was answered and everything was kept that --keep asks for; 1 if not;
2 if nothing was asked."""
_EXEC: Final = """\
  interpreter-bot exec --file sales.csv --cell "import pandas as pd; pd.read_csv('sales.csv')"
  interpreter-bot exec --keep results analysis.ipynb
  interpreter-bot exec --watch analysis.py

With --watch all cells run again whenever the file changes, in the same Python: what was imported
and computed is there. Ctrl-C stops a run, and ends the watch between two.

Exit status: 0 if every cell ended ok and everything was kept that --keep asks for; 1 if not, or if
the output was not read to its end; 2 if nothing was run."""


_ROTATE: Final = """\
Makes a key, puts it before the others in the key file, and encrypts with it what the database
holds. Where INTERPRETER_BOT_ENCRYPTION__KEYS has the keys, put a new one first there instead, with
the former ones after it, and run this. A bot that runs goes on meanwhile; once it was started
again, the older keys are needed for backups only."""
_HOST: Final = """\
Without a verb: keep kernels until SIGTERM; then what runs gets its time, and it ends. A bot on this
machine whose settings say the same paths finds it.

  interpreter-bot host status    print what the host of these settings does
  interpreter-bot host drain     start no more kernels, and end when the last one is gone
  interpreter-bot host certificate host-1.example 10.0.0.5
                                 make files for TLS, of a host by its names; or of --bot NAME"""
_FLEET: Final = """\
Needs the extra [cluster]. On each node `ray start` is given the variables of its host, such as
INTERPRETER_BOT_HOST__LISTEN and INTERPRETER_BOT_HOST__TLS; bots have the same database as this, and
host.fleet = ["ray"]. Hosts and bots go on without it, and without Ray."""
_MCP: Final = """\
Without a verb: be an MCP server for the agent that started this, over standard input and output.
What it makes is gone when it ends. `interpreter-bot run` serves agents over HTTP, where mcp.enabled
is set; each needs a token.

  interpreter-bot mcp add NAME       let a client in, and print its token
  interpreter-bot mcp remove NAME    refuse its token from now on
  interpreter-bot mcp clients        print who may"""
_SKILLS: Final = """\
Without a verb: list the skills of skills.directories, whether each is used, and what has changed.
One is used once it was accepted, and as long as it stays as it was then.

  interpreter-bot skills accept NAME@DIGEST…   use them as they were listed
  interpreter-bot skills refuse NAME…   use them no more

Exit status: 0 if all are used, or it was done; 1 if some are not; 2 if it could not be done."""
_TOOLS: Final = """\
Without a verb: ask the servers of mcp_servers what they offer, and list each tool, whether it is
used, and what has changed. A tool is used once it was accepted, and as long as it stays as it was.

  interpreter-bot tools accept NAME@DIGEST…   use what a server offers, as it was listed
  interpreter-bot tools refuse NAME…          use nothing of it any more

Exit status: 0 if all are used, or it was done; 1 if some are not; 2 if it could not be done."""
_LIBRARIES: Final = """\
The first start does this by itself. What was chosen before stays chosen.

  interpreter-bot libraries          install or update what most analysis needs
  interpreter-bot libraries full     and polars, statsmodels, bokeh, altair, folium and more fonts
  interpreter-bot libraries media    and ffmpeg, for video and sound

The environment is the bot's own, in its virtual environment or data directory. With kernels.python
set, code runs in another one."""
_SESSIONS: Final = """\
  interpreter-bot sessions                      list those with a Python or saved variables
  interpreter-bot sessions save 3fa2b1c0        save the variables of one now
  interpreter-bot sessions end 3fa2 77c1        save the variables of two, and end their Python
  interpreter-bot sessions forget 3fa2b1c0      delete its Python, variables and files
  interpreter-bot sessions move 3fa2 host-2.example:7443

A name may be shortened as long as it stays the name of one. What was said is kept.

Exit status: 0 if all was done; 1 if some was not; 2 if nothing was."""
_MODULES: Final = {
    "exec": "execute",
    "rotate-keys": "rotate_keys",
    "sessions": "sessions_command",
    "tools": "tool_acceptance",
}


def read(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; ends the process where it asks for help, or is wrong.

    Returns:
        The options, and with them `module`, the command's in this package, and `log_level`.
    """
    parser = argparse.ArgumentParser(
        prog=_NAME,
        description="A self-hosted code interpreter for chat.",
        epilog=_START,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    parser.add_argument("--config", type=pathlib.Path, help="a TOML file of settings")
    parser.add_argument("-v", "--verbose", action="store_true", help="log what happens")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, add_options, about, epilog in (
        ("run", _add_run, "run the bot: the page, Slack, Discord", _RUN),
        ("setup", _add_nothing, "enter a model's key, and tokens of Slack and Discord", _SETUP),
        ("ask", _add_ask, "ask a question that is answered by running code", _ASK),
        ("exec", _add_exec, "run cells in one sandboxed session", _EXEC),
        ("host", _add_host, "keep kernels for bots, or ask a host what it does", _HOST),
        ("fleet", _add_fleet, "keep a host on each node of a Ray cluster", _FLEET),
        ("mcp", _add_mcp, "give other agents this sandbox as tools", _MCP),
        ("skills", _add_skills, "list what the operator teaches models, accept it", _SKILLS),
        ("tools", _add_tools, "list what tools code can call, accept them", _TOOLS),
        ("doctor", _add_json, "check the sandbox of this machine", ""),
        ("libraries", _add_libraries, "install what code may import", _LIBRARIES),
        ("sessions", _add_sessions, "list, save, end, move or forget sessions", _SESSIONS),
        ("limits", _add_json, "print the limits of a session", ""),
        ("rotate-keys", _add_nothing, "encrypt stored secrets with a new key", _ROTATE),
    ):
        command = commands.add_parser(
            name,
            help=about,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter
            if "\n" in epilog
            else argparse.HelpFormatter,
        )
        add_options(command)
        # Interactive commands print their own sentences; unattended ones warn in their log.
        command.set_defaults(
            module=_MODULES.get(name, name),
            log_level="warning" if name in ("run", "host", "fleet", "mcp") else "error",
        )
    _check_command(parser, arguments, commands.choices)
    return parser.parse_args(arguments)


def _check_command(
    parser: argparse.ArgumentParser, arguments: Sequence[str], names: Iterable[str]
) -> None:
    """End the process if there is no such command, with the one that may be meant."""
    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--config")
    first.add_argument("command", nargs="?")
    name = first.parse_known_args(arguments)[0].command
    if name is None or name in names:
        return
    alike = difflib.get_close_matches(name, names, 1)
    hint = f"Did you mean {alike[0]}?" if alike else f"{_NAME} --help lists them."
    parser.exit(2, f"{_NAME}: There is no command {name}. {hint}\n")


class _Version(argparse.Action):
    """Option that looks the version up only if asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print the version and exit."""
        from importlib import metadata

        parser.exit(message=f"{_NAME} {metadata.version(_NAME)}\n")


def _add_run(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--unsafe-no-sandbox", action="store_true", help="run everybody's code with your own rights"
    )


def _add_host(command: argparse.ArgumentParser) -> None:
    verbs = ("serve", "status", "drain", "certificate")
    command.add_argument("verb", nargs="?", choices=verbs, default="serve")
    command.add_argument(
        "names", nargs="*", metavar="NAME", help="of the host whose certificate is made"
    )
    command.add_argument("--bot", default="", metavar="NAME", help="make the certificate of a bot")
    command.add_argument(
        "--days", type=int, default=365, metavar="N", help="how long a certificate is valid"
    )
    command.add_argument(
        "--directory",
        type=pathlib.Path,
        default=pathlib.Path("certificates"),
        metavar="DIR",
        help="of the authority, made when there is none, and of what it signs",
    )
    command.add_argument(
        "--linger", type=float, metavar="SECONDS", help="end when no bot came for this long"
    )
    command.add_argument(
        "--unsafe-no-sandbox", action="store_true", help="run everybody's code with your own rights"
    )


def _add_fleet(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--address", default="auto", metavar="A", help="of the head, as `ray start` prints it"
    )


def _add_mcp(command: argparse.ArgumentParser) -> None:
    verbs = ("serve", "add", "remove", "clients")
    command.add_argument("verb", nargs="?", choices=verbs, default="serve")
    command.add_argument("name", nargs="?", default="", metavar="NAME", help="of a client")
    command.add_argument(
        "--unsafe-no-sandbox", action="store_true", help="run the code with your own rights"
    )


def _add_skills(command: argparse.ArgumentParser) -> None:
    verbs = ("list", "accept", "refuse")
    command.add_argument("verb", nargs="?", choices=verbs, default="list")
    command.add_argument("names", nargs="*", metavar="NAME", help="of a skill")


def _add_tools(command: argparse.ArgumentParser) -> None:
    verbs = ("list", "accept", "refuse")
    command.add_argument("verb", nargs="?", choices=verbs, default="list")
    command.add_argument("names", nargs="*", metavar="NAME", help="of a server, and what of it")


def _add_sessions(command: argparse.ArgumentParser) -> None:
    command.add_argument("--all", action="store_true", help="list those with files only, too")
    _add_json(command)
    verbs = command.add_subparsers(dest="verb", metavar="VERB")
    for verb, about in (
        ("save", "save variables now"),
        ("end", "save variables and stop Python"),
        ("move", "move one to another machine"),
        ("forget", "delete Python, variables and files"),
    ):
        parser = verbs.add_parser(verb, help=about)
        count = 1 if verb == "move" else "+"
        parser.add_argument("names", nargs=count, metavar="NAME", help="as the list shows it")
        if verb == "move":
            parser.add_argument("host", metavar="HOST", help="its address, as in host.fleet")
        if verb == "forget":
            parser.add_argument("--yes", action="store_true", help="without being asked")


def _add_libraries(command: argparse.ArgumentParser) -> None:
    command.add_argument("groups", nargs="*", type=_group, metavar="GROUP", help="full or media")


def _group(name: str) -> str:
    if name not in ("core", "full", "media"):
        raise argparse.ArgumentTypeError(f"there is no group {name}")
    return name


def _add_nothing(command: argparse.ArgumentParser) -> None:
    """Leave a command without options."""


def _add_ask(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "prompt", nargs="*", metavar="PROMPT", help="what you want to know; - is standard input"
    )
    command.add_argument(
        "--model", default="", metavar="M", help="one of the models of the settings"
    )
    command.add_argument(
        "--approval",
        choices=("never", "plan", "every"),
        default="never",
        help="whether you are asked before the model's code runs: not, once a turn, every time",
    )
    command.add_argument(
        "--queries",
        action="store_true",
        help="print what code asked of data connections below each answer",
    )
    _add_session(command)


def _add_exec(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "source", nargs="?", metavar="SCRIPT.py|NOTEBOOK.ipynb|-", help="cells to run first"
    )
    command.add_argument("--cell", action="append", default=[], metavar="CODE", help="a cell")
    command.add_argument(
        "--watch", action="store_true", help="run the file again whenever it changes"
    )
    _add_session(command)


def _add_session(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--file",
        action="append",
        default=[],
        type=pathlib.Path,
        metavar="F",
        help="a file to put into /mnt/data; - is what comes through a pipe",
    )
    command.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object per line; answers to questions come as such lines, too",
    )
    command.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="save images and files")
    command.add_argument(
        "--pictures",
        choices=("auto", "kitty", "iterm2", "sixel", "blocks", "none"),
        default="auto",
        help="how this terminal shows pictures; auto asks it",
    )
    command.add_argument(
        "--unsafe-no-sandbox", action="store_true", help="run the code with your own rights"
    )


def _add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print one JSON object")
