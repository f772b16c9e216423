"""Turns of `interpreter-bot ask`: questions, commands and code of a person."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, TypeAlias

from interpreter_bot import errors, events, settings, values
from interpreter_bot.commands import console_runs
from interpreter_bot.platforms import command_table, command_types, preferences
from interpreter_bot.platforms.console import json_replies, terminal_replies, threaded_output
from interpreter_bot.sessions import requests, session_service
from interpreter_bot.wording import command_words

Reply: TypeAlias = json_replies.JsonLines | terminal_replies.TurnPrinter

_PERSON: Final = requests.Person("you")
_CODE_PREFIX: Final = "/py "
_SCOPE: Final = values.Scope("console", person=_PERSON.id)


class Turns:
    """The turns of one session."""

    def __init__(
        self,
        service: session_service.SessionService,
        options: argparse.Namespace,
        writer: threaded_output.OutputWriter,
        interrupter: console_runs.Interrupter,
        new_reply: Callable[[], Reply],
    ) -> None:
        self._service = service
        self._options = options
        self._writer = writer
        self._interrupter = interrupter
        self._new_reply = new_reply
        self._key = values.SessionKey("console", thread=uuid.uuid4().hex)

    async def run_all(
        self, prompts: Sequence[str], question: str, attachments: list[requests.Attachment]
    ) -> bool:
        """Run a turn for each prompt or, without prompts, for each line that a person enters.

        `question` replaces `-` among the prompts. `attachments` are sent with the first question.

        Returns:
            Whether all were answered.
        """
        async with contextlib.AsyncExitStack() as stack:
            if self._service.logins.has_login_servers:
                from interpreter_bot.platforms import login_pages

                # At another port, because the page of a running bot does not know these logins.
                pages = login_pages.serve(self._service, settings.ToolLogins(listen="127.0.0.1:0"))
                await stack.enter_async_context(pages)
            if self._options.model:
                self._service.queries.check_model(self._options.model)
            are_answered = True
            async for prompt in _iterate_prompts(prompts, self._writer, self._place):
                reply = self._new_reply()
                try:
                    invocation = _parse_command(prompt, is_typed=not prompts)
                    if invocation is not None and invocation.command.name == "exit":
                        break
                    code = None
                    if invocation is not None:
                        result = await command_table.run(invocation, self._place)
                        if not isinstance(result, command_types.CodeToRun):
                            reply.show_text(_format_result(result, invocation.command.name))
                            continue
                        code = result.code
                except errors.BotError as error:
                    reply.show_refusal(str(error))
                    are_answered = False
                    continue
                text = question if question and prompt == "-" else prompt
                end = await self._run(text, code, reply, attachments)
                are_answered = are_answered and end.status is values.TurnStatus.DONE
                # Files are sent with the first question, and stay for later ones.
                attachments.clear()
            return are_answered

    @property
    def _place(self) -> command_types.Place:
        return command_types.Place(
            self._service,
            self._key,
            _PERSON,
            _SCOPE,
            {preferences.APPROVAL: self._options.approval},
            format_time=_format_time,
        )

    async def _run(
        self,
        text: str,
        code: str | None,
        reply: Reply,
        attachments: Sequence[requests.Attachment],
    ) -> events.TurnEnded:
        self._interrupter.set_stop(functools.partial(self._service.stop, self._key))
        request = requests.Request(
            key=self._key,
            person=_PERSON,
            text=text if code is None else code,
            is_code=code is not None,
            attachments=tuple(attachments),
            model=self._options.model,
            approval=self._options.approval,
        )
        async with console_runs.ticking(reply.tick):
            return await self._service.handle(request, reply)


async def _iterate_prompts(
    prompts: Sequence[str],
    writer: threaded_output.OutputWriter,
    place: command_types.Place,
) -> AsyncIterator[str]:
    """Iterate over the prompts, or over lines that a person enters if there are none."""
    for prompt in prompts:
        yield prompt
    if not prompts:
        # Imported here, as a single question needs no line editor.
        from interpreter_bot.platforms.console import line_editor

        complete = functools.partial(_complete, place)
        async for line in line_editor.read_lines(writer, complete):
            yield line


async def _complete(place: command_types.Place, text: str) -> list[tuple[str, int, str]]:
    try:
        if not text.startswith(_CODE_PREFIX):
            return await command_table.completions(text, place) if text.startswith("/") else []
        completions = await place.service.queries.complete_code(
            place.key, text.removeprefix(_CODE_PREFIX)
        )
    except errors.BotError:
        return []  # No Python, or it is busy.
    return [(word, completions.typed, description) for word, _, description in completions.options]


def _parse_command(prompt: str, *, is_typed: bool) -> command_types.Invocation | None:
    """Parse a command; None for a question.

    A prompt from the command line is a command only if it is nothing but the name of one: scripts
    put other people's text into prompts, which must not run as code.

    Raises:
        BotError: it was mistyped, or lacks its argument.
    """
    if is_typed or prompt.removeprefix("/") in command_table.commands_of("console"):
        return command_table.parse(prompt, "console")
    return None


def _format_time(moment: float) -> str:
    return f"{datetime.datetime.fromtimestamp(moment).astimezone():%-d %B at %H:%M}"


def _format_result(result: command_types.Result, name: str) -> str:
    """Return the result of a command as text for a terminal."""
    match result:
        case command_types.Sentence(text) | command_types.PrivateSentence(text):
            return text
        case command_types.FactList() | command_types.Help():
            rows = command_table.list_facts(result, "console")
            width = max(len(fact.label) for fact in rows)
            return "\n".join(f"{fact.label:{width}}  {fact.value}".rstrip() for fact in rows)
    raise errors.BotError(command_words.not_offered(name))
