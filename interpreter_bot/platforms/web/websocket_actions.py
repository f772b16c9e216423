"""Actions of a tab's websocket messages: requests made, data sent."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final

import aiohttp
from aiohttp import web

from interpreter_bot import errors, values
from interpreter_bot.platforms import command_table, command_types, preferences
from interpreter_bot.platforms.web import (
    command_panels,
    live_turns,
    session_actions,
    tab_contents,
    tab_hub,
    tab_messages,
    validation,
)
from interpreter_bot.sessions import (
    event_claims,
    requests,
    session_service,
)
from interpreter_bot.wording import page_words, question_words, run_words

_log = logging.getLogger(__name__)

_MAX_TURNS: Final = 1000
_MAX_SEEN_IDS: Final = 1000
# Commands that are messages of their own.
_MESSAGE_COMMANDS: Final = frozenset({"stop", "reset", "undo", "fork"})


class TabConnections:
    """The websockets of all tabs. Requests run in tasks that outlive the tab that sent them."""

    def __init__(
        self,
        service: session_service.SessionService,
        hub: tab_hub.Hub,
        tasks: asyncio.TaskGroup,
    ) -> None:
        """Connect no tab yet."""
        self._service = service
        self._hub = hub
        self._tasks = tasks
        self._sockets: set[web.WebSocketResponse] = set()
        self._running_tasks = set[asyncio.Task[None]]()
        self._seen_ids = collections.deque[str](maxlen=_MAX_SEEN_IDS)
        self._session_actions = session_actions.SessionActions(service, hub)

    async def serve_tab(self, socket: web.WebSocketResponse) -> None:
        """Serve a tab until it disconnects."""
        tab = tab_hub.Tab()
        self._hub.add_tab(tab)
        self._sockets.add(socket)
        sender = asyncio.create_task(_send_batches(socket, tab), name="web: sending to a tab")
        try:
            tab.send(tab_contents.make_greeting(self._service))
            await self._guard(tab, None, self._send_listing(tab))
            async for message in socket:
                if message.type is aiohttp.WSMsgType.TEXT:
                    await self._receive(tab, message.data)
                elif message.type is aiohttp.WSMsgType.BINARY:
                    _refuse(tab, None, validation.MalformedError())
        finally:
            self._hub.remove_tab(tab)
            self._sockets.discard(socket)
            sender.cancel()

    async def close(self) -> None:
        """Disconnect every tab; they reconnect when a server listens again."""
        for socket in tuple(self._sockets):
            await socket.close(code=aiohttp.WSCloseCode.GOING_AWAY)

    def cancel(self) -> None:
        """Cancel every turn that still waits or runs."""
        for task in self._running_tasks:
            task.cancel()

    async def _send_listing(self, tab: tab_hub.Tab) -> None:
        listing = await tab_contents.list_sessions(self._service)
        tab.send(tab_hub.encode_message("conversations", listing))

    async def _receive(self, tab: tab_hub.Tab, data: str) -> None:
        message = tab_messages.decode(data)
        await self._guard(tab, message, self._dispatch(tab, message))

    async def _dispatch(self, tab: tab_hub.Tab, document: object) -> None:
        match tab_messages.parse(document):
            case tab_messages.Watch() as message:
                await tab_contents.show_session(
                    self._service, self._hub, tab, key=message.key, limit=message.max_turns
                )
            case tab_messages.SendRequest() as message:
                await self._send_request(tab, message)
            case tab_messages.BranchOff() as message:
                await self._branch_off(tab, message)
            case tab_messages.Stop() as message:
                if not await self._service.stop(message.key):
                    raise errors.BotError(run_words.NOTHING_RUNS)
            case tab_messages.Withdraw() as message:
                await self._withdraw(message)
            case tab_messages.AnswerQuestion() as message:
                await self._answer_question(message)
            case tab_messages.SetApprovalPolicy() as message:
                argument = f"{preferences.APPROVAL} {message.approval}"
                await self._choose_setting(tab, message.key, argument)
            case tab_messages.ShowPanel() as message:
                await self._show_panel(tab, message)
            case tab_messages.SubmitForm() as message:
                await self._submit_form(tab, message)
            case tab_messages.ReadData() as message:
                # In a task, as it may take seconds.
                read_data = session_actions.prepare_read(self._service, tab, message)
                self.start_task(read_data, "web: read data of Python")
            case message:
                await self._session_actions.act(tab, message)

    async def _guard(self, tab: tab_hub.Tab, message: object, work: Awaitable[None]) -> None:
        """Handle a message of a tab; refuse it after any error.

        A message that is neither accepted nor refused would be sent again with each connection.
        """
        try:
            await work
        except errors.BotError as error:
            _refuse(tab, message, error)
        except Exception as error:
            _log.exception("a message of a tab ended in an error")
            _refuse(tab, message, error)

    async def _send_request(self, tab: tab_hub.Tab, message: tab_messages.SendRequest) -> None:
        key, text, is_code = message.key, message.text, message.is_code
        person = dataclasses.replace(validation.PERSON, zone=message.zone)
        if (invocation := command_table.parse(text, "web", is_code=is_code)) is not None:
            if not invocation.command.is_request:
                await self._run_command(tab, key, invocation)
                _accept(tab, message.id)
                return
            is_code = True
            text = await command_table.find_code(invocation, self._place(key, person))
        self._check_content(text, message.files, is_code=is_code)
        request = self._make_request(
            key, message.id, text, message.files, is_code=is_code, person=person
        )
        if await self._is_new_request(request):
            # Checked now, as other messages of the tab may be handled at the next await.
            is_first = not self._hub.list_turns(key.thread) and await self._has_no_turns(key)
            heading = tab_contents.make_heading(
                text, request.files, is_code=is_code, started_at=time.time()
            )
            turn = self._hub.begin_turn(key.thread, request.id, heading)
            title = tab_contents.make_title(text or ", ".join(request.files)) if is_first else ""
            work = self._run_turn(request, turn, title=title)
            claimed_work = functools.partial(self._run_claimed, request.id, work)
            self.start_task(claimed_work, f"web: turn {request.id}")
            if title:
                rename = functools.partial(self._service.rename, key, title)
                self.start_task(rename, f"web: title of {request.id}")
        _accept(tab, request.id)

    def _check_content(self, text: str, files: tuple[str, ...], *, is_code: bool) -> None:
        if not text.strip() and not files:
            raise errors.BotError(page_words.WRITE_SOMETHING)
        if not is_code and not self._service.queries.models:
            raise errors.BotError(page_words.NO_MODEL)

    async def _branch_off(self, tab: tab_hub.Tab, message: tab_messages.BranchOff) -> None:
        """Send a request in a new branch, in place of an earlier one; switch the tab to it."""
        self._check_content(message.text, message.files, is_code=message.is_code)
        new_key = validation.make_key()
        cells = await self._service.branches.branch(
            message.key, message.turn_id, new_key=new_key, person=validation.PERSON.id
        )
        thread = new_key.thread
        tab.send(tab_hub.encode_message("forked", {"to": thread}))
        for joined_cells in _join_cells(cells):
            cell_id = validation.make_key().thread
            cell = tab_messages.SendRequest(
                thread=thread, id=cell_id, text=joined_cells, is_code=True
            )
            await self._send_request(tab, cell)
        fields = message.model_dump(exclude={"do", "turn_id", "thread"})
        await self._send_request(tab, tab_messages.SendRequest(thread=thread, **fields))

    def _make_request(
        self,
        key: values.SessionKey,
        turn_id: str,
        text: str,
        files: tuple[str, ...],
        *,
        is_code: bool,
        person: requests.Person = validation.PERSON,
    ) -> requests.Request:
        return requests.Request(
            key=key,
            person=person,
            text=text,
            files=files,
            is_code=is_code,
            id=turn_id,
            may_steer=not is_code,
        )

    async def _is_new_request(self, request: requests.Request) -> bool:
        """Return whether a request is new, as a tab repeats it after a lost connection.

        A request that a killed bot had claimed is new, too: its tab sends it again, or
        `handle_lost_event` runs it, whichever comes first.
        """
        key, turn_id = request.key, request.id
        if turn_id in self._seen_ids:
            return False
        self._seen_ids.append(turn_id)
        try:
            content = {"text": request.text, "files": [*request.files], "is_code": request.is_code}
            if await self._service.events.claim(
                "web", turn_id, key=key, request_id=turn_id, content=content
            ):
                return True
            if not await self._service.events.reclaim("web", turn_id):
                return False
            turns = await self._service.queries.history(key, limit=_MAX_TURNS)
        except BaseException:
            self._seen_ids.remove(turn_id)
            raise
        return all(turn.record.request_id != turn_id for turn in turns)

    async def _run_claimed(self, turn_id: str, work: Awaitable[None]) -> None:
        """Run a claimed request, and settle the claim."""
        async with self._service.events.settling("web", turn_id):
            await work

    def handle_lost_event(self, event: event_claims.LostEvent) -> None:
        """Run a request that a dead bot had claimed but not finished."""
        content = event.content
        if event.event_id in self._seen_ids:
            return
        request = self._make_request(
            event.key,
            event.event_id,
            content["text"],
            tuple(content["files"]),
            is_code=content["is_code"],
        )
        self._seen_ids.append(request.id)
        work = functools.partial(self._run_claimed, request.id, self.run_request(request))
        self.start_task(work, f"web: turn {request.id} again")

    async def run_request(self, request: requests.Request) -> None:
        """Run and show a request that does not come from a tab, such as a schedule's."""
        heading = tab_contents.make_heading(
            request.text, request.files, is_code=request.is_code, started_at=time.time()
        )
        thread = request.key.thread

        def begin() -> live_turns.LiveTurn:
            return self._hub.begin_turn(thread, request.id, heading, is_new=False)

        if not request.is_scheduled:
            await self._run_turn(request, begin())
            return
        hidden_turn = live_turns.HiddenTurn(begin)
        try:
            await self._service.handle(request, hidden_turn)
        finally:
            if hidden_turn.live_turn is not None:
                self._hub.end_turn(thread, hidden_turn.live_turn)

    def start_task(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """Start a task that outlives the tab."""
        task = self._tasks.create_task(_log_failures(work, name), name=name)
        self._running_tasks.add(task)
        task.add_done_callback(self._running_tasks.discard)

    async def _run_turn(
        self,
        request: requests.Request,
        turn: live_turns.LiveTurn,
        *,
        title: str = "",
    ) -> None:
        # Requests enter the lane before any await, so that a burst keeps its order.
        try:
            end = await self._service.handle(request, turn)
        finally:
            self._hub.end_turn(request.key.thread, turn)
        if title and await self._service.improve_title(request, end, title=title):
            self._hub.sessions_changed.set()

    async def _has_no_turns(self, key: values.SessionKey) -> bool:
        try:
            return not await self._service.queries.history(key, limit=1)
        except errors.BotError:
            _log.exception("a conversation may get no title")
            return False

    async def _run_command(
        self, tab: tab_hub.Tab, key: values.SessionKey, invocation: command_types.Invocation
    ) -> None:
        name, argument, thread = invocation.command.name, invocation.argument, key.thread
        match name:
            case "model" if argument:
                title = preferences.model_title(argument, self._service.queries.models)
                await self._dispatch(tab, {"do": "choose_model", "thread": thread, "model": title})
            case "settings" if argument:
                await self._choose_setting(tab, key, argument)
            case "notebook":
                tab.send(tab_hub.encode_message("download", {}))
            case _ if name in _MESSAGE_COMMANDS:
                await self._dispatch(
                    tab, {"do": name, "thread": thread, "files": argument == "files"}
                )
            case _:
                message = tab_messages.ShowPanel(thread=thread, panel=name, argument=argument)
                await self._show_panel(tab, message)

    async def _withdraw(self, message: tab_messages.Withdraw) -> None:
        if not await self._service.withdraw(message.key, message.id):
            raise errors.BotError(question_words.EXPIRED)

    async def _answer_question(self, message: tab_messages.AnswerQuestion) -> None:
        action = "refuse" if message.text is None else "answer"
        await self._service.questions.respond(
            message.question, action, message.text or "", person=validation.PERSON.id
        )

    async def _choose_setting(
        self, tab: tab_hub.Tab, key: values.SessionKey, argument: str
    ) -> None:
        """Choose a setting, and show the settings in effect."""
        command = command_table.commands_of("web")["settings"]
        await command_table.run(command_types.Invocation(command, argument), self._place(key))
        panel = argument.split()[0].lower()
        await self._show_panel(tab, tab_messages.ShowPanel(thread=key.thread, panel=panel))

    async def _show_panel(self, tab: tab_hub.Tab, message: tab_messages.ShowPanel) -> None:
        if message.panel in _MESSAGE_COMMANDS:
            raise errors.BotError(page_words.NO_PANEL)
        content = await command_panels.read_panel(
            self._place(message.key), message.panel, message.argument
        )
        content |= {
            "panel": message.panel,
            "argument": message.argument,
            "is_renewal": message.is_renewal,
        }
        tab.send(tab_hub.encode_message("panel", content, thread=message.thread))

    async def _submit_form(self, tab: tab_hub.Tab, message: tab_messages.SubmitForm) -> None:
        """Submit a form; if its input is refused, the form stays open."""
        content: dict[str, object] = {
            "panel": message.panel,
            "argument": message.argument,
        }
        try:
            content |= await command_panels.read_panel(
                self._place(message.key), message.panel, message.argument, message.fields
            )
        except errors.BotError as error:
            content["problem"] = str(error)
        tab.send(tab_hub.encode_message("panel", content, thread=message.thread))

    def _place(
        self, key: values.SessionKey, person: requests.Person = validation.PERSON
    ) -> command_types.Place:
        return command_types.Place(
            self._service,
            key,
            person,
            validation.PAGE_SCOPE,
            {preferences.APPROVAL: "never"},
            is_own=True,
            format_time=command_panels.format_utc,
        )


async def _log_failures(work: Callable[[], Awaitable[None]], name: str) -> None:
    try:
        await work()
    except Exception:
        # Otherwise, an error of one task would end all turns and the page.
        _log.exception("%s ended in an error", name)


async def _send_batches(socket: web.WebSocketResponse, tab: tab_hub.Tab) -> None:
    """Send a tab its messages, as fast as it reads."""
    try:
        while batch := await tab.next_batch():
            await socket.send_str(batch)
    except ConnectionError:
        return
    # The tab did not keep up. It reconnects, and loads the session again.
    await socket.close(code=aiohttp.WSCloseCode.TRY_AGAIN_LATER)


def _accept(tab: tab_hub.Tab, turn_id: str) -> None:
    tab.send(tab_hub.encode_message("accepted", {"id": turn_id}))


def _refuse(tab: tab_hub.Tab, message: object, error: Exception) -> None:
    message_id = str(message["id"]) if isinstance(message, dict) and "id" in message else None
    sentence = run_words.error_sentence(error)
    tab.send(tab_hub.encode_message("refused", {"id": message_id, "sentence": sentence}))


def _join_cells(cells: Iterable[str]) -> Iterator[str]:
    """Join cells into texts that each fit one message."""
    text = ""
    for cell in cells:
        if text and len(text) + len(cell) + 2 > validation.MAX_TEXT_CHARACTERS:
            yield text
            text = ""
        text = f"{text}\n\n{cell}" if text else cell
    if text:
        yield text
