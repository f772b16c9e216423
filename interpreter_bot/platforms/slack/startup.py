"""Start and stop the Slack platform: the composition of its parts.

    async with startup.connected_platform(conversations, slack) as platform:
        …

Shutdown: no new event is handled; running answers have some seconds to finish, then they are
stopped and say so; then the connection ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any, Final

import aiohttp
from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_bolt.oauth.async_oauth_flow import AsyncOAuthFlow
from slack_sdk import errors as sdk_errors
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from interpreter_bot import logs, settings, values
from interpreter_bot.platforms.chat import in_flight
from interpreter_bot.platforms.slack import (
    api_errors,
    app,
    button_actions,
    command_views,
    handler_dependencies,
    home_tab,
    http_server,
    installations,
    interaction_requests,
    markdown,
    message_events,
    message_posting,
    missed_messages,
    web_api,
)
from interpreter_bot.platforms.slack import transport as slack_transport
from interpreter_bot.sessions import event_claims, schedules
from interpreter_bot.wording import slack_words

if TYPE_CHECKING:
    from interpreter_bot.sessions import session_service

_CONNECT_SECONDS: Final = 15.0
_CHECK_SECONDS: Final = 10.0


@contextlib.asynccontextmanager
async def connected_platform(
    service: session_service.SessionService,
    config: settings.Slack,
    *,
    tables: installations.Tables | None = None,
    timing: web_api.Timing = web_api.TIMING,
) -> AsyncIterator[str]:
    """Run Slack; yield the address of the HTTP server, empty with Socket Mode.

    If Slack no longer accepts the token of the only workspace, the body of the context is
    cancelled, and the context raises the reason.

    Args:
        service: the conversations.
        config: of Slack.
        tables: for the tokens of many workspaces.
        timing: pauses and time limits.

    Raises:
        SlackError: the bot cannot log in or connect; the sentence says why.
        LostError: Slack no longer accepts the bot's token.
    """
    _check_settings(config, tables)
    _hide_secrets(config)
    async with contextlib.AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        workspaces, flow = await _open_workspaces(config, tables, session)
        dependencies = handler_dependencies.build(service, config, workspaces, session, timing)
        network = slack_transport.SlackTransport(dependencies)
        running_requests = in_flight.RequestsInFlight(
            service, network, markdown, dependencies.permissions.settings
        )
        notify = message_posting.make_notify(dependencies.api, workspaces)
        commands = command_views.SlackCommands(dependencies, running_requests)
        messages = message_events.MessageEvents(dependencies, running_requests, commands)
        listeners = _listeners(dependencies, running_requests, messages, commands, notify)
        stack.push_async_callback(running_requests.drain, timing.drain_seconds)
        service.notify_through("slack", notify, go_on=running_requests.go_on)

        async def find_owner_refusal(key: values.SessionKey, person: str) -> str:
            workspace = await workspaces.get(key.workspace)
            return await dependencies.permissions.find_owner_refusal(workspace, key, person)

        service.schedules.open_platform(
            "slack", schedules.Platform(running_requests.go_on, find_owner_refusal)
        )
        bolt = app.build_app(
            workspaces, config.signing_secret.get_secret_value(), config.api_base_url
        )
        listeners.register(bolt)
        connection = _connect(bolt, config, flow, session, workspaces, timing)
        address = await stack.enter_async_context(connection)
        await stack.enter_async_context(_cancel_on_loss(workspaces))
        catching_up = missed_messages.MissedMessages(dependencies, messages).catch_up()
        running_requests.spawn(catching_up, "missed messages")
        yield address


@contextlib.asynccontextmanager
async def _cancel_on_loss(workspaces: installations.InstalledWorkspaces) -> AsyncIterator[None]:
    """Cancel the body of the context when the only workspace is lost.

    Raises:
        LostError: the workspace is lost.
    """
    try:
        async with asyncio.TaskGroup() as tasks:
            watch_task = tasks.create_task(workspaces.wait_for_loss(), name="slack token")
            yield
            watch_task.cancel()
    except* api_errors.LostError as group:
        losses = group.exceptions
    else:
        return
    raise losses[0]


@contextlib.asynccontextmanager
async def serve(
    service: session_service.SessionService,
    config: settings.Slack,
    *,
    tables: installations.Tables | None = None,
) -> AsyncIterator[str]:
    """Run Slack as `connected_platform` does; yield a sentence about its address.

    Raises:
        SlackError: the bot cannot log in or connect; the sentence says why.
    """
    async with connected_platform(service, config, tables=tables) as address:
        yield f"listens on {address}{http_server.PATH}" if address else "is connected"


def _check_settings(config: settings.Slack, tables: installations.Tables | None) -> None:
    """Refuse settings that cannot work.

    Raises:
        SlackError: a sentence about what is missing.
    """
    if not config.uses_http and not config.app_token.get_secret_value():
        raise api_errors.SlackError(slack_words.NO_APP_TOKEN)
    if config.client_id and (tables is None or not config.client_secret.get_secret_value()):
        raise api_errors.SlackError(slack_words.NO_CLIENT_SECRET)
    if not config.is_on:
        raise api_errors.SlackError(slack_words.NO_BOT_TOKEN)


def _hide_secrets(config: settings.Slack) -> None:
    secrets = (config.bot_token, config.app_token, config.signing_secret, config.client_secret)
    logs.add_secrets(secret.get_secret_value() for secret in secrets)


async def _open_workspaces(
    config: settings.Slack, tables: installations.Tables | None, session: aiohttp.ClientSession
) -> tuple[installations.InstalledWorkspaces, AsyncOAuthFlow | None]:
    if config.client_id and tables is not None:
        installation_store = await installations.open_store(config, tables)
        flow = None
        if config.uses_http:
            flow = await installations.make_flow(config, tables, installation_store)
        return installations.InstalledWorkspaces(store=installation_store), flow
    return installations.InstalledWorkspaces(await _log_in(config, session)), None


async def _log_in(
    config: settings.Slack, session: aiohttp.ClientSession
) -> installations.InstalledWorkspace:
    """Ask Slack for the bot's identity.

    Raises:
        SlackError: Slack refuses the token, or cannot be reached.
    """
    token = config.bot_token.get_secret_value()
    answer = await _test_token(config, session)
    if answer.get("is_enterprise_install"):
        raise api_errors.SlackError(slack_words.ORGANISATION_TOKEN)
    return installations.InstalledWorkspace(
        team=str(answer["team_id"]),
        bot_user=str(answer["user_id"]),
        bot=str(answer.get("bot_id") or ""),
        token=token,
        enterprise=str(answer.get("enterprise_id") or ""),
    )


async def _test_token(config: settings.Slack, session: aiohttp.ClientSession) -> AsyncSlackResponse:
    token = config.bot_token.get_secret_value()
    client = AsyncWebClient(token=token, base_url=config.api_base_url, session=session)
    with _translate_errors(slack_words.BOT_TOKEN, config):
        return await client.auth_test()


async def check_bot_token(config: settings.Slack) -> tuple[str, tuple[str, ...]]:
    """Return the identity of the bot token, in words, and the scopes of the manifest that it lacks.

    Raises:
        SlackError: Slack refuses it, or cannot be reached.
    """
    _hide_secrets(config)
    with _translate_errors(slack_words.BOT_TOKEN, config):
        async with asyncio.timeout(_CHECK_SECONDS), aiohttp.ClientSession() as session:
            answer = await _test_token(config, session)
    headers = {str(name).lower(): value for name, value in answer.headers.items()}
    granted_text = str(headers.get("x-oauth-scopes", ""))
    granted_scopes = {scope.strip() for scope in granted_text.split(",")}
    # A server that lists no scopes may grant all.
    missing_scopes = tuple(
        scope for scope in installations.SCOPES if granted_text and scope not in granted_scopes
    )
    return f"@{answer.get('user')} in {answer.get('team')}", missing_scopes


async def check_app_token(config: settings.Slack) -> None:
    """Ask Slack for a connection of Socket Mode, and leave it unused.

    Raises:
        SlackError: Slack refuses the app token, or cannot be reached.
    """
    _hide_secrets(config)
    with _translate_errors(slack_words.APP_TOKEN, config):
        async with asyncio.timeout(_CHECK_SECONDS), aiohttp.ClientSession() as session:
            await _socket_address(config, config.app_token.get_secret_value(), session)


async def send_hello(config: settings.Slack, person: str) -> None:
    """Send a person a message, so that they see the bot in their Slack.

    Raises:
        SlackError: Slack refuses it, or cannot be reached.
    """
    token = config.bot_token.get_secret_value()
    with _translate_errors(slack_words.MESSAGE_TO_PERSON, config):
        async with asyncio.timeout(_CHECK_SECONDS), aiohttp.ClientSession() as session:
            client = AsyncWebClient(token=token, base_url=config.api_base_url, session=session)
            response = await client.conversations_open(users=person)
            channel = response["channel"]["id"]
            await client.chat_postMessage(
                channel=channel,
                text=slack_words.TEST_MESSAGE,
                unfurl_links=False,
                unfurl_media=False,
            )


def _listeners(
    dependencies: handler_dependencies.HandlerDependencies,
    requests_in_flight: in_flight.RequestsInFlight,
    messages: message_events.MessageEvents,
    commands: command_views.SlackCommands,
    notify: message_posting.Notify,
) -> app.Listeners:
    interactions = interaction_requests.InteractionRequests(dependencies, requests_in_flight)

    def handle_again(event: event_claims.LostEvent) -> None:
        is_message = "is_edit" in event.content
        handle = messages.inbox.receive_again if is_message else interactions.handle_again
        requests_in_flight.spawn(handle(event), "an event again")

    dependencies.service.events.open_platform("slack", handle_again)
    feedback = home_tab.Feedback(dependencies.service)
    home = home_tab.HomeTab(dependencies, feedback, notify)
    buttons = button_actions.ButtonActions(
        dependencies, requests_in_flight, interactions, commands, feedback
    )
    return app.Listeners(
        dependencies, requests_in_flight, messages, interactions, buttons, commands, home
    )


@contextlib.asynccontextmanager
async def _connect(
    bolt: AsyncApp,
    config: settings.Slack,
    flow: AsyncOAuthFlow | None,
    session: aiohttp.ClientSession,
    workspaces: installations.InstalledWorkspaces,
    timing: web_api.Timing,
) -> AsyncIterator[str]:
    if config.uses_http:
        async with http_server.serve(bolt, config, flow) as address:
            yield address
        return
    token = config.app_token.get_secret_value()
    address = await _socket_address(config, token, session)
    handler = AsyncSocketModeHandler(
        bolt,
        token,
        web_client=_ConnectionClient(workspaces, base_url=config.api_base_url, session=session),
        ping_interval=timing.ping_seconds,
    )
    handler.client.wss_uri = address
    try:
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                await handler.connect_async()  # type: ignore[no-untyped-call]
        except TimeoutError as error:
            raise api_errors.LostError(slack_words.NO_SOCKET) from error
        yield ""
    finally:
        await handler.close_async()  # type: ignore[no-untyped-call]


class _ConnectionClient(AsyncWebClient):
    """The client with which Socket Mode reconnects for ever; reports an invalid app token."""

    def __init__(self, workspaces: installations.InstalledWorkspaces, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._workspaces = workspaces
        self._refusals = 0

    async def apps_connections_open(self, *, app_token: str, **kwargs: Any) -> AsyncSlackResponse:
        """Request an address; two refusals of the token in a row count as its loss."""
        try:
            answer = await super().apps_connections_open(app_token=app_token, **kwargs)
        except sdk_errors.SlackApiError as error:
            refusal = api_errors.error_of_code(slack_words.APP_TOKEN, _error_code(error))
            self._refusals += isinstance(refusal, api_errors.GoneError)
            if isinstance(refusal, api_errors.GoneError) and self._refusals > 1:
                self._workspaces.report_loss(refusal)
            raise
        self._refusals = 0
        return answer


async def _socket_address(
    config: settings.Slack, token: str, session: aiohttp.ClientSession
) -> str:
    """Request the first address, as Socket Mode itself would retry a wrong token for ever.

    Raises:
        SlackError: the token is wrong, or Slack cannot be reached.
    """
    client = AsyncWebClient(base_url=config.api_base_url, session=session)
    with _translate_errors(slack_words.APP_TOKEN, config):
        answer = await client.apps_connections_open(app_token=token)
    return str(answer["url"])


@contextlib.contextmanager
def _translate_errors(subject: str, config: settings.Slack) -> Iterator[None]:
    """Translate errors of the connection to Slack.

    Raises:
        RefusedError: Slack refused the call for good.
        LostError: the call may succeed later.
    """
    try:
        yield
    except sdk_errors.SlackApiError as error:
        code = _error_code(error)
        if not code or code in api_errors.TEMPORARY_CODES | api_errors.RATE_LIMIT_CODES:
            raise api_errors.LostError(slack_words.call_refused_for_now(subject, code)) from error
        raise api_errors.error_of_code(subject, code) from error
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise api_errors.LostError(slack_words.unreachable(config.api_base_url)) from error


def _error_code(error: sdk_errors.SlackApiError) -> str:
    # If the body was no JSON, this is the response of aiohttp, without data.
    data = getattr(error.response, "data", None)
    return str(data.get("error", "")) if isinstance(data, dict) else ""
