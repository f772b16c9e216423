"""Command-line options of all commands, apart from what the commands do.

It imports next to nothing, so that help, the version and a mistyped command are answered at once.
"""

from __future__ import annotations

import argparse
import difflib
import pathlib
from collections.abc import Iterable, Sequence
from typing import Final

from interpreter_bot import shipped_files

_PROGRAM_NAME: Final = "interpreter-bot"
_START_EPILOG: Final = f"""\
Start here:
  interpreter-bot setup                     a model's key, and tokens of Slack and Discord
  interpreter-bot run                       the page, and Slack and Discord if they are set up
  interpreter-bot ask "plot x**2 - x"       one question, answered in this terminal
  interpreter-bot ask                       a chat in this terminal
  interpreter-bot exec --cell "print(2)"    your own code, without a model
  interpreter-bot doctor                    what does not work here, and how to fix it

`interpreter-bot COMMAND --help` explains a command. The manual is in
{shipped_files.ROOT / "docs"}."""
_RUN_EPILOG: Final = (
    "Ends on SIGTERM or SIGINT once running turns are over; a second signal ends it at once. "
    "Exit status: 0 ended as asked, 1 a platform failed, 2 nothing could be started."
)
_SETUP_EPILOG: Final = """\
A link creates the app on Slack. Each key and token is tried first, and then stored, encrypted, in
the data directory; missing permissions are listed, and the bot can write to you as a test. What the
environment or the configuration file sets is not asked for.
"""
_DOCTOR_EPILOG: Final = """\
Tries the sandbox with two kernels that attack it, asks each model for one word, and asks Slack and
Discord whose tokens these are. For each check that fails, two lines say what that means and how to
fix it.

Exit status: 0 if this machine can keep strangers' code apart, 1 if not."""
_ASK_EPILOG: Final = """\
Several prompts are several turns of one session. Without a prompt, standard input is the question;
at a terminal, a chat begins. With a prompt, piped input becomes a file of the session.

  interpreter-bot ask --file sales.csv "plot units by region" "and which region grew fastest?"
  curl -s "$address" | interpreter-bot ask "how many rows have no price?"
  interpreter-bot ask --keep pictures "plot the revenue by month"
  interpreter-bot ask < question.txt
  interpreter-bot ask

Exit status: 0 if every turn was answered and all files of --keep were saved; 1 if not; 2 if nothing
was asked."""
_EXEC_EPILOG: Final = """\
  interpreter-bot exec --file sales.csv --cell "import pandas as pd; pd.read_csv('sales.csv')"
  interpreter-bot exec --keep results analysis.ipynb

Exit status: 0 if every cell ended ok and all files of --keep were saved; 1 if not, or if the output
was not read to its end; 2 if nothing was run."""


_ROTATE_EPILOG: Final = """\
Makes a new key, puts it first in the key file, and encrypts all stored secrets with it. If the keys
are in INTERPRETER_BOT_ENCRYPTION__KEYS, put a new one first there, before the old ones, and then
run this. A running bot continues meanwhile. After its next start, only backups need old keys."""
_HOST_EPILOG: Final = """\
Without a verb: keep Python kernels until SIGTERM; running code then gets time to finish. A bot on
this machine with the same paths in its settings finds this host by itself."""
_FLEET_EPILOG: Final = """\
Needs the extra [cluster]. Start Ray on each node with the environment variables of its host, such
as INTERPRETER_BOT_HOST__LISTEN and INTERPRETER_BOT_HOST__TLS. Give bots the same database as this
command, and host.fleet = ["ray"]. Hosts and bots keep running if this command or Ray ends."""
_MCP_EPILOG: Final = """\
Without a verb: be an MCP server for the agent that started this, over standard input and output.
Its sessions are deleted when it ends. If mcp.listen is set, `interpreter-bot run` serves agents
over HTTP; each needs a token.

  interpreter-bot mcp add NAME       let a client in, and print its token
  interpreter-bot mcp remove NAME    refuse its token from now on
  interpreter-bot mcp clients        list the clients that have a token"""
_API_EPILOG: Final = """\
`interpreter-bot run` answers programs over HTTP, on the page's port. Each needs a token.

  interpreter-bot api add NAME       let a program in, and print its token
  interpreter-bot api remove NAME    refuse its token from now on
  interpreter-bot api                list the programs that have a token"""
