"""Commands on Slack: where a command was given, what is permitted there, and how its result is
shown."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from interpreter_bot import cancellation, errors, values
from interpreter_bot.platforms import command_table, command_types
from interpreter_bot.platforms.chat import commands, in_flight, transport
from interpreter_bot.platforms.slack import (
    blocks,
    file_uploads,
    handler_dependencies,
    home_and_modal_views,
    markdown,
    message_posting,
    permissions,
)
from interpreter_bot.sessions import requests
from interpreter_bot.wording import (
    access_words,
    command_words,
    place_words,
    question_words,
    session_words,
)

if TYPE_CHECKING:
    from interpreter_bot.sessions import session_service

_MAX_CHARACTERS: Final = 11_000

SendText = Callable[[str], Awaitable[None]]


async def help_text(
    service: session_service.SessionService, key: values.SessionKey, person: requests.Person
) -> str:
    """Return help as Markdown, with the commands that are available in a session."""
    place = command_types.Place(service, key, person, values.Scope("slack"))
    result = await command_table.run(commands.invocation_of("slack", "help"), place)
    return _help(result.commands) if isinstance(result, command_types.Help) else ""


def _help(offered_commands: Sequence[command_types.Command]) -> str:
    has_models = any(command.name == "model" for command in offered_commands)
    introduction = (
        command_words.SLACK_INTRODUCTION
        if has_models
        else command_words.SLACK_INTRODUCTION_WITHOUT_MODEL
    )
    lines = [f"- `{command.usage('slack')}`: {command.help}" for command in offered_commands]
    return "\n\n".join([introduction, "\n".join(lines), command_words.SLACK_USAGE])


class SlackView:
    """Shows results as messages at a place, or by `send_text`; see `chat.commands.View`."""

    max_characters = _MAX_CHARACTERS

    def __init__(
        self,
        dependencies: handler_dependencies.HandlerDependencies,
        key: values.SessionKey,
        place: message_posting.Place,
        send_text: SendText | None = None,
        trigger_id: str = "",
    ) -> None:
        """Show at a place.

        Args:
            send_text: shows text to the person alone; if None, text is posted.
            trigger_id: Slack's permission to open one form, valid for three seconds; empty if there
                is none.
        """
        self.is_private = send_text is not None or place.is_direct
        self._dependencies = dependencies
        self._key = key
        self._place = place
        self._send_text = send_text
        self._trigger_id = trigger_id

    escape = staticmethod(markdown.escape)
    inline_code = staticmethod(markdown.inline_code)
    small_print = staticmethod(markdown.small_print)
    help = staticmethod(_help)

    async def send(self, text: str) -> None:
        if self._send_text is not None:
            await self._send_text(text)
            return
        content = message_posting.make_content(text[:_MAX_CHARACTERS])
        await message_posting.post(self._dependencies.api, self._place, content, self._place.thread)

    async def whisper(self, text: str, url: str, label: str) -> None:
        link_blocks = [blocks.link(url, label)] if url else []
        place = self._place
        if place.thread == place.request_ts and not place.is_direct:
            # Slack hides ephemeral messages in a thread without replies.
            place = dataclasses.replace(place, thread="")
        await message_posting.whisper(self._dependencies.api, place, text, *link_blocks)

    async def send_file(self, upload: transport.Upload, about: str) -> None:
        file = file_uploads.outgoing(upload)
        uploads, place = self._dependencies.uploads, self._place
        if complaints := await uploads.send(place, place.thread, [file]):
            raise errors.BotError("\n".join(complaints))

    async def ask(self, question: str, label: str, invocation: command_types.Invocation) -> None:
        button_value = blocks.command_value(
            self._key, self._place.user, invocation.command.name, invocation.argument
        )
        buttons = blocks.actions(
            blocks.button(label, blocks.CONFIRM, button_value, style="danger"),
            blocks.button("Cancel", blocks.DISMISS, button_value),
        )
        content = message_posting.make_content(question, [buttons])
        await message_posting.post(self._dependencies.api, self._place, content, self._place.thread)

    async def open_form(
        self, form: command_types.Form, invocation: command_types.Invocation
    ) -> None:
        if not self._trigger_id:
            raise errors.BotError(place_words.FORM_BY_COMMAND)
        command = [invocation.command.name, invocation.argument]
        metadata = {"channel": self._place.channel, "command": command}
        await self._dependencies.api.call(
            self._place.workspace,
            "views.open",
            trigger_id=self._trigger_id,
            view=home_and_modal_views.make_command_form(metadata, form),
        )


class SlackCommands:
    """Makes places and views of commands."""

    def __init__(
        self,
        dependencies: handler_dependencies.HandlerDependencies,
        requests_in_flight: in_flight.RequestsInFlight,
    ) -> None:
        self._dependencies = dependencies
        self._in_flight = requests_in_flight

    def command_place(
        self, key: values.SessionKey, place: message_posting.Place, profile: permissions.Profile
    ) -> command_types.Place:
        """Return the place of a command."""
        refusals = {
            "channel": access_words.ADMINS_ONLY_IN_CHANNEL,
            "server": access_words.ADMINS_ONLY,
        }
        if profile.is_admin:
            refusals = {}
        if place.is_direct:
            refusals["channel"] = access_words.ONLY_FOR_YOURSELF
        return command_types.Place(
            self._dependencies.service,
            key,
            profile.person,
            key.scope(profile.user),
            self._dependencies.permissions.settings,
            refusals,
            is_own=place.is_direct,
            open_copy=functools.partial(self._thread_for_copy, place),
            stop_running=functools.partial(
                self._stop, key, "" if profile.is_admin else profile.user
            ),
        )

    async def _stop(self, key: values.SessionKey, person: str) -> bool:
        """Stop a person's requests in a session, or all that run there if `person` is empty."""
        if await self._in_flight.stop(lambda entry: entry.location.session == key, person):
            return True
        # Only admins can stop a request from elsewhere, for example from the page.
        return not person and await self._dependencies.service.stop(key)

    def make_view(
        self,
        key: values.SessionKey,
        place: message_posting.Place,
        send_text: SendText | None = None,
        trigger_id: str = "",
    ) -> SlackView:
        """Return a view that shows results at a place."""
        return SlackView(self._dependencies, key, place, send_text, trigger_id)

    async def decide(
        self, place: message_posting.Place, ts: str, value: str, *, is_confirmed: bool
    ) -> None:
        """Run a command that waits for confirmation, or drop it, and close the question."""
        dependencies, workspace = self._dependencies, place.workspace
        profile = await dependencies.permissions.require(workspace, place.user, place.channel)
        key, person, command = blocks.parse_command_value(value)
        if (key.workspace, key.channel) != (workspace.team, place.channel):
            raise errors.BotError(command_words.NO_CONVERSATION)
        if place.user != person and not profile.is_admin:
            raise errors.BotError(question_words.NOT_YOURS)
        send_text = functools.partial(message_posting.replace, dependencies.api, place, ts)
        await commands.decide(
            commands.invocation_of("slack", *command) if is_confirmed else None,
            self.command_place(key, place, profile),
            self.make_view(key, place, send_text),
            question=f"{workspace.team}/{place.channel}/{ts}",
        )

    @contextlib.asynccontextmanager
    async def _thread_for_copy(
        self, place: message_posting.Place
    ) -> AsyncIterator[tuple[str, str]]:
        """Begin a thread for a copy in the same channel, so that the same people see it."""
        content = {
            "text": session_words.COPY_NOTICE,
            "blocks": [blocks.note(session_words.COPY_NOTICE)],
        }
        root_ts = await message_posting.post(self._dependencies.api, place, content, "")
        try:
            link = f"https://slack.com/archives/{place.channel}/p{root_ts.replace('.', '')}"
            yield root_ts, f"[Open it]({link})"
        except BaseException:
            call = self._dependencies.api.call(
                place.workspace, "chat.delete", channel=place.channel, ts=root_ts
            )
            await cancellation.shielded(call)
            raise
