"""What the buttons of messages do; each button has a listener of its own."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias

from slack_bolt.async_app import AsyncRespond
from slack_bolt.kwargs_injection.async_args import AsyncArgs

from interpreter_bot import errors, events, values
from interpreter_bot.platforms import command_table
from interpreter_bot.platforms.chat import commands
from interpreter_bot.platforms.rendering import past_code, query_listings
from interpreter_bot.platforms.slack import (
    blocks,
    command_views,
    file_uploads,
    handler_dependencies,
    home_and_modal_views,
    home_tab,
    interaction_requests,
    markdown,
    message_posting,
    requests_in_flight,
)
from interpreter_bot.sessions import past_turns
from interpreter_bot.text import quantities
from interpreter_bot.wording import command_words, file_words, question_words, run_words

_log = logging.getLogger(__name__)

_FORM_SECONDS: Final = 1.0
_EDITED_CHARACTERS: Final = 3_000
_CHOICES: Final = ("once", "session", "install", "yes", "no")
_LABEL_CHARACTERS: Final = 200


def teller(respond: AsyncRespond) -> command_views.Tell:
    """Return a function that replies through bolt."""

    async def tell(text: str) -> None:
        content = message_posting.content(text[:11_000])
        for shown in (content["blocks"], None):
            response = await respond(
                text=content["text"] if shown else markdown.escaped(text[:3_500]),
                blocks=shown,
                replace_original=False,
                unfurl_links=False,
                unfurl_media=False,
            )
            if response.status_code == 200:
                return
            _log.warning("Slack refused a response: %s", response.body)

    return tell


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Press:
    """A button that a person pressed, or a choice that they made.

    Attributes:
        place: of the message with the button; without a channel on the home tab.
        message: timestamp of that message.
        action: the button's name.
        value: what it carries, or what was chosen.
        trigger: opens a form, for three seconds.
        reply: shows a sentence to the person; None on the home tab.
    """

    place: message_posting.Place
    message: str
    action: str
    value: str
    trigger: str
    reply: command_views.Tell | None


Action: TypeAlias = Callable[[Press], Coroutine[Any, Any, None]]


def press_of(place: message_posting.Place, args: AsyncArgs) -> Press:
    """Parse a press."""
    body, action = args.body, args.payload
    chosen = action.get("selected_option") or action
    message = body.get("message") or {}
    ts = str(message.get("ts") or "")
    return Press(
        place=dataclasses.replace(place, thread=str(message.get("thread_ts") or ts)),
        message=ts,
        action=str(action["action_id"]),
        value=str(chosen.get("value") or action.get("selected_user") or ""),
        trigger=str(body.get("trigger_id", "")),
        reply=teller(args.respond) if place.channel else None,
    )


class ButtonActions:
    """Does what buttons say, for people who may use the bot where they press them."""

    def __init__(
        self,
        shared: handler_dependencies.HandlerDependencies,
        in_flight: requests_in_flight.RequestsInFlight,
        asked: interaction_requests.InteractionRequests,
        slack_commands: command_views.SlackCommands,
        feedback: home_tab.Feedback,
    ) -> None:
        self._service = shared.service
        self._api = shared.api
        self._uploads = shared.uploads
        self._permissions = shared.permissions
        self._in_flight = in_flight
        self._requests = asked
        self._commands = slack_commands
        self._feedback = feedback

    @property
    def by_name(self) -> Mapping[str | re.Pattern[str], Action]:
        """What each button of a message does, by its `action_id`."""
        return {
            "stop": self.stop,
            "code": self.show_code,
            "again": self.run_again,
            "notebook": self.send_notebook,
            "page": self.send_link,
            re.compile(f"^{blocks.CSV}[0-9]+$"): self.send_table,
            blocks.FEEDBACK: self.rate,
            blocks.CONFIRM: self.confirm,
            blocks.DISMISS: self.confirm,
            "run": self.approve,
            "refuse": self.decline,
            "change": self.open_question,
            "answer": self.open_question,
            **dict.fromkeys(_CHOICES, self.choose),
        }

    async def stop(self, press: Press) -> None:
        """Stop a request; who asked may, and admins.

        Raises:
            BotError: they may not, or it has ended.
        """
        place = press.place
        profile = await self._permissions.require(place.workspace, place.user, place.channel)
        key, about = _subject(press, run_words.NOTHING_RUNS)
        person = "" if profile.is_admin else place.user
        which = {"team": key.workspace, "channel": key.channel, "answer": about}
        if not await self._in_flight.stop(person, **which):
            raise errors.BotError(run_words.NOTHING_RUNS)

    async def rate(self, press: Press) -> None:
        """Store what a person thinks of an answer."""
        place = press.place
        opinion, _, turn = press.value.partition(" ")
        await self._permissions.require(place.workspace, place.user, place.channel)
        await self._feedback.note(place.workspace.team, place.user, turn, opinion)
        if press.reply:
            await press.reply(command_words.THANKS)

    async def send_table(self, press: Press) -> None:
        """Send the whole of a table, of which an answer shows the head, into its thread.

        Raises:
            BotError: it cannot be had, or not by this person.
        """
        key, number = _subject(press, command_words.NO_TABLE)
        place = await self._place(press, key)
        name = await self._service.save_table(key, f"t{number}", place.person)
        await self._give(press, key, "files", name)

    async def send_notebook(self, press: Press) -> None:
        """Send the session of an answer as a notebook.

        Raises:
            BotError: there is none, or not for this person.
        """
        key, _ = _subject(press, command_words.NO_CONVERSATION)
        await self._give(press, key, "notebook")

    async def send_link(self, press: Press) -> None:
        """Give a person a link to the session of an answer that stands where they are.

        Raises:
            BotError: there is none, or not for this person.
        """
        key, _ = _subject(press, command_words.NO_CONVERSATION)
        await self._give(press, key, "page")

    async def run_again(self, press: Press) -> None:
        """Run the request of an answer again.

        Raises:
            BotError: it is not known, or not for this person.
        """
        key, turn = await self._turn(press)
        place = press.place
        await self._requests.run_again(place, key, turn)

    async def _give(
        self, press: Press, key: values.SessionKey, name: str, argument: str = ""
    ) -> None:
        view = self._commands.view(key, press.place)
        command = commands.named("slack", name, argument)
        await commands.give(command, await self._place(press, key), view)

    async def _place(self, press: Press, key: values.SessionKey) -> command_table.Place:
        """Return the place of a command that a button stands for.

        Raises:
            BotError: the person may not use the bot there.
        """
        place = press.place
        profile = await self._permissions.require(place.workspace, place.user, place.channel)
        return self._commands.place_of(key, place, profile)

    async def show_code(self, press: Press) -> None:
        """Show a person alone what an answer ran, the code as it is; as files if messages cannot.

        Raises:
            BotError: it is not known, or not to this person.
        """
        place = press.place
        _, turn = await self._turn(press)
        runs, queries = past_code.runs(turn), query_listings.script(turn.queries)
        if (messages := blocks.code_messages(runs, queries)) is not None:
            for message in messages:
                await message_posting.whisper(self._api, place, past_code.ABOUT, *message)
            return
        contents = past_code.files(runs) | ({"queries.sql": queries.encode()} if queries else {})
        files = [
            file_uploads.of_bytes(name, data, "", is_image=False) for name, data in contents.items()
        ]
        direct = await message_posting.direct_place(self._api, place)
        if complaints := await self._uploads.send(direct, direct.thread, files):
            raise errors.BotError("\n".join(complaints))
        if direct is not place:
            await message_posting.whisper(self._api, place, file_words.SENT_AS_FILE)

    async def _turn(self, press: Press) -> tuple[values.SessionKey, past_turns.PastTurn]:
        """Return the turn that a button names, and its session.

        Raises:
            BotError: it is not known, or not to this person.
        """
        place = press.place
        await self._permissions.require(place.workspace, place.user, place.channel)
        key, turn_id = _subject(press, command_words.ANSWER_TOO_OLD)
        return key, past_code.turn_of(await self._service.queries.history(key), turn_id)

    async def confirm(self, press: Press) -> None:
        """Run a command that came as words, or do not."""
        is_confirmed = press.action == blocks.CONFIRM
        await self._commands.decide(
            press.place, press.message, press.value, is_confirmed=is_confirmed
        )

    # Questions ----------------------------------------------------------------------------

    async def approve(self, press: Press) -> None:
        """Let code run as it is."""
        await self._resolve(press.place, _question(press), lambda _: events.Approved())

    async def decline(self, press: Press) -> None:
        """Decline code."""
        await self._resolve(press.place, _question(press), lambda _: events.Declined())

    async def choose(self, press: Press) -> None:
        """Answer a question with one of its choices."""
        await self.resolve(press.place, _question(press), press.action)

    async def open_question(self, press: Press) -> None:
        """Open the answer to an `input()`, or code that waits for approval.

        Raises:
            BotError: it is not theirs to answer, or too late.
        """
        place, question_id = press.place, _question(press)
        is_admin = await self._is_admin(place, question_id)
        question = self._service.questions.require(
            question_id, place.user, is_admin=is_admin, edits=press.action == "change"
        )
        facts = {"channel": place.channel, "question": question.id}
        if isinstance(question, events.ApprovalQuestion):
            if len(question.code) > _EDITED_CHARACTERS:
                raise errors.BotError(question_words.TOO_LONG_TO_EDIT)
            view = home_and_modal_views.edit_form(facts, question.code)
        else:
            label = quantities.one_line(question.prompt, _LABEL_CHARACTERS)
            view = home_and_modal_views.answer_form(facts, label)
        await self.open_form(place, press.trigger, view)

    async def open_form(
        self, place: message_posting.Place, trigger: str, view: home_and_modal_views.View
    ) -> None:
        """Open a form; before anything else is done, as Slack gives three seconds for it."""
        await self._api.call(
            place.workspace,
            "views.open",
            max_seconds=_FORM_SECONDS,
            trigger_id=trigger,
            view=view,
        )

    async def resolve(self, place: message_posting.Place, question_id: str, text: str) -> None:
        """Answer a question with what a person wrote in a form, or chose.

        Raises:
            BotError: it is not theirs to answer, or too late.
        """
        await self._resolve(place, question_id, lambda one: events.answer_of(one, text))

    async def _resolve(
        self,
        place: message_posting.Place,
        question_id: str,
        answer: Callable[[events.Question], events.Answer],
    ) -> None:
        is_admin = await self._is_admin(place, question_id)
        question = self._service.questions.require(question_id, place.user, is_admin=is_admin)
        await self._service.answer(
            question_id, answer(question), person=place.user, is_admin=is_admin
        )

    async def _is_admin(self, place: message_posting.Place, question_id: str) -> bool:
        """Return whether somebody who was not asked may answer as an admin."""
        question = self._service.questions.find(question_id)
        if question is None or question.person == place.user:
            return False
        profile = await self._permissions.require(place.workspace, place.user, place.channel)
        return profile.is_admin


def _subject(press: Press, otherwise: str) -> tuple[values.SessionKey, str]:
    """Return the session of the channel where a button was pressed, and what the button is about.

    Raises:
        BotError: it is of another channel; says the sentence.
    """
    key, about = blocks.value_of(press.value)
    if key is None or (key.workspace, key.channel) != (
        press.place.workspace.team,
        press.place.channel,
    ):
        raise errors.BotError(otherwise)
    return key, about


def _question(press: Press) -> str:
    _, question_id = blocks.value_of(press.value)
    return question_id
