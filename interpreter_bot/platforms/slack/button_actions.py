"""Actions of the buttons of messages; each button has a listener of its own."""

from __future__ import annotations

import dataclasses
import io
import logging
import re
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias

from slack_bolt.async_app import AsyncRespond
from slack_bolt.kwargs_injection.async_args import AsyncArgs

from interpreter_bot import errors, events, values
from interpreter_bot.platforms.chat import commands, in_flight
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
)
from interpreter_bot.sessions import past_turns
from interpreter_bot.text import quantities
from interpreter_bot.wording import command_words, file_words, question_words, run_words

_log = logging.getLogger(__name__)

_FORM_SECONDS: Final = 1.0
_MAX_EDITED_CHARACTERS: Final = 3_000
_MAX_LABEL_CHARACTERS: Final = 200


def text_sender(respond: AsyncRespond) -> command_views.SendText:
    """Return a function that sends a person a text through bolt."""

    async def send(text: str) -> None:
        content = message_posting.make_content(text[:11_000])
        for shown_blocks in (content["blocks"], None):
            response = await respond(
                text=content["text"] if shown_blocks else markdown.escape_mrkdwn(text[:3_500]),
                blocks=shown_blocks,
                replace_original=False,
                unfurl_links=False,
                unfurl_media=False,
            )
            if response.status_code == 200:
                return
            _log.warning("Slack refused a response: %s", response.body)

    return send


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Press:
    """A press of a button, or a choice in a menu.

    Attributes:
        place: where the message with the button is; without a channel on the home tab.
        message_ts: timestamp of that message.
        action: the button's name.
        value: of the button, or of the option that was chosen.
        trigger_id: with which a form can be opened within three seconds.
        reply: sends the person a sentence; None on the home tab.
    """

    place: message_posting.Place
    message_ts: str
    action: str
    value: str
    trigger_id: str
    reply: command_views.SendText | None


Action: TypeAlias = Callable[[Press], Coroutine[Any, Any, None]]


def parse_press(place: message_posting.Place, args: AsyncArgs) -> Press:
    """Parse a press."""
    body, action = args.body, args.payload
    choice = action.get("selected_option") or action
    message = body.get("message") or {}
    ts = str(message.get("ts") or "")
    return Press(
        place=dataclasses.replace(place, thread=str(message.get("thread_ts") or ts)),
        message_ts=ts,
        action=str(action["action_id"]),
        value=str(choice.get("value") or action.get("selected_user") or ""),
        trigger_id=str(body.get("trigger_id", "")),
        reply=text_sender(args.respond) if place.channel else None,
    )


