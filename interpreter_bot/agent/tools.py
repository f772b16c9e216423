"""Tool schemas, and lenient parsing of calls. Pure.

The tool for code is named `run_code`: `python` is a name that OpenAI reserves.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from interpreter_bot.agent import chat_messages, lenient_json
from interpreter_bot.text import safe_text

RUN_CODE: Final = "run_code"
VIEW_IMAGE: Final = "view_image"
INSTALL_PACKAGES: Final = "install_packages"
FIND_TOOLS: Final = "find_tools"
DESCRIBE_TOOL: Final = "describe_tool"
ASK_PERSON: Final = "ask_person"
PROPOSE_NOTE: Final = "propose_note"
PROPOSE_SCHEDULE: Final = "propose_schedule"
NOTHING_TO_REPORT: Final = "nothing_to_report"

_CODE_NAMES: Final = ("code", "python_code", "python", "source", "script", "input")
# Arguments that models add to the code, none of which can be the code itself.
_BESIDE_CODE: Final = frozenset(
    {"language", "lang", "kernel", "title", "description", "explanation", "reasoning", "thought"}
    | {"purpose", "summary", "note", "comment", "timeout", "id", "type"}
)
_LANGUAGES: Final = frozenset({"", "python", "py", "python3", "ipython", "ipython3", "jupyter"})
_FILE_NAMES: Final = ("name", "path", "file", "filename", "file_name")
_PACKAGE_NAMES: Final = ("names", "packages", "package", "name", "requirements")
_WORDS_NAMES: Final = ("words", "query", *_FILE_NAMES)
_QUESTION_NAMES: Final = ("question", "prompt", "text", "message")
_CHOICE_NAMES: Final = ("choices", "options", "answers")
_OPTIONAL: Final = frozenset({"start", "choices", "timeout", "zone", "condition"})
_TIMEOUT: Final = (
    "Only for code that needs more time than a usual run: seconds, at most {longest}. It may then "
    "go on in the background, while you answer."
)
_MAX_QUESTION_CHARACTERS: Final = 600
_MAX_CHOICES: Final = 6
# As much as a button of each network shows.
_MAX_CHOICE_CHARACTERS: Final = 70
_NOTE_NAMES: Final = ("text", "note", "content", *_WORDS_NAMES)
_MAX_ENCODINGS: Final = 3
_FOLDER: Final = "/mnt/data/"


def _schema(**properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in _OPTIONAL],
        "additionalProperties": False,
    }


TOOLS: Final = (
    chat_messages.Tool(
        RUN_CODE,
        "Run Python code in the person's Jupyter kernel and return what it printed and showed. "
        "Variables stay from one call to the next.",
        _schema(code={"type": "string", "description": "Python code."}),
    ),
    chat_messages.Tool("list_files", "List the files in /mnt/data with their sizes.", _schema()),
    chat_messages.Tool(
        "read_file",
        "Return the beginning of a text file in /mnt/data, or more of it from a byte on. "
        "For tables, use run_code with pandas.",
        _schema(
            name={"type": "string", "description": "The file's name."},
            start={"type": "integer", "description": "First byte to return, 0 by default."},
        ),
    ),
    chat_messages.Tool(
        VIEW_IMAGE,
        "Look at a picture in /mnt/data: PNG, JPEG, GIF or WebP. Shown plots you see without it.",
        _schema(name={"type": "string", "description": "The file's name."}),
    ),
    chat_messages.Tool(
        INSTALL_PACKAGES,
        "Install Python packages into the running kernel, by their names on the package index. "
        "Variables stay. What is installed already stays as it is.",
        _schema(
            names={"type": "string", "description": 'Names, such as "lifelines" or "a>=2 b".'},
        ),
    ),
    chat_messages.Tool(
        FIND_TOOLS,
        "Find functions of other systems that code can call: lists those that fit some words best.",
        _schema(words={"type": "string", "description": "What is to be done, in a few words."}),
    ),
    chat_messages.Tool(
        DESCRIBE_TOOL,
        "Say what one function of another system takes and does.",
        _schema(name={"type": "string", "description": "As find_tools lists it."}),
    ),
    chat_messages.Tool(
        ASK_PERSON,
        "Ask the person a question and wait for the answer. Only if a wrong guess would be costly "
        "and nothing else can tell you; otherwise decide yourself, and say what you assumed.",
        _schema(
            question={"type": "string", "description": "One short question."},
            choices={
                "type": "array",
                "items": {"type": "string"},
                "description": f"At most {_MAX_CHOICES} short answers to choose from. The person "
                "can also write another.",
            },
        ),
    ),
    chat_messages.Tool(
        PROPOSE_NOTE,
        "Ask the person whether to remember something for all later conversations in this place.",
        _schema(text={"type": "string", "description": "One sentence, at most 500 characters."}),
    ),
    chat_messages.Tool(
        PROPOSE_SCHEDULE,
        "Propose that something be done at set times, if the person asks for that. They confirm it "
        "or not. Let code run first that makes what is to be refreshed or watched.",
        _schema(
            kind={
                "type": "string",
                "enum": ["refresh", "alert", "ask"],
                "description": "refresh runs the code of the last answer again; alert does, and "
                "reports when a condition becomes true; ask lets a model answer anew.",
            },
            cron={"type": "string", "description": 'Line of a crontab, such as "0 9 * * mon-fri".'},
            zone={"type": "string", "description": "The person's time zone: Europe/Berlin."},
            what={"type": "string", "description": "What is to be done, for the person or model."},
            condition={
                "type": "string",
                "description": "Of an alert: Python expression over variables of the code.",
            },
        ),
    ),
    chat_messages.Tool(
        NOTHING_TO_REPORT,
        "End this scheduled run without a message to people, as there is nothing worth one.",
        _schema(),
    ),
)

NAMES: Final = frozenset(tool.name for tool in TOOLS)

# Names that models use for the code tool when they do not remember its own.
_ALIASES: Final = frozenset(
    {"python", "ipython", "jupyter", "interpreter", "repl", "pythonrepl", "pythoninterpreter"}
    | {"codeinterpreter", "codeexecution", "executecode", "executepython", "executepythoncode"}
    | {"runpython", "runpythoncode", "pythonexecute", "pythonexec"}
)
# Additions of models and servers to a name: markup, a namespace before it, a number after it.
_DECORATION: Final = re.compile(
    r"(?:^(?:functions?|tools?|default_api|namespace)[.:/])|(?:[<(\[{:\s|].*$)", re.DOTALL
)
_MAX_NAME_CHARACTERS: Final = 200


def canonical_name(name: str) -> str:
    """Return the tool that a name stands for, decorated or misspelt; empty if there is none."""
    bare = name[:_MAX_NAME_CHARACTERS].strip().strip("\"'`")
    key = _key(_DECORATION.sub("", _DECORATION.sub("", bare)))
    return RUN_CODE if key in _ALIASES else _BY_KEY.get(key, "")


def _key(name: str) -> str:
    return re.sub(r"[\s_-]", "", name).lower()


_BY_KEY: Final = {_key(name): name for name in NAMES}


@dataclasses.dataclass(frozen=True, slots=True)
class RunCode:
    """Run `code`, for as many `seconds` if it takes longer than usual."""

    code: str
    seconds: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ListFiles:
    """List the files of the workspace."""


@dataclasses.dataclass(frozen=True, slots=True)
class ReadFile:
    """Return part of a file, from byte `start`."""

    name: str
    start: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class ViewImage:
    """Look at a picture file."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class FindTools:
    """List functions of other systems that fit `words`."""

    words: str