_SKILLS_EPILOG: Final = """\
Without a verb: list the skills of skills.directories, whether each is used, and what has changed.
Models use a skill only after you have accepted it, and only while it stays unchanged.

  interpreter-bot skills accept NAME@DIGEST…   use these skills as listed
  interpreter-bot skills refuse NAME…          stop using these skills

Exit status: 0 if all skills are used, or the change was made; 1 if some are not used; 2 if the
change could not be made."""
_TOOLS_EPILOG: Final = """\
Without a verb: ask the servers of mcp_servers for their tools, and list each tool, whether it is
used, and what has changed. Code can call a tool only after you have accepted it, and only while it
stays unchanged.

  interpreter-bot tools accept NAME@DIGEST…   use the tools of a server as listed
  interpreter-bot tools refuse NAME…          stop using the tools of a server

Exit status: 0 if all tools are used, or the change was made; 1 if some are not used; 2 if the
change could not be made."""
_LIBRARIES_EPILOG: Final = """\
The first start of the bot runs this by itself. Groups that you chose before stay chosen.

  interpreter-bot libraries          install or update what most analysis needs
  interpreter-bot libraries full     add polars, statsmodels, bokeh, altair, folium and more fonts
  interpreter-bot libraries media    add ffmpeg, for video and sound

The libraries have an environment of their own, in the bot's virtual environment or data directory.
If kernels.python is set, code runs in that Python instead."""
_SESSIONS_EPILOG: Final = """\
  interpreter-bot sessions                      list sessions with Python running or saved variables
  interpreter-bot sessions save 3fa2b1c0        save the variables of a session now
  interpreter-bot sessions end 3fa2 77c1        save the variables of two sessions, and stop Python
  interpreter-bot sessions forget 3fa2b1c0      delete the Python, variables and files of a session
  interpreter-bot sessions move 3fa2 host-2.example:7443

You can shorten a name as long as no other session begins with it. Messages are never deleted.

Exit status: 0 if everything was done; 1 if something was not; 2 if nothing was done."""
_MODULE_OF_COMMAND: Final = {
    "exec": "execute",
    "rotate-keys": "rotate_keys",
    "sessions": "sessions_command",
    "tools": "tool_acceptance",
}