class ButtonActions:
    """Runs the actions of buttons, if the person may use the bot in their channel.

    Actions raise `BotError`s, whose sentences are shown to the person.
    """

    def __init__(
        self,
        shared: handler_dependencies.HandlerDependencies,
        requests_in_flight: in_flight.RequestsInFlight,
        interactions: interaction_requests.InteractionRequests,
        slack_commands: command_views.SlackCommands,
        feedback: home_tab.Feedback,
    ) -> None:
        self._service = shared.service
        self._api = shared.api
        self._uploads = shared.uploads
        self._permissions = shared.permissions
        self._in_flight = requests_in_flight
        self._interactions = interactions
        self._commands = slack_commands
        self._feedback = feedback

    @property
    def actions_by_name(self) -> Mapping[str | re.Pattern[str], Action]:
        """Actions by the `action_id` of their button."""
        return {
            "stop": self.stop,
            "code": self.show_code,
            "again": self.run_again,
            **dict.fromkeys(("notebook", "page"), self.send_omitted),
            re.compile(f"^{blocks.CSV_PREFIX}[0-9]+$"): self.send_omitted,
            blocks.FEEDBACK: self.rate,
            blocks.CONFIRM: self.confirm,
            blocks.DISMISS: self.confirm,
            **dict.fromkeys(("run", "refuse", values.FOR_SESSION), self.answer),
            **dict.fromkeys(("change", "answer"), self.open_question),
            re.compile(f"^{events.PICK_PREFIX}[0-9]$"): self.answer,
        }

    async def stop(self, press: Press) -> None:
        """Stop a request, for the person who asked it or an admin."""
        place = press.place
        profile = await self._permissions.require(place.workspace, place.user, place.channel)
        key, request_id = _parse_value(press, run_words.NOTHING_RUNS)
        person = "" if profile.is_admin else place.user
        target = key.workspace, key.channel, request_id
        if not await self._in_flight.stop(
            lambda entry: (
                (entry.location.session.workspace, entry.location.channel, entry.id) == target
            ),
            person,
        ):
            raise errors.BotError(run_words.NOTHING_RUNS)

    async def rate(self, press: Press) -> None:
        """Store a person's rating of an answer."""
        place = press.place
        rating, _, turn = press.value.partition(" ")
        await self._permissions.require(place.workspace, place.user, place.channel)
        await self._feedback.store_rating(place.workspace.team, place.user, turn, rating)
        if press.reply:
            await press.reply(command_words.THANKS)

    async def send_omitted(self, press: Press) -> None:
        """Send a table, a notebook or a link that an answer omits."""
        key, subject_id = _parse_value(press, command_words.NO_CONVERSATION)
        place = press.place
        profile = await self._permissions.require(place.workspace, place.user, place.channel)
        await commands.send_omitted(
            press.action.partition("_")[0],
            subject_id,
            self._commands.command_place(key, place, profile),
            self._commands.make_view(key, place),
        )

    async def run_again(self, press: Press) -> None:
        """Run the request of an answer again."""
        key, turn = await self._find_turn(press)
        place = press.place
        await self._interactions.run_again(place, key, turn)

    async def show_code(self, press: Press) -> None:
        """Show one person the exact code that an answer ran; as files if a message cannot."""
        place = press.place
        _, turn = await self._find_turn(press)
        runs, queries = past_code.list_runs(turn), query_listings.write_script(turn.queries)
        if (code_blocks := blocks.code_blocks(runs, queries)) is not None:
            await message_posting.whisper(self._api, place, past_code.HEADING, *code_blocks)
            return
        contents = past_code.make_files(runs) | (
            {"queries.sql": queries.encode()} if queries else {}
        )
        files = [
            file_uploads.OutgoingFile(name, io.BytesIO(data)) for name, data in contents.items()
        ]
        direct_place = await message_posting.direct_place(self._api, place)
        if complaints := await self._uploads.send(direct_place, direct_place.thread, files):
            raise errors.BotError("\n".join(complaints))
        if direct_place is not place:
            await message_posting.whisper(self._api, place, file_words.SENT_AS_FILE)

    async def _find_turn(self, press: Press) -> tuple[values.SessionKey, past_turns.PastTurn]:
        """Find the turn of a button, and its session."""
        place = press.place
        await self._permissions.require(place.workspace, place.user, place.channel)
        key, turn_id = _parse_value(press, command_words.ANSWER_TOO_OLD)
        return key, past_code.find_turn(await self._service.queries.history(key), turn_id)

    async def confirm(self, press: Press) -> None:
        """Run or drop a command that was written as a message."""
        is_confirmed = press.action == blocks.CONFIRM
        await self._commands.decide(
            press.place, press.message_ts, press.value, is_confirmed=is_confirmed
        )

    # Questions ----------------------------------------------------------------------------

    async def answer(self, press: Press) -> None:
        """Answer a question by one of its buttons."""
        await self.respond(press.place, _question_id(press), press.action)

    async def open_question(self, press: Press) -> None:
        """Open the form for an answer to `input()`, or for editing code that waits for approval."""
        place, question_id = press.place, _question_id(press)
        is_admin = await self._is_admin(place, question_id)
        question = self._service.questions.require_answerable(
            question_id, place.user, is_admin=is_admin, is_edit=press.action == "change"
        )
        form_metadata = {"channel": place.channel, "question": question.id}
        if isinstance(question, events.ApprovalQuestion):
            if len(question.code) > _MAX_EDITED_CHARACTERS:
                raise errors.BotError(question_words.TOO_LONG_TO_EDIT)
            view = home_and_modal_views.make_edit_form(form_metadata, question)
        else:
            label = quantities.one_line(question.prompt, _MAX_LABEL_CHARACTERS)
            is_of_model = question.is_of_model
            view = home_and_modal_views.make_answer_form(
                form_metadata, label, is_of_model=is_of_model
            )
        await self.open_form(place, press.trigger_id, view)

    async def open_form(
        self, place: message_posting.Place, trigger_id: str, view: home_and_modal_views.View
    ) -> None:
        """Open a form; Slack allows that for three seconds after the press."""
        await self._api.call(
            place.workspace,
            "views.open",
            max_seconds=_FORM_SECONDS,
            trigger_id=trigger_id,
            view=view,
        )

    async def respond(
        self, place: message_posting.Place, question_id: str, action: str, text: str = ""
    ) -> None:
        """Answer a question by a button, or with what a person wrote in its form."""
        # The person may have lost the right to use the bot meanwhile.
        await self._permissions.require(place.workspace, place.user, place.channel)
        is_admin = await self._is_admin(place, question_id)
        await self._service.questions.respond(
            question_id, action, text, person=place.user, is_admin=is_admin
        )

    async def _is_admin(self, place: message_posting.Place, question_id: str) -> bool:
        """Return whether a person who was not asked may answer as an admin."""
        question = self._service.questions.find(question_id)
        if question is None or question.person == place.user:
            return False
        profile = await self._permissions.require(place.workspace, place.user, place.channel)
        return profile.is_admin


def _parse_value(press: Press, refusal: str) -> tuple[values.SessionKey, str]:
    """Return the session of a button and its subject's id; refuse one of another channel."""
    key, subject_id = blocks.parse_button_value(press.value)
    if key is None or (key.workspace, key.channel) != (
        press.place.workspace.team,
        press.place.channel,
    ):
        raise errors.BotError(refusal)
    return key, subject_id


def _question_id(press: Press) -> str:
    _, question_id = blocks.parse_button_value(press.value)
    return question_id