@dataclasses.dataclass(frozen=True, slots=True)
class DescribeTool:
    """Describe a function of another system."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class AskPerson:
    """Ask the person; `choices` are answers to choose from, each different."""

    question: str
    choices: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class ProposeNote:
    """Ask a person whether to remember `text`."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class ProposeSchedule:
    """Propose a schedule, written as people write one."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class NothingToReport:
    """End a scheduled run without a word."""


@dataclasses.dataclass(frozen=True, slots=True)
class Misread:
    """A call that cannot be understood, and is not run; `sentence` is its result for the model."""

    sentence: str


ToolRequest: TypeAlias = (
    RunCode
    | ListFiles
    | ReadFile
    | ViewImage
    | FindTools
    | DescribeTool
    | AskPerson
    | ProposeNote
    | ProposeSchedule
    | NothingToReport
    | Misread
)
"""A parsed call."""


def offered(
    *,
    can_see_images: bool,
    can_install: bool,
    can_find_tools: bool,
    can_ask: bool,
    can_propose_notes: bool = False,
    can_propose_schedules: bool = False,
    is_scheduled: bool = False,
    longest_run: float = 0.0,
) -> tuple[chat_messages.Tool, ...]:
    """Return the tools there are.

    Args:
        can_see_images: for a model that sees pictures.
        can_install: packages can be installed.
        can_find_tools: there are more functions of other systems than the prompt lists.
        can_ask: somebody can be asked, and the model can judge when to.
        can_propose_notes: a person says whether they are remembered.
        can_propose_schedules: a schedule can be proposed to the person.
        is_scheduled: a schedule asks, and nobody waits for an answer.
        longest_run: how long code may run in the background, in seconds; 0 if it may not.
    """
    has = {VIEW_IMAGE: can_see_images, INSTALL_PACKAGES: can_install, FIND_TOOLS: can_find_tools}
    has |= {DESCRIBE_TOOL: can_find_tools, ASK_PERSON: can_ask, PROPOSE_NOTE: can_propose_notes}
    has |= {PROPOSE_SCHEDULE: can_propose_schedules, NOTHING_TO_REPORT: is_scheduled}
    tools = tuple(tool for tool in TOOLS if has.get(tool.name, True))
    if not longest_run:
        return tools
    timeout = {"type": "number", "description": _TIMEOUT.format(longest=f"{longest_run:.0f}")}
    schema = _schema(**TOOLS[0].parameters["properties"], timeout=timeout)
    return (dataclasses.replace(tools[0], parameters=schema), *tools[1:])


def read(call: chat_messages.Call, offered: Sequence[chat_messages.Tool] = TOOLS) -> ToolRequest:
    """Parse a call of one of the tools, reading its arguments as leniently as sense allows."""
    name = canonical_name(call.name)
    names = [tool.name for tool in offered]
    match name if name in names else "":
        case "run_code":
            request = _read_code(call.arguments)
            if isinstance(request, RunCode):
                request = dataclasses.replace(request, seconds=_read_timeout(call.arguments))
            return request
        case "list_files":
            return ListFiles()
        case "read_file":
            return _read_file(call.arguments)
        case "view_image":
            file = _read_file(call.arguments)
            return ViewImage(file.name) if isinstance(file, ReadFile) else file
        case "install_packages":
            return _read_packages(call.arguments)
        case "find_tools":
            return FindTools(_read_words(call.arguments))
        case "describe_tool":
            return DescribeTool(_read_words(call.arguments))
        case "ask_person":
            return _read_question(call.arguments)
        case "propose_note":
            return ProposeNote(_read_words(call.arguments, _NOTE_NAMES))
        case "propose_schedule":
            return _read_schedule(call.arguments)
        case "nothing_to_report":
            return NothingToReport()
    return Misread(f"There is no tool named {call.name[:80]!r}. There are: {', '.join(names)}.")


def _read_code(arguments: str) -> ToolRequest:
    """Read code from JSON, once or twice encoded, or plain code."""
    text = arguments
    for _ in range(_MAX_ENCODINGS):
        try:
            value = lenient_json.parse(text)
        except ValueError:
            return _run_code(None if text.lstrip().startswith("{") else text)
        if isinstance(value, dict):
            code = _code_argument(value)
            if isinstance(code, Misread) or not _looks_encoded(code):
                return code if isinstance(code, Misread) else _run_code(code)
            text = code
        elif isinstance(value, str):
            text = value
        else:
            # Code can look like JSON, such as a lone number or list.
            break
    return _run_code(text)


def _read_timeout(arguments: str) -> float | None:
    """Return how long code may run, if that is said beside it."""
    with contextlib.suppress(ValueError, TypeError):
        value = lenient_json.parse(arguments)
        seconds = float(value["timeout"]) if isinstance(value, dict) and "timeout" in value else 0.0
        return seconds if 0 < seconds < math.inf else None
    return None


def _run_code(code: str | None) -> ToolRequest:
    if code is None:
        return Misread(
            "The arguments could not be read, and nothing was run: they must be a JSON object "
            'such as {"code": "print(1)"}, with line ends written as \\n and quotes as \\". '
            "Call again."
        )
    code = _unwrap(code)
    return RunCode(code) if code.strip() else Misread('There was no code. Give it as "code".')


def _code_argument(arguments: Mapping[object, object]) -> str | Misread:
    """Return the code among arguments: by a usual name, or the only text."""
    language = str(_first(arguments, ("language", "lang")) or "").strip().lower()
    if language not in _LANGUAGES:
        return Misread(f"Only Python can be run here, and not {language[:40]!r}.")
    code_names = [name for name in _CODE_NAMES if name in arguments]
    texts = [name for name, value in arguments.items() if isinstance(value, str)]
    others = [name for name in texts if name not in _BESIDE_CODE]
    key = code_names[0] if code_names else others[0] if len(others) == 1 else None
    code = arguments.get(key)
    if isinstance(code, list) and all(isinstance(line, str) for line in code):
        return "\n".join(line.removesuffix("\n") for line in code)
    if isinstance(code, str):
        return code
    keys = ", ".join(str(name)[:40] for name in [*arguments][:10]) or "none"
    return Misread(f'There was no code, and nothing was run. Give it as "code"; given: {keys}.')


def _looks_encoded(text: str) -> bool:
    """Return whether a text is JSON with code in it, rather than code that begins with a brace."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        value = lenient_json.parse(text)
    except ValueError:
        return False
    return isinstance(value, dict) and isinstance(_first(value, _CODE_NAMES), str)


