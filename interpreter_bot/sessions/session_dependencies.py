"""Services and settings that all turns share."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING

from interpreter_bot import code_activity, settings
from interpreter_bot.agent.llms import catalogues
from interpreter_bot.hosts import ports as host_ports
from interpreter_bot.sessions import jobs, model_setup, places, questions, quotas
from interpreter_bot.sessions import write_retries as retries
from interpreter_bot.skills import accepted_skills
from interpreter_bot.store import databases

if TYPE_CHECKING:
    # A bot without tool servers or data connections does not import these at run time.
    from interpreter_bot.data_connections.connection_service import ConnectionService
    from interpreter_bot.mcp_servers.tool_broker import ToolBroker


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SessionDependencies:
    """Services and settings that all turns share; `app` makes them once.

    Attributes:
        tools: of MCP servers; None if there are none.
        questions: of turns to people.
        jobs: code in the background.
        connections: to data; None if there are none.
        model_setup: lets the operator choose a model; None if nobody can.
        on_installation: receives installations of packages.
        id: of this process of the bot.
        daily_usage: usage of running turns.
        write_retries: failed writes.
    """

    config: settings.Settings
    hosts: host_ports.Hosts
    database: databases.Database
    catalogue: catalogues.Catalogue
    skills: accepted_skills.AcceptedSkills
    tools: ToolBroker | None = None
    connections: ConnectionService | None = None
    model_setup: model_setup.ModelSetup | None = None
    questions: questions.Questions
    jobs: jobs.Jobs
    on_installation: Callable[[code_activity.Installation], None] = lambda _: None
    id: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)
    daily_usage: quotas.DailyUsage = dataclasses.field(default_factory=quotas.DailyUsage)
    write_retries: retries.WriteRetries = dataclasses.field(default_factory=retries.WriteRetries)

    @property
    def places(self) -> places.Places:
        """The choices and notes of all places."""
        return places.Places(self.config, self.database)
