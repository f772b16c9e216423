"""SQL as words: whether it is one statement, how it begins, and where its parameters are.

Nothing is understood of it: that it only reads is for the database to see to. Its strings, names in
quotes and comments are told from the rest, so that a `:name` within them is left alone.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

_TOKENS: Final = r"""
    (?P<escaped>[eE]'(?:[^'\\]|\\.|'')*')
    | (?P<quoted>'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`)
    | (?P<comment>{comment})
    | (?P<block>/\*)
    | (?P<dollar>{dollar})
    | (?P<cast>::|:=)
    | :(?P<name>[A-Za-z_]\w*)
    | (?P<word>\w[\w$]*)
    | (?P<end>;)
    | (?P<space>\s+)
    """
_TOKEN: Final = re.compile(
    _TOKENS.format(comment=r"--[^\n]*", dollar=r"\$(?:[A-Za-z_]\w*)?\$"), re.VERBOSE | re.DOTALL
)
# There `--` needs a space after it, and dollars are letters of names.
_TOKEN_OF_MYSQL: Final = re.compile(
    _TOKENS.format(comment=r"(?:--(?=[\x00-\x20]|\Z)|\#)[^\n]*", dollar=r"(?!)"),
    re.VERBOSE | re.DOTALL,
)
_BLOCK: Final = re.compile(r"/\*|\*/")
_RUN_IN_MYSQL: Final = ("/*!", "/*M!", "/*m!")
_READING: Final = frozenset(
    ("select", "with", "values", "table", "from", "show", "explain", "describe", "desc")
)
_CHANGING: Final = re.compile(
    r"\b(insert|update|delete|merge|into|call|procedure|exec|execute|analy[sz]e|create|alter|drop|"
    r"truncate|grant|revoke)\b",
    re.IGNORECASE,
)
_WRITES_FILES: Final = re.compile(r"\b(outfile|dumpfile)\b", re.IGNORECASE)
_UNGUARDED: Final = (
    "Nothing but its login keeps this database from being changed, so that no statement may have "
    "the word {word!r} in it here. Texts can be given as parameters."
)
_BACKSLASHED: Final = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"", re.DOTALL)


class StatementError(Exception):
    """The statement is not run; the sentence says why."""


class Statement:
    """One statement and the values of its parameters.

    Attributes:
        text: as it was written.
        values: of its parameters, by name.
        first_word: in small letters; empty where it begins otherwise.
    """

    def __init__(self, text: str, values: Mapping[str, Any], *, is_mysql: bool = False) -> None:
        """Take it apart.

        Args:
            text: of it.
            values: of its parameters.
            is_mysql: it is for MySQL or MariaDB, whose comments and strings are others.

        Raises:
            StatementError: it is empty, or more than one, or not whole.
        """
        self.text = text
        self.values = values
        self.first_word = ""
        self._pieces: list[tuple[str, str]] = []
        self._is_mysql = is_mysql
        self._take_apart(text)
        self._check()

    @property
    def reads(self) -> bool:
        """Whether it begins as those do that only read."""
        return self.first_word in _READING

    def rendered(self, parameter: Callable[[str], str], *, colon: str = ":") -> str:
        """Return it as a driver wants it.

        Args:
            parameter: how a parameter is written there, by its name.
            colon: how other colons are.
        """
        parts = []
        for kind, piece in self._pieces:
            if kind == "name" and piece[1:] in self.values:
                parts.append(parameter(piece[1:]))
            else:
                parts.append(piece.replace(":", colon))
        return "".join(parts)

    def check_words(self) -> None:
        """Check that no word of it changes data, for databases that do not see to that.

        Strings count too: what is one is not the same everywhere.

        Raises:
            StatementError: one does.
        """
        if found := _CHANGING.search(self.text):
            raise StatementError(_UNGUARDED.format(word=found[0]))

    def check_server_files(self) -> None:
        """Check that it writes no file on MySQL's machine: to it, that is no change of data.

        Raises:
            StatementError: it may.
        """
        if _WRITES_FILES.search(self.text):
            raise StatementError("Statements that write files of the server are not run here.")

    def _take_apart(self, text: str) -> None:
        place, other = 0, 0
        token = _TOKEN_OF_MYSQL if self._is_mysql else _TOKEN
        while place < len(text):
            found = token.match(text, place)
            if found is None:
                place += 1
                continue
            if other < place:
                self._pieces.append(("other", text[other:place]))
            kind = str(found.lastgroup)
            end = self._end(text, found)
            if found["comment"] and "\r" in found[0].rstrip("\r"):
                raise StatementError("A comment ends where its line does.")
            self._pieces.append((kind, text[place:end]))
            place = other = end
        if other < len(text):
            self._pieces.append(("other", text[other:]))

    def _end(self, text: str, found: re.Match[str]) -> int:
        """Return where a token ends: some end where they say, or hold others of their kind."""
        if found["dollar"]:
            end = text.find(found[0], found.end())
            if end < 0:
                raise StatementError(f"The text after {found[0]} does not end.")
            return end + len(found[0])
        if found["quoted"] and self._is_mysql and found[0][0] != "`":
            whole = _BACKSLASHED.match(text, found.start())
            return found.end() if whole is None else whole.end()
        if not found["block"]:
            return found.end()
        if self._is_mysql:
            return self._end_in_mysql(text, found)
        depth, place = 1, found.end()
        while depth:
            edge = _BLOCK.search(text, place)
            if edge is None:
                raise StatementError("A comment does not end.")
            depth += 1 if edge[0] == "/*" else -1
            place = edge.end()
        return place

    @staticmethod
    def _end_in_mysql(text: str, found: re.Match[str]) -> int:
        """Return where a comment ends, none of which holds another one; some of them are run."""
        if text.startswith(_RUN_IN_MYSQL, found.start()):
            raise StatementError("Comments that are run are not allowed.")
        end = text.find("*/", found.end())
        if end < 0:
            raise StatementError("A comment does not end.")
        return end + len("*/")

    def _check(self) -> None:
        real = [(k, p) for k, p in self._pieces if k not in ("space", "comment", "block")]
        while real and real[-1][0] == "end":
            real.pop()
        if not real:
            raise StatementError("There is no statement.")
        if any(kind == "end" for kind, _ in real):
            raise StatementError("Only one statement can be run at a time.")
        words = [p for k, p in real if k == "word" or p.strip(" (\n\t")]
        self.first_word = words[0].lower() if words else ""
        # What ends it would end what drivers put around it.
        while self._pieces[-1][0] in ("end", "space", "comment", "block"):
            self._pieces.pop()
        names = {piece[1:] for kind, piece in self._pieces if kind == "name"}
        if unknown := sorted(self.values.keys() - names):
            raise StatementError(f"The statement has no parameter :{unknown[0]}.")


def value(told: Any) -> Any:  # noqa: ANN401 - of JSON.
    """Return a parameter's value, of what a kernel sent: some kinds are not JSON's.

    Raises:
        StatementError: it is none.
    """
    if isinstance(told, list):
        return [value(one) for one in told]
    if not isinstance(told, dict):
        return told
    kinds: dict[str, Callable[[str], Any]] = {
        "date": datetime.date.fromisoformat,
        "datetime": datetime.datetime.fromisoformat,
        "time": datetime.time.fromisoformat,
        "decimal": decimal.Decimal,
        "bytes": base64.b64decode,
    }
    try:
        ((kind, text),) = told.items()
        return kinds[kind](text)
    except (ValueError, KeyError, TypeError, ArithmeticError) as error:
        raise StatementError("A parameter has a value that cannot be sent.") from error