def _unwrap(code: str) -> str:
    """Remove a fence, and undo escaping that was done once too often."""
    code = lenient_json.strip_fence(code)
    if "\n" not in code and "\\n" in code and not any(quote in code for quote in "'\""):
        return lenient_json.decode_escapes(code)
    return code


def _read_file(arguments: str) -> ReadFile | Misread:
    try:
        value = lenient_json.parse(arguments)
    except ValueError:
        value = arguments.strip()
    start: object = 0
    if isinstance(value, dict):
        start = value.get("start", 0)
        value = _first(value, _FILE_NAMES)
    if not isinstance(value, str) or not value.strip():
        return Misread('There was no file name. Give it as "name".')
    if not isinstance(start, int | float) or not 0 <= start < 2**53:
        start = 0
    return ReadFile(value.strip().removeprefix(_FOLDER), int(start))


def _read_words(arguments: str, names: tuple[str, ...] = _WORDS_NAMES) -> str:
    """Read words; those that cannot be read as JSON are taken as they are."""
    try:
        value = lenient_json.parse(arguments)
    except ValueError:
        return arguments
    if isinstance(value, dict):
        value = _first(value, names)
    return value if isinstance(value, str) else ""


def _read_question(arguments: str) -> AskPerson | Misread:
    """Read a question to a person, who is shown nothing that is hidden or too long to be read."""
    try:
        value = lenient_json.parse(arguments)
    except ValueError:
        value = arguments
    choices: object = ()
    if isinstance(value, dict):
        choices = _first(value, _CHOICE_NAMES) or ()
        value = _first(value, _QUESTION_NAMES)
    question = safe_text.sanitize(value).strip() if isinstance(value, str) else ""
    if not question or len(question) > _MAX_QUESTION_CHARACTERS:
        limit = f"at most {_MAX_QUESTION_CHARACTERS} characters"
        return Misread(f'Nothing was asked. Give one question of {limit} as "question".')
    if not isinstance(choices, list | tuple):
        choices = str(choices).splitlines()
    lines = (" ".join(safe_text.sanitize(str(choice)).split()) for choice in choices)
    # What differs in its case only is the same answer.
    distinct = tuple({line.casefold(): line for line in lines if line}.values())
    if len(distinct) > _MAX_CHOICES or any(len(one) > _MAX_CHOICE_CHARACTERS for one in distinct):
        return Misread(
            f"Nothing was asked. Give at most {_MAX_CHOICES} choices of at most "
            f"{_MAX_CHOICE_CHARACTERS} characters each."
        )
    return AskPerson(question, distinct)


