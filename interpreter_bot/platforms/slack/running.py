"""Opening and closing all of it. Nothing else puts the parts together.

    async with running.running(conversations, slack) as platform:
        …

Shutdown: no new event is taken; answers under way have `drain_seconds` to finish, then they are
stopped and say so; then the connection ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import aiohttp
from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_bolt.oauth.async_oauth_flow import AsyncOAuthFlow
from slack_sdk import errors as sdk_errors
from slack_sdk.web.async_client import AsyncWebClient

from interpreter_bot import logs, settings
from interpreter_bot.platforms.slack import (
    admitting,
    apps,
    asking,
    commands,
    downloads,
    failures,
    forms,
    homes,
    installing,
    interacting,
    listening,
    notifying,
    opinions,
    pressing,
    sending,
    serving,
    threads,
    turning,
    workspaces,
)

if TYPE_CHECKING:
    from interpreter_bot.sessions import conversations

_CONNECT_SECONDS = 15.0


@contextlib.asynccontextmanager
async def running(
    held: conversations.Conversations, slack: settings.Slack, *, engine: installing.Engine = None
) -> AsyncIterator[str]:
    """Be in Slack; gives the address HTTP listens on, empty with Socket Mode.

    Args:
        held: who answers.
        slack: the settings.
        engine: SQLAlchemy's asynchronous engine, for many workspaces.

    Raises:
        SlackError: the bot cannot log in or connect; the sentence says why.
    """
    _check(slack, engine)
    _hide(slack)
    async with contextlib.AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        known, flow = await _workspaces(slack, engine, session)
        sender = sending.Sender(session, slack, known)
        notify = notifying.Notifier(sender, known).notify
        turns, handlers = _parts(held, slack, sender, known, notify)
        stack.push_async_callback(turns.drain, slack.drain_seconds)
        held.notify_through("slack", notify)
        app = apps.build(known, slack.signing_secret.get_secret_value(), slack.api_base_url)
        handlers.register(app)
        yield await stack.enter_async_context(_transport(app, slack, flow, session))


@contextlib.asynccontextmanager
async def serve(
    held: conversations.Conversations, slack: settings.Slack, *, engine: installing.Engine = None
) -> AsyncIterator[str]:
    """Be in Slack, as `running`; gives a sentence about where that is.

    Raises:
        SlackError: the bot cannot log in or connect; the sentence says why.
    """
    async with running(held, slack, engine=engine) as address:
        yield f"listens on {address}{serving.PATH}" if address else "is connected"


def _check(slack: settings.Slack, engine: installing.Engine) -> None:
    """Refuse settings that cannot work.

    Raises:
        SlackError: a sentence about what is missing.
    """
    if slack.transport == "http" and not slack.signing_secret.get_secret_value():
        raise failures.SlackError("Slack over HTTP needs SLACK_SIGNING_SECRET.")
    if slack.transport == "socket" and not slack.app_token.get_secret_value():
        raise failures.SlackError("Slack's Socket Mode needs SLACK_APP_TOKEN (xapp-…).")
    if slack.client_id and (engine is None or not slack.client_secret.get_secret_value()):
        raise failures.SlackError(
            "Many workspaces need SLACK_CLIENT_SECRET and a database for their tokens."
        )
    if not slack.is_on:
        raise failures.SlackError("Slack needs SLACK_BOT_TOKEN (xoxb-…).")


def _hide(slack: settings.Slack) -> None:
    secrets = (slack.bot_token, slack.app_token, slack.signing_secret, slack.client_secret)
    logs.redact(secret.get_secret_value() for secret in secrets)


async def _workspaces(
    slack: settings.Slack, engine: installing.Engine, session: aiohttp.ClientSession
) -> tuple[workspaces.Workspaces, AsyncOAuthFlow | None]:
    if slack.client_id:
        installations = await installing.store(slack, engine)
        flow = None
        if slack.transport == "http":
            flow = await installing.flow(slack, engine, installations)
        return workspaces.Workspaces(store=installations), flow
    return workspaces.Workspaces(await _log_in(slack, session)), None


async def _log_in(slack: settings.Slack, session: aiohttp.ClientSession) -> workspaces.Workspace:
    """Ask Slack who we are.

    Raises:
        SlackError: it does not say.
    """
    token = slack.bot_token.get_secret_value()
    client = AsyncWebClient(token=token, base_url=slack.api_base_url, session=session)
    with _translated("the bot token (SLACK_BOT_TOKEN)", slack):
        answer = await client.auth_test()
    if answer.get("is_enterprise_install"):
        raise failures.SlackError(f"SLACK_BOT_TOKEN is for an organisation. {installing.WHOLE}")
    return workspaces.Workspace(
        team=str(answer["team_id"]),
        bot_user=str(answer["user_id"]),
        bot=str(answer.get("bot_id") or ""),
        token=token,
        enterprise=str(answer.get("enterprise_id") or ""),
    )


def _parts(
    held: conversations.Conversations,
    slack: settings.Slack,
    sender: sending.Sender,
    known: workspaces.Workspaces,
    notify: notifying.Notify,
) -> tuple[turning.Turns, apps.Handlers]:
    read = threads.Threads(sender)
    door = admitting.Doorkeeper(sender, slack, held)
    fetched = downloads.Downloads(sender, slack, most_bytes=held.limits.upload_bytes)
    said = commands.Commands(held, sender, slack)
    questions = asking.Questions()
    turns = turning.Turns(held, sender, read, questions, slack)
    parts = (turns, sender, door, read, fetched, said, slack)
    listener = listening.Listener(*parts)
    interactions = interacting.Interactions(*parts)
    thought = opinions.Opinions(held)
    home = homes.Homes(held, sender, door, thought, notify, slack)
    form = forms.Forms(sender, door, questions)
    presses = pressing.Presses(known, turns, interactions, form, home, door, thought)
    return turns, apps.Handlers(known, turns, listener, interactions, home, form, presses)


@contextlib.asynccontextmanager
async def _transport(
    app: AsyncApp,
    slack: settings.Slack,
    flow: AsyncOAuthFlow | None,
    session: aiohttp.ClientSession,
) -> AsyncIterator[str]:
    if slack.transport == "http":
        async with serving.serving(app, slack, flow) as address:
            yield address
        return
    token = slack.app_token.get_secret_value()
    address = await _socket_address(slack, token, session)
    handler = AsyncSocketModeHandler(
        app,
        token,
        web_client=AsyncWebClient(base_url=slack.api_base_url, session=session),
        ping_interval=slack.ping_seconds,
    )
    handler.client.wss_uri = address
    try:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await handler.connect_async()  # type: ignore[no-untyped-call]
        except TimeoutError as error:
            raise failures.LostError("Slack's Socket Mode cannot be reached.") from error
        yield ""
    finally:
        await handler.close_async()  # type: ignore[no-untyped-call]


async def _socket_address(slack: settings.Slack, token: str, session: aiohttp.ClientSession) -> str:
    """Ask where to connect first: the connection itself would try for ever with a wrong token.

    Raises:
        SlackError: it is wrong, or Slack cannot be reached.
    """
    client = AsyncWebClient(base_url=slack.api_base_url, session=session)
    with _translated("the app token (SLACK_APP_TOKEN)", slack):
        answer = await client.apps_connections_open(app_token=token)
    return str(answer["url"])


@contextlib.contextmanager
def _translated(what: str, slack: settings.Slack) -> Iterator[None]:
    """Say what Slack does not let pass, or that it cannot be reached.

    Raises:
        RefusedError: it refused it, for good.
        LostError: it may take it later.
    """
    try:
        yield
    except sdk_errors.SlackApiError as error:
        # Where the body was no JSON, what is there is the response of aiohttp.
        data = getattr(error.response, "data", None)
        code = str(data.get("error", "")) if isinstance(data, dict) else ""
        if not code or code in failures.PASSING | failures.LIMITED:
            raise failures.LostError(
                f"Slack did not take {what} just now ({code or 'no reason given'})."
            ) from error
        raise failures.refused(what, code) from error
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise failures.LostError(f"Slack cannot be reached at {slack.api_base_url}.") from error
