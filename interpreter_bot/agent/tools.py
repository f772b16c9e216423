"""Tool schemas, and lenient parsing of calls. Pure.

The tool for code is named `run_code`, as OpenAI reserves the name `python`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from interpreter_bot.agent import chat_messages, lenient_json
from interpreter_bot.text import safe_text

RUN_CODE: Final = "run_code"
VIEW_IMAGE: Final = "view_image"
ASK_PERSON: Final = "ask_person"
PROPOSE_NOTE: Final = "propose_note"
PROPOSE_SCHEDULE: Final = "propose_schedule"
NOTHING_TO_REPORT: Final = "nothing_to_report"

_CODE_ARGUMENTS: Final = ("code", "python_code", "python", "source", "script", "input")
_FILE_ARGUMENTS: Final = ("name", "path", "file", "filename", "file_name")
_OPTIONAL_PARAMETERS: Final = frozenset({"choices", "timeout", "zone", "condition"})
_TIMEOUT_DESCRIPTION: Final = (
    "Only for code that needs more time than a usual run: seconds, at most {longest}. It may then "
    "go on in the background, while you answer."
)
_MAX_QUESTION_CHARACTERS: Final = 600
_MAX_CHOICES: Final = 6
# Every network's buttons show this much.
_MAX_CHOICE_CHARACTERS: Final = 70
_WORKSPACE_PATH: Final = "/mnt/data/"


def _schema(**properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in _OPTIONAL_PARAMETERS],
        "additionalProperties": False,
    }


TOOLS: Final = (
    chat_messages.Tool(
        RUN_CODE,
        "Run Python code in the person's Jupyter kernel and return what it printed and showed. "
        "Variables stay from one call to the next.",
        _schema(code={"type": "string", "description": "Python code."}),
    ),
    chat_messages.Tool(
        VIEW_IMAGE,
        "Look at a picture in /mnt/data: PNG, JPEG, GIF or WebP. Shown plots you see without it.",
        _schema(name={"type": "string", "description": "The file's name."}),
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

# Other names that models use for the code tool.
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
    """Return the name of the tool that a model means; empty if there is no such tool."""
    bare = name[:_MAX_NAME_CHARACTERS].strip().strip("\"'`")
    key = _normalize_name(_DECORATION.sub("", _DECORATION.sub("", bare)))
    return RUN_CODE if key in _ALIASES else _TOOLS_BY_NORMALIZED_NAME.get(key, "")


def _normalize_name(name: str) -> str:
    return re.sub(r"[\s_-]", "", name).lower()


_TOOLS_BY_NORMALIZED_NAME: Final = {_normalize_name(name): name for name in NAMES}


@dataclasses.dataclass(frozen=True, slots=True)
class RunCode:
    """Run `code`; `seconds` is its time limit if the usual one does not suffice."""

    code: str
    seconds: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class ViewImage:
    """Look at a picture file."""

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
    """Propose a schedule; `text` has the syntax that people use."""

    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class NothingToReport:
    """End a scheduled run without a message to people."""


@dataclasses.dataclass(frozen=True, slots=True)
class UnreadableCall:
    """A call that cannot be read, and is not run; `sentence` is its result for the model."""

    sentence: str


ToolRequest: TypeAlias = (
    RunCode
    | ViewImage
    | AskPerson
    | ProposeNote
    | ProposeSchedule
    | NothingToReport
    | UnreadableCall
)
"""A parsed call."""


def select_tools(
    *,
    can_see_images: bool,
    can_ask: bool,
    can_propose_notes: bool = False,
    can_propose_schedules: bool = False,
    is_scheduled: bool = False,
    max_background_seconds: float = 0.0,
) -> tuple[chat_messages.Tool, ...]:
    """Return the tools that a turn offers to its model.

    Args:
        can_see_images: the model sees pictures.
        can_ask: the model can ask the person.
        can_propose_notes: the model can propose notes to a person.
        can_propose_schedules: the model can propose schedules to a person.
        is_scheduled: this is a scheduled run, so that nobody waits for an answer.
        max_background_seconds: how long code may run in the background; 0 if it may not.
    """
    is_available = {
        VIEW_IMAGE: can_see_images,
        ASK_PERSON: can_ask,
        PROPOSE_NOTE: can_propose_notes,
        PROPOSE_SCHEDULE: can_propose_schedules,
        NOTHING_TO_REPORT: is_scheduled,
    }
    tools = tuple(tool for tool in TOOLS if is_available.get(tool.name, True))
    if not max_background_seconds:
        return tools
    timeout = {
        "type": "number",
        "description": _TIMEOUT_DESCRIPTION.format(longest=f"{max_background_seconds:.0f}"),
    }
    schema = _schema(**TOOLS[0].parameters["properties"], timeout=timeout)
    return (dataclasses.replace(tools[0], parameters=schema), *tools[1:])


def parse_call(
    call: chat_messages.Call, offered_tools: Sequence[chat_messages.Tool] = TOOLS
) -> ToolRequest:
    """Parse a call of one of the tools; its arguments may have many kinds of mistakes."""
    name = canonical_name(call.name)
    names = [tool.name for tool in offered_tools]
    if name not in names:
        return UnreadableCall(
            f"There is no tool named {call.name[:80]!r}. There are: {', '.join(names)}."
        )
    arguments = _parse_arguments(call.arguments)
    match name:
        case "run_code":
            return _read_code(arguments, call.arguments)
        case "view_image":
            return _read_image(arguments)
        case "ask_person":
            return _read_question(arguments)
        case "propose_note":
            text = arguments.get("text") if isinstance(arguments, dict) else arguments
            return ProposeNote(text if isinstance(text, str) else "")
        case "propose_schedule":
            return _read_schedule(arguments)
    return NothingToReport()


def _parse_arguments(text: str) -> object:
    """Parse arguments, which some servers encode twice; text that is no JSON stays as it is."""
    value: object = text
    for _ in range(2):
        if isinstance(value, str):
            with contextlib.suppress(ValueError):
                value = lenient_json.parse(value)
    return value


def _read_code(arguments: object, text: str) -> RunCode | UnreadableCall:
    """Read code, either in an object or plain; `text` is the arguments as they were written."""
    seconds = None
    if isinstance(arguments, dict):
        code = _first_value(arguments, _CODE_ARGUMENTS)
        if not isinstance(code, str):
            keys = ", ".join(str(name)[:40] for name in [*arguments][:10]) or "none"
            return UnreadableCall(
                f'There was no code, and nothing was run. Give it as "code"; given: {keys}.'
            )
        seconds = _read_timeout(arguments.get("timeout"))
    else:
        # Code can look like JSON, such as a lone number or list.
        code = arguments if isinstance(arguments, str) else text
        if code.lstrip().startswith("{"):
            return UnreadableCall(
                "The arguments could not be read, and nothing was run: they must be a JSON object "
                'such as {"code": "print(1)"}, with line ends written as \\n and quotes as \\". '
                "Call again."
            )
    code = lenient_json.strip_fence(code)
    if not code.strip():
        return UnreadableCall('There was no code. Give it as "code".')
    return RunCode(code, seconds)


def _read_timeout(value: Any) -> float | None:  # noqa: ANN401 - of JSON.
    """Return how long code may run, if the value is a positive number."""
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        seconds = float(value)
        return seconds if 0 < seconds < math.inf else None
    return None


def _read_image(arguments: object) -> ViewImage | UnreadableCall:
    if isinstance(arguments, dict):
        arguments = _first_value(arguments, _FILE_ARGUMENTS)
    if not isinstance(arguments, str) or not arguments.strip():
        return UnreadableCall('There was no file name. Give it as "name".')
    return ViewImage(arguments.strip().removeprefix(_WORKSPACE_PATH))


def _read_question(arguments: object) -> AskPerson | UnreadableCall:
    """Read a question to a person, without invisible characters and within limits of length."""
    choices: object = ()
    if isinstance(arguments, dict):
        choices = arguments.get("choices") or ()
        arguments = arguments.get("question")
    question = safe_text.sanitize(arguments).strip() if isinstance(arguments, str) else ""
    if not question or len(question) > _MAX_QUESTION_CHARACTERS:
        limit = f"at most {_MAX_QUESTION_CHARACTERS} characters"
        return UnreadableCall(f'Nothing was asked. Give one question of {limit} as "question".')
    if not isinstance(choices, list | tuple):
        choices = str(choices).splitlines()
    lines = (" ".join(safe_text.sanitize(str(entry)).split()) for entry in choices)
    # Choices that differ only in their case are the same answer.
    distinct_choices = tuple({line.casefold(): line for line in lines if line}.values())
    if len(distinct_choices) > _MAX_CHOICES or any(
        len(choice) > _MAX_CHOICE_CHARACTERS for choice in distinct_choices
    ):
        return UnreadableCall(
            f"Nothing was asked. Give at most {_MAX_CHOICES} choices of at most "
            f"{_MAX_CHOICE_CHARACTERS} characters each."
        )
    return AskPerson(question, distinct_choices)


def _read_schedule(arguments: object) -> ProposeSchedule | UnreadableCall:
    """Read a schedule; return it in the syntax that people use."""
    if not isinstance(arguments, dict) or not arguments.get("cron"):
        return UnreadableCall('There was no schedule. Give "kind", "cron", "zone" and "what".')
    kind, cron, zone, task, condition = (
        " ".join(str(arguments.get(name) or "").split())
        for name in ("kind", "cron", "zone", "what", "condition")
    )
    if kind == "alert":
        task = f"alert if {condition or task}"
    elif kind == "refresh" and not task.lower().startswith("refresh"):
        task = f"refresh {task}"
    elif kind == "ask" and task.lower().startswith(("refresh", "alert if")):
        task = f"please {task}"
    return ProposeSchedule(f"{cron} {zone}".strip() + f": {task}")


def _first_value(value: Mapping[object, object], names: tuple[str, ...]) -> object:
    return next((value[name] for name in names if name in value), None)


class CodePreview:
    """Extracts code from JSON that is still streaming, such as `{"code": "pri…`."""

    def __init__(self) -> None:
        self._text = ""
        self._start = -1
        self._has_ended = False

    def feed(self, delta: str) -> str:
        """Add a piece of the arguments; return the code that it adds."""
        if self._has_ended:
            return ""
        self._text += delta
        if self._start < 0:
            start = lenient_json.find_code_start(self._text)
            self._has_ended = start is None and len(self._text) > 200
            if start is None:
                return ""
            self._start, self._text = start, self._text[start:]
        return self._decode()

    def _decode(self) -> str:
        """Decode the text so far, but not an escape that is incomplete."""
        end, self._has_ended = lenient_json.find_string_end(self._text)
        complete, self._text = self._text[:end], self._text[end:]
        return lenient_json.decode_escapes(complete)