def _read_packages(arguments: str) -> RunCode | Misread:
    """Read package names, and return the cell that installs them, which people see and approve."""
    try:
        value = lenient_json.parse(arguments)
    except ValueError:
        value = arguments
    if isinstance(value, dict):
        value = _first(value, _PACKAGE_NAMES)
    if isinstance(value, str):
        value = value.replace(",", " ").split()
    if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
        return Misread('There was no package. Give names of packages as "names".')
    words = (shlex.quote(" ".join(name.split())) for name in value)
    return RunCode(f"%pip install {' '.join(words)}")


def _read_schedule(arguments: str) -> ProposeSchedule | Misread:
    """Read a schedule as a person would have written it."""
    try:
        value = lenient_json.parse(arguments)
    except ValueError:
        value = None
    if not isinstance(value, dict) or not value.get("cron"):
        return Misread('There was no schedule. Give "kind", "cron", "zone" and "what".')
    kind, cron, zone, what, condition = (
        " ".join(str(value.get(name) or "").split())
        for name in ("kind", "cron", "zone", "what", "condition")
    )
    if kind == "alert":
        what = f"alert if {condition or what}"
    elif kind == "refresh" and not what.lower().startswith("refresh"):
        what = f"refresh {what}"
    elif kind == "ask" and what.lower().startswith(("refresh", "alert if")):
        what = f"please {what}"
    return ProposeSchedule(f"{cron} {zone}".strip() + f": {what}")


def _first(value: Mapping[object, object], names: tuple[str, ...]) -> object:
    return next((value[name] for name in names if name in value), None)


class CallPreview:
    """Preview of code while its JSON is still streaming: `{"code": "pri…`."""

    def __init__(self) -> None:
        self._text = ""
        self._start = -1
        self._is_over = False

    def feed(self, delta: str) -> str:
        """Add a piece of the arguments; return the code that it adds."""
        if self._is_over:
            return ""
        self._text += delta
        if self._start < 0:
            start = lenient_json.find_code_start(self._text)
            self._is_over = start is None and len(self._text) > 200
            if start is None:
                return ""
            self._start, self._text = start, self._text[start:]
        return self._decode()

    def _decode(self) -> str:
        """Decode the complete part: an escape may be cut in two."""
        end, self._is_over = lenient_json.find_string_end(self._text)
        ready, self._text = self._text[:end], self._text[end:]
        return lenient_json.decode_escapes(ready)
