"""Commands in chats: found in words, asked about first, carried out, and their results shown."""

from __future__ import annotations

import functools
import logging
import pathlib
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from interpreter_bot import errors
from interpreter_bot.platforms import command_table, command_types
from interpreter_bot.platforms.chat import transport
from interpreter_bot.wording import command_words, file_words, question_words, run_words

_log = logging.getLogger(__name__)

_STOP: Final = "stop"

Start: TypeAlias = Callable[[], Awaitable[None]]


class View(Protocol):
    """Shows what a command does, at one place of a network, to the person who gave it.

    Attributes:
        characters: that a message takes.
        is_private: only the person reads what is said of a command that is not public.
    """

    characters: int
    is_private: bool

    def escape(self, text: str, /) -> str:
        """Return foreign words, harmless in the network's markup."""

    def inline_code(self, text: str, /) -> str:
        """Return a name as code within a line."""

    def small_print(self, text: str, /) -> str:
        """Return a line of the bot in small print."""

    def help(self, commands: Sequence[command_types.Command], /) -> str:
        """Return the help of the network."""

    async def say(self, text: str, /) -> None:
        """Show words in the network's markup."""

    async def whisper(self, text: str, url: str, label: str) -> None:
        """Show words to the person alone, below a link if there is one."""

    async def send_file(self, upload: transport.Upload, about: str) -> None:
        """Send a file, which is there until this returns.

        Raises:
            BotError: the network does not take it.
        """

    async def ask(self, question: str, label: str, invocation: command_types.Invocation) -> None:
        """Show a question with a button that carries a command out, and one that does not."""

    async def open_form(
        self, form: command_types.Form, invocation: command_types.Invocation
    ) -> None:
        """Open the form of a command.

        Raises:
            BotError: the network opens none there.
        """


def named(platform: str, name: str, argument: str = "") -> command_types.Invocation:
    """Return a command of the table."""
    return command_types.Invocation(command_table.commands_of(platform)[name], argument)


async def of_words(
    invocation: command_types.Invocation, words: str, place: command_types.Place, view: View
) -> Start | command_types.CodeToRun | None:
    """Return what carries out a message that is a command in words; None if it is not one.

    A message is a command only if what it names exists. Code to run is returned as it is.
    """
    if invocation.command.name == _STOP and words.strip(" .!").lower() != _STOP:
        # If nothing runs, such words are for the model.
        if not await place.stop():
            return None
        return functools.partial(view.say, command_words.STOPPING)
    if not await command_table.has_existing_name(invocation, place):
        return None
    if invocation.command.confirmations:
        return functools.partial(_confirm, invocation, place, view)
    if invocation.command.is_request:
        try:
            return command_types.CodeToRun(await command_table.find_code(invocation, place))
        except errors.BotError:
            # Nothing is lost: it is meant for the model, as any other word is.
            return None
    return functools.partial(carry_out, invocation, place, view)


async def _confirm(
    invocation: command_types.Invocation, place: command_types.Place, view: View
) -> None:
    """Ask whether a command that came as words is to be carried out."""
    question, label = invocation.command.confirmations[invocation.argument]
    await view.ask(question, label, await command_table.pin_last_turn(invocation, place))


async def decide(
    invocation: command_types.Invocation | None,
    place: command_types.Place,
    view: View,
    *,
    question: str,
) -> None:
    """Carry out what `View.ask` asked about, once; None if it is not wanted.

    Args:
        view: shows the result in place of the question.
        question: names its message.

    Raises:
        BotError: it was decided before.
    """
    if not await place.service.events.claim(place.key.platform, f"{question}/confirmed"):
        raise errors.BotError(question_words.DECIDED)
    if invocation is None:
        await view.say(view.small_print(question_words.UNCHANGED))
    else:
        await carry_out(invocation, place, view)


async def carry_out(
    invocation: command_types.Invocation,
    place: command_types.Place,
    view: View,
    entered: Mapping[str, str] | None = None,
) -> None:
    """Carry out a command, or what was entered into its form; show the result or why there is
    none.
    """
    try:
        await give(invocation, place, view, entered)
    except errors.BotError as error:
        _log.info("a command was refused: %s", error)
        await view.say(view.escape(run_words.error_sentence(error)))


async def give(
    invocation: command_types.Invocation,
    place: command_types.Place,
    view: View,
    entered: Mapping[str, str] | None = None,
) -> None:
    """Carry out a command, or what was entered into its form, and show the result.

    Raises:
        BotError: it cannot be done, or shown.
    """
    result = await command_table.run(invocation, place, entered)
    if isinstance(result, command_types.Form):
        await view.open_form(result, invocation)
        return
    await show(result, place, view, is_public=invocation.command.is_public)


async def show(
    result: command_types.Result, place: command_types.Place, view: View, *, is_public: bool
) -> None:
    """Show the result of a command; only to the person if it is not public.

    Help and files are for whoever reads the conversation.

    Raises:
        BotError: it is a file that is not there, or that the network does not take.
    """
    is_open = is_public or view.is_private
    say = view.say if is_open else functools.partial(view.whisper, url="", label="")
    match result:
        case command_types.CodeToRun() | command_types.Form():
            raise errors.BotError(command_words.not_offered("py"))
        case command_types.FileResult():
            await _send_file(result, place, view)
        case command_types.Sentence(text, link):
            await say(f"{view.escape(text)} {link}".rstrip())
        case command_types.PrivateSentence(text, url, label):
            await view.whisper(text, url, label)
        case command_types.FactList():
            await say(_list(result, view))
        case command_types.Help(commands):
            notice = place.service.model_notice
            lines = [view.help(commands), view.small_print(view.escape(notice)) if notice else ""]
            await view.say("\n\n".join(filter(None, lines)))


async def _send_file(
    file: command_types.FileResult, place: command_types.Place, view: View
) -> None:
    most = place.file_bytes
    if file.data is not None:
        if most is not None and len(file.data) > most:
            raise errors.BotError(file_words.too_large(file.name, most))
        await view.send_file(_upload(file.name, len(file.data), file.data), file.about)
        return
    with tempfile.NamedTemporaryFile() as spool:
        async with place.service.queries.reading(place.key, file.name) as (info, chunks):
            if most is not None and info.size_bytes > most:
                raise errors.BotError(file_words.not_sent_whole(most))
            async for chunk in chunks:
                spool.write(chunk)
        spool.flush()
        upload = _upload(file.name, spool.tell(), pathlib.Path(spool.name))
        await view.send_file(upload, file.about)


def _upload(name: str, size_bytes: int, content: bytes | pathlib.Path) -> transport.Upload:
    return transport.Upload(id=name, version=0, name=name, size_bytes=size_bytes, content=content)


def _list(result: command_types.FactList, view: View) -> str:
    """Return the lines of a list that a message has room for, and count the others."""
    lines = [f"**{result.title}**"]
    for fact in result.facts:
        label = view.inline_code(fact.label) if result.has_names else view.escape(fact.label)
        lines.append(f"- {': '.join(filter(None, (label, view.escape(fact.value))))}")
    shown, text = len(lines), "\n".join(lines)
    while len(text) > view.characters:
        shown -= 1
        text = "\n".join([*lines[:shown], command_words.more_lines(len(lines) - shown)])
    return text
