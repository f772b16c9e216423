"""Commands in chats: found in words, asked about first, carried out, and their results shown."""

from __future__ import annotations

import functools
import logging
import pathlib
import tempfile
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from interpreter_bot import errors
from interpreter_bot.platforms import command_table, command_types
from interpreter_bot.platforms.chat import claims, transport
from interpreter_bot.wording import command_words, file_words, question_words, run_words

_log = logging.getLogger(__name__)

_STOP: Final = "stop"


class View(Protocol):
    """Shows the results of a command at one place of a network.

    Attributes:
        max_characters: of a message.
        is_private: what `send` sends can only be read by the person who gave the command.
    """

    max_characters: int
    is_private: bool

    def escape(self, text: str, /) -> str:
        """Return foreign words, harmless in the network's markup."""

    def inline_code(self, text: str, /) -> str:
        """Return a name as code within a line."""

    def small_print(self, text: str, /) -> str:
        """Return a line of the bot in small print."""

    def help(self, commands: Sequence[command_types.Command], /) -> str:
        """Return the help of the network."""

    async def send(self, text: str, /) -> None:
        """Send words in the network's markup."""

    async def whisper(self, text: str, url: str, label: str) -> None:
        """Send words to the person alone, below a link if there is one."""

    async def send_file(self, upload: transport.Upload, about: str) -> None:
        """Send a file, which may be deleted once this returns.

        Raises:
            BotError: the network does not take it.
        """

    async def ask(self, question: str, label: str, invocation: command_types.Invocation) -> None:
        """Send a question with two buttons: one carries a command out, the other does not."""

    async def open_form(
        self, form: command_types.Form, invocation: command_types.Invocation
    ) -> None:
        """Open the form of a command.

        Raises:
            BotError: the network opens none there.
        """


def invocation_of(platform: str, name: str, argument: str = "") -> command_types.Invocation:
    """Return a command of the table."""
    return command_types.Invocation(command_table.commands_of(platform)[name], argument)


async def prepare_words(
    invocation: command_types.Invocation, words: str, place: command_types.Place, view: View
) -> claims.StartRequest | command_types.CodeToRun | None:
    """Return the function that carries out a message that is a command, or code that it runs.

    None if the message is no command after all, as what it names does not exist.
    """
    if invocation.command.name == _STOP and words.strip(" .!").lower() != _STOP:
        # If nothing runs, such words are for the model.
        if not await place.stop():
            return None
        return functools.partial(view.send, command_words.STOPPING)
    if not await command_table.has_existing_name(invocation, place):
        return None
    if invocation.command.confirmations:
        return functools.partial(_ask_to_confirm, invocation, place, view)
    if invocation.command.is_request:
        try:
            return command_types.CodeToRun(await command_table.find_code(invocation, place))
        except errors.BotError:
            # The words are for the model, then.
            return None
    return functools.partial(carry_out, invocation, place, view)