def read(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; ends the process if it asks for help, or is wrong.

    Returns:
        The options; also `module`, the name of the command's module here, and `log_level`.
    """
    parser = argparse.ArgumentParser(
        prog=_PROGRAM_NAME,
        description="A self-hosted code interpreter for chat.",
        epilog=_START_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    parser.add_argument(
        "--config", type=pathlib.Path, help="a file of settings; else interpreter-bot.toml"
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="write more to the log")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, add_options, help_text, epilog in (
        ("run", _add_run, "run the bot: the page, Slack and Discord", _RUN_EPILOG),
        (
            "setup",
            _add_nothing,
            "enter a model's key, and tokens of Slack and Discord",
            _SETUP_EPILOG,
        ),
        ("ask", _add_ask, "ask a question that is answered by running code", _ASK_EPILOG),
        ("exec", _add_exec, "run your own code, without a model", _EXEC_EPILOG),
        ("host", _add_host, "keep Python kernels for bots, or query such a host", _HOST_EPILOG),
        ("fleet", _add_fleet, "keep a host on each node of a Ray cluster", _FLEET_EPILOG),
        ("mcp", _add_mcp, "give other agents this sandbox as tools", _MCP_EPILOG),
        ("api", _add_api, "let programs use the bot over HTTP", _API_EPILOG),
        ("skills", _add_skills, "list and accept skills that models can use", _SKILLS_EPILOG),
        ("tools", _add_tools, "list and accept tools that code can call", _TOOLS_EPILOG),
        ("doctor", _add_json, "check the sandbox, the models, Slack and Discord", _DOCTOR_EPILOG),
        (
            "libraries",
            _add_libraries,
            "install the libraries that code can import",
            _LIBRARIES_EPILOG,
        ),
        ("sessions", _add_sessions, "list, save, end, move or forget sessions", _SESSIONS_EPILOG),
        ("limits", _add_json, "print the limits of a session", ""),
        ("rotate-keys", _add_nothing, "encrypt stored secrets with a new key", _ROTATE_EPILOG),
    ):
        command = commands.add_parser(
            name,
            help=help_text,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter
            if "\n" in epilog
            else argparse.HelpFormatter,
        )
        add_options(command)
        # Interactive commands print their own sentences; unattended ones warn in their log.
        command.set_defaults(
            module=_MODULE_OF_COMMAND.get(name, name),
            log_level="warning" if name in ("run", "host", "fleet", "mcp") else "error",
        )
    _check_command(parser, arguments, commands.choices)
    return parser.parse_args(arguments)


def _check_command(
    parser: argparse.ArgumentParser, arguments: Sequence[str], names: Iterable[str]
) -> None:
    """End the process if there is no such command, with the one that may be meant."""
    name_parser = argparse.ArgumentParser(add_help=False)
    name_parser.add_argument("--config")
    name_parser.add_argument("command", nargs="?")
    name = name_parser.parse_known_args(arguments)[0].command
    if name is None or name in names:
        return
    similar_names = difflib.get_close_matches(name, names, 1)
    hint = (
        f"Did you mean {similar_names[0]}?"
        if similar_names
        else f"{_PROGRAM_NAME} --help lists them."
    )
    parser.exit(2, f"{_PROGRAM_NAME}: There is no command {name}. {hint}\n")


class _Version(argparse.Action):
    """Option that looks the version up only if asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print the version and exit."""
        from importlib import metadata

        parser.exit(message=f"{_PROGRAM_NAME} {metadata.version(_PROGRAM_NAME)}\n")


def _add_run(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--unsafe-no-sandbox", action="store_true", help="run everybody's code with your own rights"
    )


def _add_host(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--linger", type=float, metavar="SECONDS", help="end if no bot connects for this long"
    )
    command.add_argument(
        "--unsafe-no-sandbox", action="store_true", help="run everybody's code with your own rights"
    )
    verbs = command.add_subparsers(dest="verb", metavar="VERB")
    verbs.add_parser("status", help="print what the host of these settings does")
    verbs.add_parser("drain", help="start no more kernels, and end when the last one is gone")
    certificate = verbs.add_parser("certificate", help="make TLS files for a host or a bot")
    certificate.add_argument(
        "names", nargs="*", metavar="NAME", help="a name or address of the host"
    )
    certificate.add_argument("--bot", default="", metavar="NAME", help="make them for a bot")
    certificate.add_argument(
        "--days", type=int, default=365, metavar="N", help="how long they are valid"
    )
    certificate.add_argument(
        "--directory",
        type=pathlib.Path,
        default=pathlib.Path("certificates"),
        metavar="DIR",
        help="where the authority is, or is made, and where its files go",
    )


def _add_fleet(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--address",
        default="auto",
        metavar="A",
        help="the address of the head node, as `ray start` prints it",
    )


def _add_mcp(command: argparse.ArgumentParser) -> None:
    verbs = ("serve", "add", "remove", "clients")
    command.add_argument("verb", nargs="?", choices=verbs, default="serve")
    command.add_argument("name", nargs="?", default="", metavar="NAME", help="the name of a client")
    command.add_argument(
        "--unsafe-no-sandbox", action="store_true", help="run the code with your own rights"
    )


def _add_api(command: argparse.ArgumentParser) -> None:
    verbs = ("clients", "add", "remove")
    command.add_argument("verb", nargs="?", choices=verbs, default="clients")
    command.add_argument("name", nargs="?", default="", metavar="NAME", help="a name for it")


def _add_skills(command: argparse.ArgumentParser) -> None:
    verbs = ("list", "accept", "refuse")
    command.add_argument("verb", nargs="?", choices=verbs, default="list")
    command.add_argument("names", nargs="*", metavar="NAME", help="a skill, as NAME or NAME@DIGEST")


def _add_tools(command: argparse.ArgumentParser) -> None:
    verbs = ("list", "accept", "refuse")
    command.add_argument("verb", nargs="?", choices=verbs, default="list")
    command.add_argument(
        "names", nargs="*", metavar="NAME", help="a server, as NAME or NAME@DIGEST"
    )


def _add_sessions(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--all", action="store_true", help="also list sessions that only have files"
    )
    _add_json(command)
    verbs = command.add_subparsers(dest="verb", metavar="VERB")
    for verb, help_text in (
        ("save", "save variables now"),
        ("end", "save variables and stop Python"),
        ("move", "move one to another machine"),
        ("forget", "delete Python, variables and files"),
    ):
        parser = verbs.add_parser(verb, help=help_text)
        count = 1 if verb == "move" else "+"
        parser.add_argument(
            "names", nargs=count, metavar="NAME", help="a session, as the list names it"
        )
        if verb == "move":
            parser.add_argument(
                "host", metavar="HOST", help="the address of the machine, as in host.fleet"
            )
        if verb == "forget":
            parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def _add_libraries(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "groups", nargs="*", type=_parse_group, metavar="GROUP", help="full or media"
    )


def _parse_group(name: str) -> str:
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
        "--model", default="", metavar="M", help="one of the models in the settings"
    )
    command.add_argument(
        "--approval",
        choices=("never", "plan", "every"),
        default="never",
        help="ask you before the model's code runs: never, once per answer, or every time",
    )
    command.add_argument(
        "--queries",
        action="store_true",
        help="print below each answer which queries the code sent to data connections",
    )
    _add_session(command)


def _add_exec(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "source", nargs="?", metavar="SCRIPT.py|NOTEBOOK.ipynb|-", help="cells to run first"
    )
    command.add_argument(
        "--cell",
        action="append",
        default=[],
        metavar="CODE",
        help="a cell; repeat it for more",
    )
    _add_session(command)


def _add_session(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--file",
        action="append",
        default=[],
        type=pathlib.Path,
        metavar="F",
        help="a file to put into /mnt/data; repeat it for more; - is piped input",
    )
    command.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object per line; answers to questions are read as such lines, too",
    )
    command.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="save images and files")
    command.add_argument(
        "--pictures",
        choices=("auto", "kitty", "iterm2", "none"),
        default="auto",
        help="how this terminal shows pictures; auto takes what the terminal names itself",
    )
    command.add_argument(
        "--unsafe-no-sandbox", action="store_true", help="run the code with your own rights"
    )


def _add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print one JSON object")
