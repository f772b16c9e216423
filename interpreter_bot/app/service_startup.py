"""Opens the conversation service: kernels, models, store, and their maintenance."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import pathlib
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Final

from interpreter_bot import (
    code_activity,
    encryption,
    errors,
    schedules,
    settings,
    stored_credentials,
)
from interpreter_bot.agent.llms import catalogues, model_discovery
from interpreter_bot.agent.llms.embedded import on_demand_model
from interpreter_bot.app import execution_startup
from interpreter_bot.hosts import ports
from interpreter_bot.sessions import (
    approvals,
    code_activity_recording,
    maintenance,
    model_setup,
    questions,
    retention,
    session_dependencies,
    session_service,
)
from interpreter_bot.sessions import jobs as session_jobs
from interpreter_bot.skills import accepted_skills
from interpreter_bot.store import active_bot, databases, engines
from interpreter_bot.wording import model_words, storage_words

if TYPE_CHECKING:
    from interpreter_bot.data_connections.connection_service import ConnectionService
    from interpreter_bot.egress.broker import Broker

_log = logging.getLogger(__name__)

_MAX_SPOOL_AGE_SECONDS: Final = 24 * 3600.0
_MAX_REMEMBERED_QUERIES: Final = 1000
# By then, the platforms are usually open, and pages have connected again.
_PREOPEN_DELAY_SECONDS: Final = 2.0


@contextlib.contextmanager
def spool_directory(data: pathlib.Path, *, is_default: bool = True) -> Iterator[pathlib.Path]:
    """Make a directory below `data` for temporary files, and remove the files of a killed bot.

    With `is_default`, this process makes all temporary files there, because copies of artifacts may
    take gigabytes: the system's own directory may be in memory, as on new distributions, or on a
    disk whose free space nobody watches.

    Raises:
        SettingsError: the directory cannot be created.
    """
    directory = data / "spool"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        sentence = storage_words.file_unusable(directory, error.strerror)
        raise errors.SettingsError(sentence) from error
    for path in directory.iterdir():
        # Another process may use the same directory: it keeps no file for so long, and may delete
        # its own now. `rmtree` recurses in Python 3.11, so directories that hostile code nested too
        # deeply stay.
        with contextlib.suppress(FileNotFoundError, RecursionError):
            if path.is_dir() and time.time() - path.stat().st_mtime > _MAX_SPOOL_AGE_SECONDS:
                shutil.rmtree(path, ignore_errors=True)
    if not is_default:
        yield directory
        return
    former_directory, tempfile.tempdir = tempfile.tempdir, str(directory)
    try:
        yield directory
    finally:
        tempfile.tempdir = former_directory


@contextlib.asynccontextmanager
async def open_conversations(
    config: settings.Settings,
    environment: Mapping[str, str],
    *,
    secrets: Mapping[str, str],
    hosts: Awaitable[ports.Hosts],
    broker: Broker | None = None,
    is_ephemeral: bool = False,
    bot: active_bot.ActiveBot | None = None,
) -> AsyncIterator[session_service.SessionService]:
    """Open everything that platforms need besides kernels; see `bot_startup`.

    Args:
        environment: holds the keys of models.
        secrets: holds the variables that `mcp_servers` names.
        hosts: where kernels live; awaited late, because they open slowly.
        broker: lets their code reach the outside, if there is one.
        is_ephemeral: no file and no database outlive the service.
        bot: the active bot; None for a process beside it.

    Raises:
        BotError: it cannot be opened; the sentence says why.
    """
    async with contextlib.AsyncExitStack() as stack:
        # An ephemeral service may be part of another program.
        spool_context = spool_directory(config.paths.data, is_default=not is_ephemeral)
        spool = stack.enter_context(spool_context)
        database_context = (
            _temporary_database(stack, spool)
            if is_ephemeral
            else execution_startup.open_database(config, bot=bot)
        )
        database = await stack.enter_async_context(database_context)
        credentials = stored_credentials.StoredCredentials(config)
        stored_variables = await asyncio.to_thread(credentials.load)
        model_environment = model_setup.add_stored_models(environment, stored_variables)
        catalogue, notice = await _open_catalogue(config, model_environment, stack)
        setup = model_setup.ModelSetup(
            catalogue,
            credentials,
            patience=config.patience,
            is_open=not config.models and not model_setup.has_models(environment),
            is_chosen=not notice,
        )
        skills = await _load_skills(config, is_ephemeral=is_ephemeral)
        # An ephemeral service stores no key, so its secrets are unreadable once the process ends.
        keys = encryption.KeyRing(encryption.new_key(), config.paths.data) if is_ephemeral else None
        tools_context = execution_startup.open_tools(config, secrets, database.accounts, keys)
        tools = await stack.enter_async_context(tools_context)
        kernels = await hosts
        connections = await execution_startup.prepare_connections(broker, kernels)
        recorder = code_activity_recording.ActivityRecorder(
            database.activities, days=config.retention.record_days
        )
        stack.push_async_callback(recorder.write)
        await _prepare_recording(broker, connections, database, recorder)
        services = session_dependencies.SessionDependencies(
            config=config,
            hosts=kernels,
            database=database,
            questions=questions.Questions(database.questions),
            jobs=session_jobs.Jobs(config),
            catalogue=catalogue,
            skills=skills,
            tools=tools,
            connections=connections,
            model_setup=setup,
            on_installation=recorder.add,
        )
        service_context = session_service.SessionService.open(services, model_notice=notice)
        service = await stack.enter_async_context(service_context)
        maintainer = maintenance.Maintenance(services, service)
        jobs = (
            *maintainer.periodic_jobs(),
            *retention.Retention(services, service).periodic_jobs(),
            *recorder.periodic_jobs(),
        )
        if bot is not None:
            jobs += service.schedules.periodic_jobs()
        if tools is not None:
            jobs += tools.periodic_jobs()
        await maintainer.take_over(database.orphans, database.unshown)
        await stack.enter_async_context(schedules.run_periodically(*jobs))
        preopen_task = asyncio.create_task(_preopen_models(catalogue), name="open models")
        stack.callback(preopen_task.cancel)
        yield service


async def _load_skills(
    config: settings.Settings, *, is_ephemeral: bool
) -> accepted_skills.AcceptedSkills:
    skills = accepted_skills.AcceptedSkills(config.skills.directories, config.paths.data)
    if not is_ephemeral:
        # An ephemeral service may have other settings than the bot. It must not change the bot's
        # copies of skills.
        await asyncio.to_thread(skills.refresh)
    return skills


async def _prepare_recording(
    broker: Broker | None,
    connections: ConnectionService | None,
    database: databases.Database,
    recorder: code_activity_recording.ActivityRecorder,
) -> None:
    """Record the activity of code from now on, and tell connections the latest queries."""
    if broker is not None:
        broker.on_contact = recorder.add
        broker.find_grants = functools.partial(approvals.granted_requests, database)
    if connections is not None:
        for query in await database.activities.list_latest(
            code_activity.Query, limit=_MAX_REMEMBERED_QUERIES
        ):
            connections.pool.note_use(query)
        connections.on_query = recorder.add


async def _open_catalogue(
    config: settings.Settings, environment: Mapping[str, str], stack: contextlib.AsyncExitStack
) -> tuple[catalogues.Catalogue, str]:
    """Open the models, and return a notice about them for people."""
    discovery = model_discovery.Discovery((), ())
    if not config.models:
        discovery = await model_discovery.discover(environment)
    models = config.models or discovery.models
    servers: dict[str, on_demand_model.OnDemandModel] = {}
    notice = ""
    if not models:
        demo_model = await stack.enter_async_context(
            on_demand_model.OnDemandModel.open(config.local, config.paths.data)
        )
        notice = f"{model_words.NO_MODEL_YET} {demo_model.unavailable_reason}"
        if not demo_model.unavailable_reason:
            models, servers = (demo_model.model,), {demo_model.model.title: demo_model}
            notice = f"{model_words.DEMO_ANSWERS} {demo_model.licence}".strip()
    catalogue = catalogues.Catalogue(
        models,
        keys=catalogues.collect_keys(models, environment),
        patience=config.patience,
        servers=servers,
        unlisted=discovery.unlisted,
    )
    # Pushed last, so that it closes before the embedded model that it uses.
    stack.push_async_callback(catalogue.close)
    return catalogue, notice


async def _preopen_models(catalogue: catalogues.Catalogue) -> None:
    """Open models before the first question, but after pages have shown what people missed.

    Opening blocks the event loop for half as long as a start takes.
    """
    await asyncio.sleep(_PREOPEN_DELAY_SECONDS)
    for title in catalogue.one_title_per_protocol:
        try:
            await catalogue.open_llm(title)
        except Exception:
            # SDKs raise any exception, and nobody awaits this task.
            _log.exception("the model %r could not be opened", title)


def _temporary_database(
    stack: contextlib.AsyncExitStack, spool: pathlib.Path
) -> AbstractAsyncContextManager[databases.Database]:
    """Return the context of a database in a directory that the stack deletes at its end."""
    directory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(dir=spool)))
    return databases.Database.open(
        engines.default_url(directory), blobs_directory=directory / "kept"
    )