async def _ask_to_confirm(
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
    """Carry out a command that `View.ask` asked about, once, or drop it.

    Args:
        invocation: the command; None to drop it.
        place: of the command.
        view: shows the result in place of the question.
        question: id of the message with the question.

    Raises:
        BotError: it was decided before.
    """
    if not await place.service.events.claim(place.key.platform, f"{question}/confirmed"):
        raise errors.BotError(question_words.DECIDED)
    if invocation is None:
        await view.send(view.small_print(question_words.CANCELLED))
    else:
        await carry_out(invocation, place, view)


async def carry_out(
    invocation: command_types.Invocation,
    place: command_types.Place,
    view: View,
    entered_values: Mapping[str, str] | None = None,
) -> None:
    """Carry out a command, or what was entered into its form; show the result or why there is
    none.
    """
    try:
        await run_and_show(invocation, place, view, entered_values)
    except errors.BotError as error:
        _log.info("a command was refused: %s", error)
        await view.send(view.escape(run_words.error_sentence(error)))


async def send_omitted(
    action: str, subject_id: str, place: command_types.Place, view: View
) -> None:
    """Send what a button below an answer stands for: a notebook, a link or a whole table.

    Raises:
        BotError: the action is unknown, or there is nothing to send.
    """
    argument = ""
    if action == "csv":
        action = "files"
        argument = await place.service.save_table(place.key, f"t{subject_id}", place.person)
    elif action not in ("notebook", "page"):
        raise errors.BotError(command_words.OUTDATED_BUTTON)
    await run_and_show(invocation_of(place.key.platform, action, argument), place, view)


async def run_and_show(
    invocation: command_types.Invocation,
    place: command_types.Place,
    view: View,
    entered_values: Mapping[str, str] | None = None,
) -> None:
    """Carry out a command, or what was entered into its form, and show the result.

    Raises:
        BotError: it cannot be done, or shown.
    """
    result = await command_table.run(invocation, place, entered_values)
    if isinstance(result, command_types.Form):
        await view.open_form(result, invocation)
        return
    await _show_result(result, place, view, is_public=invocation.command.is_public)


async def _show_result(
    result: command_types.Result, place: command_types.Place, view: View, *, is_public: bool
) -> None:
    """Show the result of a command: to the person alone if it is not public.

    Help and files can be read by everybody in the conversation.

    Raises:
        BotError: it is a file that is not there, or that the network does not take.
    """
    can_send = is_public or view.is_private
    send = view.send if can_send else functools.partial(view.whisper, url="", label="")
    match result:
        case command_types.CodeToRun() | command_types.Form():
            raise errors.BotError(command_words.not_offered("py"))
        case command_types.FileResult():
            await _send_file(result, place, view)
        case command_types.Sentence(text, link):
            await send(f"{view.escape(text)} {link}".rstrip())
        case command_types.PrivateSentence(text, url, label):
            await view.whisper(text, url, label)
        case command_types.FactList():
            await send(_write_list(result, view))
        case command_types.Help(commands):
            notice = place.service.model_notice
            lines = [view.help(commands), view.small_print(view.escape(notice)) if notice else ""]
            await view.send("\n\n".join(filter(None, lines)))


async def _send_file(
    file: command_types.FileResult, place: command_types.Place, view: View
) -> None:
    max_bytes = place.file_bytes
    if file.data is not None:
        if max_bytes is not None and len(file.data) > max_bytes:
            raise errors.BotError(file_words.too_large(file.name, max_bytes))
        upload = make_upload(file.name, file.data, len(file.data))
        await view.send_file(upload, file.about)
        return
    with tempfile.NamedTemporaryFile() as temporary_file:
        async with place.service.queries.open_file(place.key, file.name) as (info, chunks):
            if max_bytes is not None and info.size_bytes > max_bytes:
                raise errors.BotError(file_words.over_send_limit(max_bytes))
            async for chunk in chunks:
                temporary_file.write(chunk)
        temporary_file.flush()
        path = pathlib.Path(temporary_file.name)
        upload = make_upload(file.name, path, temporary_file.tell())
        await view.send_file(upload, file.about)


def make_upload(name: str, content: bytes | pathlib.Path, size_bytes: int) -> transport.Upload:
    """Make a file of a message that is no answer."""
    return transport.Upload(id=name, version=0, name=name, size_bytes=size_bytes, content=content)


def _write_list(result: command_types.FactList, view: View) -> str:
    """Return the lines of a list that a message has room for, and count the others."""
    lines = [f"**{result.title}**"]
    for fact in result.facts:
        label = view.inline_code(fact.label) if result.has_names else view.escape(fact.label)
        lines.append(f"- {': '.join(filter(None, (label, view.escape(fact.value))))}")
    shown_count, text = len(lines), "\n".join(lines)
    while len(text) > view.max_characters:
        shown_count -= 1
        more = command_words.more_lines(len(lines) - shown_count)
        text = "\n".join([*lines[:shown_count], more])
    return text
