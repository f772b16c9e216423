"""The service of sessions: the only entry through which platforms use sessions."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, Literal, TypeAlias

from interpreter_bot import cancellation, errors, events, values
from interpreter_bot.sessions import (
    event_claims,
    exports,
    forks_and_undo,
    lanes,
    live_data_views,
    past_turns,
    ports,
    requests,
    schedules,
    session_dependencies,
    session_files,
    session_reads,
    session_titles,
    share_links,
    stored_transcripts,
    suspended_turns,
    tool_logins,
    turn_inputs,
    turn_stops,
    turns,
    variable_losses,
)
from interpreter_bot.store import deliveries, records
from interpreter_bot.wording import session_words

_log = logging.getLogger(__name__)

Deliveries: TypeAlias = deliveries.Deliveries
Notify = Callable[[values.SessionKey, str], Awaitable[None]]
"""Sends the people of a session a sentence, outside of any turn."""

# In one conversation; further requests are refused.
_MAX_WAITING_REQUESTS: Final = 20
# Turns that are about to end need not wait for the next bot.
_MAX_HAND_OVER_SECONDS: Final = 2.0
_MAX_STOPPING_SECONDS: Final = 15.0
_MAX_UNSENT_NOTICES: Final = 1000


class SessionService:
    """The sessions of all platforms. Use `open`.

    Attributes:
        services: the parts that the service is made of; not for platforms.
        queries: read-only queries.
        questions: the questions of turns to people.
        files: the files of sessions, outside of turns.
        branches: copies of sessions, and undo.
        visits: links by which people of other platforms read a session on the page.
        places: the choices and notes of places.
        model_setup: lets the operator choose a model on the page; None if that is not possible.
        logins: logins of people at tool servers.
        events: claims of the events that networks send.
        deliveries: the messages that show answers.
        resumptions: turns of dead bots that go on here.
        schedules: the schedules of people.
        closing_seconds: for turns to finish when the bot stops and its kernels end with it.
    """

    def __init__(
        self, services: session_dependencies.SessionDependencies, *, model_notice: str = ""
    ) -> None:
        self.queries = session_reads.SessionReads(services)
        self.questions = services.questions
        self.services = services
        config = services.config
        self._lanes = lanes.Lanes(
            max_running=config.sessions.concurrent_turns,
            max_waiting=_MAX_WAITING_REQUESTS,
            # Half of them may wait for a kernel, which says why; more would block other people.
            max_per_person=2 * config.kernels.per_person,
        )
        self.deliveries = services.database.deliveries
        self.events = event_claims.EventClaims(services.database, config, self.notify)
        self.visits = share_links.ShareLinks(services)
        self.files = session_files.SessionFiles(services)
        self.improve_title = functools.partial(session_titles.set_model_title, services)
        self.branches = forks_and_undo.SessionBranches(services, self._lanes)
        self.places = services.places
        self.model_setup = services.model_setup
        self.logins = tool_logins.ToolLogins(services)
        self._stops = turn_stops.TurnStops(self._lanes, services.jobs)
        self._turn_tasks: set[asyncio.Task[Any]] = set()
        # Number of uploads that run outside of turns, by session.
        self._uploads: collections.Counter[values.SessionKey] = collections.Counter()
        self._notifiers: dict[str, Notify] = {}
        self.resumptions = suspended_turns.Resumptions(
            self._lanes, services.jobs, self.handle, self.notify
        )
        self.schedules = schedules.Schedules(services, self._lanes, self.notify)
        self._unsent_notices = collections.deque[tuple[values.SessionKey, str]](
            maxlen=_MAX_UNSENT_NOTICES
        )
        self._model_notice = model_notice
        self.closing_seconds = 20.0

    @property
    def model_notice(self) -> str:
        """A sentence for people if the model is missing, only a demo, or failing."""
        setup = self.model_setup
        notice = "" if setup is not None and setup.is_chosen else self._model_notice
        return notice or self.services.catalogue.problem

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls, services: session_dependencies.SessionDependencies, *, model_notice: str = ""
    ) -> AsyncIterator[SessionService]:
        """Open the service; when the context ends, running turns are drained."""
        service = cls(services, model_notice=model_notice)
        await services.hosts.subscribe_losses(
            functools.partial(variable_losses.note_loss, services.database)
        )
        try:
            try:
                yield service
            finally:
                await service.drain()
        finally:
            await asyncio.gather(
                service.resumptions.close(), service.events.close(), service.schedules.close()
            )
            await services.hosts.subscribe_losses(None)
            await services.write_retries.write()

    async def handle(self, request: requests.Request, reply: ports.Reply) -> events.TurnEnded:
        """Run a request when its turn comes; return the end, which `reply` receives too."""
        if end := await suspended_turns.show_ended(self.services, request, reply):
            return end
        if request.is_job:
            return await self._follow_job(request, reply)
        async with contextlib.AsyncExitStack() as stack:
            try:
                self._check_request(request)
                stop = await stack.enter_async_context(self._wait_for_lane(request, reply))
                await self.branches.undo_edited(request)
            except lanes.TakenUpError as error:
                end = events.TurnEnded(status=values.TurnStatus.DONE, text=str(error))
                reply.emit(end)
                return end
            except errors.BotError as error:
                is_withdrawn = isinstance(error, lanes.WithdrawnError)
                status = values.TurnStatus.STOPPED if is_withdrawn else values.TurnStatus.FAILED
                end = events.TurnEnded(status=status, sentence=str(error))
                reply.emit(end)
                return end
            except asyncio.CancelledError:
                reply.emit(self._withdrawn_end())
                raise
            find_steering = functools.partial(
                self._lanes.find_steering, request.key, request.person.id
            )
            try:
                return await turns.run_turn(self.services, request, reply, find_steering, stop=stop)
            finally:
                job = self.services.jobs.take_request(request.key)
                # When the bot closes, the next bot resumes the job.
                if job is not None and not self._lanes.is_closed:
                    self.resumptions.add(job)

    async def _follow_job(self, request: requests.Request, reply: ports.Reply) -> events.TurnEnded:
        """Run the turn of a job, beside others of its session."""
        with (
            self._stops.hold_signal(request.key, request.id) as stop,
            self._stops.running(request.key, stop, is_job=True),
            self.services.jobs.following(request.key),
        ):
            job = self.services.jobs.find(request.key)
            is_stopped = job is not None and job.is_stopped
            stop.is_restart = self._lanes.is_closed and not is_stopped
            stop.goes_on = not self.services.hosts.ends_with_bot
            if stop.is_restart or is_stopped:
                stop.set()
            # A job is not steered by messages that people write meanwhile.
            return await turns.run_turn(self.services, request, reply, lambda: (), stop=stop)

    def is_busy(self, key: values.SessionKey) -> bool:
        """Return whether a turn runs or waits in a session, or a job runs."""
        return self._lanes.is_busy(key) or self.services.jobs.find(key) is not None

    def is_busy_for(self, key: values.SessionKey, person: str) -> bool:
        """Return whether a turn of a person runs or waits in a session."""
        return self._lanes.is_busy_for(key, person)

    def is_expected(self, key: values.SessionKey, request_id: str) -> bool:
        """Return whether a turn that another bot began is about to go on."""
        return self._lanes.is_expected(key, request_id)

    async def stop(self, key: values.SessionKey) -> bool:
        """Stop the running turn of a session, or else its job; return whether there was one."""
        return self._stops.stop(key)

    async def cancel(self, key: values.SessionKey, request_id: str) -> bool:
        """Withdraw a request, or stop its turn; see `turn_stops.TurnStops.cancel`."""
        return self._stops.cancel(key, request_id)

    async def withdraw(self, key: values.SessionKey, request_id: str) -> bool:
        """Withdraw a request that still waits; return whether it was waiting."""
        return self._lanes.withdraw(key, request_id)

    async def reset(self, key: values.SessionKey, *, files: bool = False) -> None:
        """Delete a session's variables and the model's memory of it, after stopping its turn.

        With `files`, delete its files as well.
        """
        async with self._stop_and_hold_lane(key):
            await self._release_kernel(key, files=files)
            notice = records.NewPart(kind=records.PartKind.NOTICE, text=session_words.RESET_DONE)
            memory = records.NewPart(kind=records.PartKind.MEMORY, detail=stored_transcripts.RESET)
            database = self.services.database
            async with database.transaction(is_writing=True):
                session = await database.sessions.open(key)
                await database.sessions.note_kernel(session.id, {})
                turn = await database.turns.start(session.id, person="", text="")
                await database.parts.add(turn.id, notice, memory)
                await database.turns.finish(turn.id, values.TurnStatus.DONE)

    async def save_table(
        self, key: values.SessionKey, handle: str, person: requests.Person, suffix: str = "csv"
    ) -> str:
        """Save a table whose head was shown as a CSV or Parquet file; return the file's name.

        Args:
            handle: see `values.Table.handle`.
            person: the owner of the kernel if one has to be started.
            suffix: "csv" or "parquet".

        Raises:
            BotError: the table cannot be saved, or a turn is running.
        """
        key_text, hosts = values.format_key(key), self.services.hosts
        await self.services.jobs.require_none(key)
        async with self._lanes.hold(key):
            status = (await hosts.statuses({key_text})).get(key_text)
            is_gone = status is None or status.loss_reason
            if is_gone and not (await hosts.variables(key_text)).saved:
                # A new kernel would not have the table.
                raise errors.BotError(session_words.TABLE_GONE)
            async with live_data_views.lease_kernel(hosts, key, person) as kernel:
                return await exports.save_table(hosts, kernel, handle, suffix)

    async def delete(self, key: values.SessionKey) -> None:
        """Delete a session with its records, variables, files and schedules; its usage stays.

        The sessions in which its scheduled code ran are deleted too, as they have copies of its
        files.
        """
        # Before anything is deleted, as a waiting request would create the session anew.
        self._lanes.refuse_waiting(key)
        async with self._stop_and_hold_lane(key):
            await self._release_kernel(key, files=True)
            deleted_schedules = await self.services.database.schedules.delete_for_session(key)
            session = await self.services.database.sessions.find(key)
            if session is not None:
                await self.services.database.sessions.delete(session.id)
        for schedule in deleted_schedules:
            if schedule.code:
                await self.delete(schedule.runs_key)

    async def delete_files(self, session: records.Session, sentence: str) -> bool:
        """Delete the files of a session that is not in use, and notify its people.

        Args:
            session: its row when the deletion was decided.
            sentence: tells people the reason, now and when they come back. If the session's row
                already has this sentence, an interrupted deletion is finished without a notice.

        Returns:
            Whether this call deleted the files. It deletes none if the session has a live kernel,
            was used after the decision, or is being deleted by another process.
        """
        key = session.key
        if self.is_busy(key):
            return False
        async with self._lanes.turn(key, person="", on_position=lambda _: None, skips_queue=True):
            is_done = await cancellation.shielded(
                session_files.delete_unused(self.services, session, sentence, self._uploads)
            )
        # Outside of the lane, as the notice may wait for a network.
        if is_done and session.files.get("gone") != sentence:
            await self.notify(key, sentence)
        return is_done

    async def recent(
        self,
        platform: str,
        workspace: str | None = "",
        *,
        channel: str | None = None,
        person: str = "",
        mark: str | None = None,
        limit: int = 50,
    ) -> tuple[past_turns.SessionOverview, ...]:
        """Return the sessions that were used last; see `store.sessions.Sessions.list_recent`."""
        sessions = await self.services.database.sessions.list_recent(
            platform, workspace, channel=channel, person=person, mark=mark, limit=limit
        )
        sessions_by_key = {values.format_key(session.key): session for session in sessions}
        statuses = await self.services.hosts.statuses(set(sessions_by_key))
        live = {key: status for key, status in statuses.items() if not status.loss_reason}
        return tuple(
            past_turns.SessionOverview(
                record=session,
                is_busy=self.is_busy(session.key),
                has_kernel=key_text in live,
                memory_bytes=live[key_text].memory_bytes if key_text in live else None,
            )
            for key_text, session in sessions_by_key.items()
        )

    async def create_session(self, key: values.SessionKey) -> None:
        """Record a session that has no turn yet."""
        await self.services.database.sessions.open(key)

    async def rename(self, key: values.SessionKey, title: str) -> None:
        """Set the title that lists show for a session."""
        session = await self.services.database.sessions.open(key)
        await self.services.database.sessions.set_title(session.id, title)

    async def mark(self, key: values.SessionKey, mark: Literal["", "pinned", "archived"]) -> None:
        """Set the mark that lists show for a session, if the session exists."""
        await self.services.database.sessions.set_mark(key, mark)

    async def put_file(self, key: values.SessionKey, attachment: requests.Attachment) -> str:
        """Put a file into a session's workspace; return its name there.

        Raises:
            BotError: the file is refused, or could not be downloaded.
        """
        self._uploads[key] += 1
        try:
            await self.services.database.sessions.touch(key)
            workspace = await self.services.hosts.workspace(values.format_key(key))
            limits = self.services.config.limits
            return (await turn_inputs.put_file(attachment, workspace, limits)).name
        finally:
            self._uploads[key] -= 1
            self._uploads += collections.Counter()  # drops sessions without uploads

    async def choose_model(self, key: values.SessionKey, title: str | None) -> None:
        """Choose a session's model; None returns to the default.

        Raises:
            BotError: there is no such model.
        """
        if title is not None:
            self.queries.check_model(title)
        session = await self.services.database.sessions.open(key)
        await self.services.database.sessions.set_model(session.id, title)

    def notify_through(
        self, platform: str, notify: Notify, *, go_on: suspended_turns.GoOn | None = None
    ) -> None:
        """Register how people of a platform are notified outside of turns.

        The next `send_unsent` sends the notices that had to wait for this registration.

        Args:
            go_on: resumes a turn of a dead bot; None notifies people that the turn ended.
        """
        self._notifiers[platform] = notify
        self.resumptions.resume_on(platform, go_on)

    async def send_unsent(self) -> None:
        """Send the notices that had to wait until their platform was registered."""
        for _ in range(len(self._unsent_notices)):
            await self.notify(*self._unsent_notices.popleft())

    def can_notify(self, key: values.SessionKey) -> bool:
        """Return whether the platform of a session is registered."""
        return key.platform in self._notifiers

    async def notify(self, key: values.SessionKey, sentence: str) -> bool:
        """Send the people of a session a sentence; a failure is only logged.

        Returns:
            Whether the sentence was sent. If the platform is not registered, `send_unsent` sends
            the sentence later.
        """
        notify = self._notifiers.get(key.platform)
        if notify is None:
            self._unsent_notices.append((key, sentence))
            return False
        try:
            await notify(key, sentence)
        except errors.BotError:
            _log.exception("a notice could not be sent: %s", sentence)
            return False
        return True

    async def drain(self) -> None:
        """Refuse new requests, and wait until no turn runs.

        Turns may go on for `closing_seconds`. Then they are stopped, and cancelled if that does
        not help; their ends are shown and recorded. If kernels outlive the bot, turns are handed
        over to the next bot after `_MAX_HAND_OVER_SECONDS` instead. Platforms must stay open until
        `drain` returns.
        """
        self._lanes.close()
        hosts, closing_seconds = self.services.hosts, self.closing_seconds
        goes_on = not hosts.ends_with_bot
        if goes_on:
            closing_seconds = min(closing_seconds, _MAX_HAND_OVER_SECONDS)
        for stop in self._stops.all_running():
            stop.is_restart = not stop.is_set()
            stop.goes_on = goes_on
        for seconds in (closing_seconds, _MAX_STOPPING_SECONDS):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wait_idle()
                return
            if goes_on:
                hosts.keep_for_next_bot()
            for stop in self._stops.all_running():
                stop.set()
        _log.warning("%d turns did not end when they were stopped", len(self._turn_tasks))
        for task in list(self._turn_tasks):
            task.cancel()
        await self._lanes.wait_idle()

    async def _wait_idle(self) -> None:
        """Wait until no turn runs and no job is followed."""
        await self._lanes.wait_idle()
        await self.services.jobs.wait_idle()

    def _withdrawn_end(self) -> events.TurnEnded:
        """Return the end of a request that a person, or the shutdown, withdrew in the queue."""
        if self._lanes.is_closed:
            return events.TurnEnded(
                status=values.TurnStatus.FAILED, sentence=session_words.BOT_CLOSING
            )
        return turn_stops.StopSignal().end()

    def _check_request(self, request: requests.Request) -> None:
        """Raise a `BotError` if a request is empty or too long."""
        if len(request.text) > requests.MAX_CHARACTERS:
            raise errors.BotError(session_words.message_too_long(requests.MAX_CHARACTERS))
        is_empty = not (request.text.strip() or request.attachments or request.files)
        if is_empty and not request.resumed_turn_id:
            raise errors.BotError(session_words.EMPTY_MESSAGE)

    @contextlib.asynccontextmanager
    async def _wait_for_lane(
        self, request: requests.Request, reply: ports.Reply
    ) -> AsyncIterator[turn_stops.StopSignal]:
        """Wait for the session's lane and hold it; yield the signal that stops the turn."""
        turn = self._lanes.turn(
            request.key,
            person=request.person.id,
            request_id=request.id,
            request=request,
            on_position=lambda ahead: reply.emit(events.Queued(ahead)),
        )
        # The signal is registered first, as the turn may be cancelled when it gets the lane.
        with self._stops.hold_signal(request.key, request.id) as stop:
            async with turn:
                stop.is_restart = self._lanes.is_closed and not stop.is_set()
                stop.goes_on = not self.services.hosts.ends_with_bot
                if (task := asyncio.current_task()) is not None:
                    self._turn_tasks.add(task)
                try:
                    with self._stops.running(request.key, stop):
                        yield stop
                finally:
                    self._turn_tasks -= {task}

    @contextlib.asynccontextmanager
    async def _stop_and_hold_lane(self, key: values.SessionKey) -> AsyncIterator[None]:
        """Stop the session's turn and job, and hold its lane ahead of all waiting requests."""
        await self.stop(key)
        async with self._lanes.turn(key, person="", on_position=lambda _: None, skips_queue=True):
            # After the turn has ended, as its code may have become a job.
            self._stops.stop_job(key)
            await self.services.jobs.wait_over(key)
            yield

    async def _release_kernel(self, key: values.SessionKey, *, files: bool) -> None:
        hosts = self.services.hosts
        await (hosts.forget if files else hosts.release)(values.format_key(key))
