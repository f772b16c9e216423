"""The operator's settings: environment variables, then `interpreter-bot.toml`, then defaults.

A variable is named `INTERPRETER_BOT_<GROUP>__<NAME>`, a TOML key `[group] name`. `Settings()` is
read in `cli` only; each layer receives its own group. Units are in the names. The defaults of
`Limits` are those of hosted interpreters. Keys and tokens of other services come from their usual
variables, such as `OPENAI_API_KEY`, and not from files.
"""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
from typing import Any, Final

import pydantic
import pydantic_settings
from pydantic.fields import FieldInfo

from interpreter_bot.setting_groups.data_connections import Connection, ConnectionLimits
from interpreter_bot.setting_groups.egress_rules import Egress, EgressLimits
from interpreter_bot.setting_groups.fields import GIB, KIB, MIB
from interpreter_bot.setting_groups.kernels import Host, Kernels, Limits, Sandbox
from interpreter_bot.setting_groups.language_models import (
    STRANGER_DAILY_TOKENS,
    DailyAllowance,
    EmbeddedModel,
    Model,
    Patience,
    TurnLimits,
)
from interpreter_bot.setting_groups.package_indexes import (
    CERTIFICATE_VARIABLES,
    PROXY_VARIABLES,
    ChannelPackages,
    PackageIndex,
)
from interpreter_bot.setting_groups.places import MAX_INSTRUCTION_CHARACTERS, Memory, Place
from interpreter_bot.setting_groups.platforms import Discord, Mcp, Slack, Web
from interpreter_bot.setting_groups.sessions_and_storage import (
    WARNING_DAYS,
    Encryption,
    Jobs,
    Paths,
    Retention,
    Schedules,
    Sessions,
    Skills,
    Snapshots,
    Store,
)
from interpreter_bot.setting_groups.tool_servers import McpServer, OAuthLogin, ToolLogins

__all__ = [
    "CERTIFICATE_VARIABLES",
    "GIB",
    "KIB",
    "MAX_INSTRUCTION_CHARACTERS",
    "MIB",
    "PROXY_VARIABLES",
    "WARNING_DAYS",
    "ChannelPackages",
    "Connection",
    "ConnectionLimits",
    "DailyAllowance",
    "Discord",
    "Egress",
    "EgressLimits",
    "EmbeddedModel",
    "Encryption",
    "Host",
    "Jobs",
    "Kernels",
    "Limits",
    "Mcp",
    "McpServer",
    "Memory",
    "Model",
    "OAuthLogin",
    "PackageIndex",
    "Paths",
    "Patience",
    "Place",
    "Retention",
    "Sandbox",
    "Schedules",
    "Sessions",
    "Settings",
    "Skills",
    "Slack",
    "Snapshots",
    "Store",
    "ToolLogins",
    "TurnLimits",
    "Web",
    "load",
]


# Usual variables of other services, and the settings they set.
_SERVICE_VARIABLES: Final = {
    "DISCORD_TOKEN": ("discord", "token"),
    "SLACK_BOT_TOKEN": ("slack", "bot_token"),
    "SLACK_APP_TOKEN": ("slack", "app_token"),
    "SLACK_SIGNING_SECRET": ("slack", "signing_secret"),
    "SLACK_CLIENT_ID": ("slack", "client_id"),
    "SLACK_CLIENT_SECRET": ("slack", "client_secret"),
    "SLACK_API_BASE_URL": ("slack", "api_base_url"),
}


class _ServiceVariables(pydantic_settings.PydanticBaseSettingsSource):
    """Settings source that reads the variables of other services."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return nothing for single fields, as the settings are nested."""
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        """Return the variables that are set and not empty."""
        values_by_group: dict[str, Any] = {}
        for variable, (group, name) in _SERVICE_VARIABLES.items():
            if value := os.environ.get(variable):
                values_by_group.setdefault(group, {})[name] = value
        return values_by_group


class Settings(pydantic_settings.BaseSettings):
    """All settings."""

    model_config = pydantic_settings.SettingsConfigDict(
        env_prefix="INTERPRETER_BOT_",
        env_nested_delimiter="__",
        toml_file="interpreter-bot.toml",
        extra="forbid",
        frozen=True,
    )

    limits: Limits = Limits()
    """What one session may use."""
    kernels: Kernels = Kernels()
    """Where kernels come from and how long they live."""
    snapshots: Snapshots = Snapshots()
    """Variables that outlive their kernel."""
    sandbox: Sandbox = Sandbox()
    """The sandbox of kernels."""
    package_index: PackageIndex = PackageIndex()
    """Packages that people install."""
    packages: tuple[ChannelPackages, ...] = ()
    """Packages that all conversations of a channel have, of that index."""
    egress: tuple[Egress, ...] = ()
    """Hosts that code may reach; without any, it has no network."""
    egress_limits: EgressLimits = EgressLimits()
    """Limits of that traffic."""
    mcp_servers: tuple[McpServer, ...] = pydantic.Field((), max_length=256)
    """Servers whose tools code can call."""
    tool_logins: ToolLogins = ToolLogins()
    """Logins of people at these servers."""
    connections: tuple[Connection, ...] = ()
    """Data that code may query."""
    connection_limits: ConnectionLimits = ConnectionLimits()
    """Limits of these queries."""
    host: Host = Host()
    """The process that keeps the kernels."""
    paths: Paths = pydantic.Field(default_factory=Paths)
    """Directories on the host."""
    models: tuple[Model, ...] = ()
    """The language models that people can choose, the first by default. Without any, those of
    `OPENAI_API_KEY`, `OPENAI_BASE_URL` and `ANTHROPIC_API_KEY` are used, or the embedded one."""
    turn: TurnLimits = TurnLimits()
    """What one turn may use."""
    allowance: DailyAllowance = DailyAllowance()
    """What one person may use in a day."""
    patience: Patience = Patience()
    """How long to wait for the servers of models."""
    place: tuple[Place, ...] = ()
    """Settings of single places."""
    memory: Memory = Memory()
    """Notes that are remembered in a place."""
    local: EmbeddedModel = EmbeddedModel()
    """The embedded model."""
    sessions: Sessions = Sessions()
    """Conversations: how many at once, and their titles."""
    jobs: Jobs = Jobs()
    """Code that runs for long."""
    schedules: Schedules = Schedules()
    """What people let happen at set times."""
    retention: Retention = Retention()
    """How long files are kept."""
    skills: Skills = Skills()
    """Skills that the operator gives to models."""
    store: Store = Store()
    """The database."""
    encryption: Encryption = Encryption()
    """The keys of stored secrets."""
    web: Web = Web()
    """The page."""
    slack: Slack = Slack()
    """Slack."""
    discord: Discord = Discord()
    """Discord."""
    mcp: Mcp = Mcp()
    """Our sandbox as tools of other agents."""

    def allowance_on(self, platform: str) -> DailyAllowance:
        """Return the daily allowance of one person; it is limited if the bot is open to all."""
        is_open = platform == "discord" and self.discord.is_open
        if not is_open or self.allowance != DailyAllowance():
            return self.allowance
        return DailyAllowance(tokens=STRANGER_DAILY_TOKENS)

    @property
    def has_doors(self) -> bool:
        """Whether the bot may listen in the networks of kernels, which needs a sandbox."""
        return self.sandbox.enabled and bool(self.egress or self.connections or self.kernels.doors)

    def for_one_session(self) -> Settings:
        """Return a copy for a command that needs one kernel, and no spares."""
        return self.model_copy(update={"kernels": self.kernels.model_copy(update={"spares": 0})})

    def for_host(self) -> dict[str, str]:
        """Return the settings for a host process as variables, without secrets."""
        paths = Paths(
            data=self.paths.data.absolute(),
            runtime=self.paths.runtime.absolute(),
            host_sockets=self.paths.host_sockets and self.paths.host_sockets.absolute(),
            private=self.private_paths,
        )
        tls = self.host.tls and self.host.tls.absolute()
        groups: dict[str, pydantic.BaseModel] = {
            "limits": self.limits,
            "kernels": self._kernels_with_doors,
            "sandbox": self.sandbox,
            "snapshots": self.snapshots,
            "retention": self.retention,
            "package_index": self.package_index,
            "host": self.host.model_copy(update={"tls": tls}),
            "paths": paths,
        }
        prefix = str(self.model_config["env_prefix"])
        packages_json = json.dumps([packages.model_dump(mode="json") for packages in self.packages])
        return {f"{prefix}PACKAGES".upper(): packages_json} | {
            f"{prefix}{name}".upper(): group.model_dump_json() for name, group in groups.items()
        }

    @property
    def kernel_fingerprint(self) -> str:
        """A digest of all settings that make kernels differ.

        It depends neither on the process nor on the number of its kernels.
        """
        serialized = self.model_copy(update={"kernels": self._kernels_with_doors}).model_dump_json(
            include={
                *("limits", "kernels", "sandbox", "snapshots", "retention", "package_index"),
                "packages",
            },
            exclude={
                "kernels": {"spares", "rest_seconds"},
                "retention": {"person_bytes", "total_bytes", "record_days"},
            },
        )
        return hashlib.sha256(serialized.encode()).hexdigest()

    @property
    def _kernels_with_doors(self) -> Kernels:
        """The settings of kernels for a host, which does not know the rules of `egress`."""
        has_doors = bool(self.egress or self.kernels.doors)
        return self.kernels.model_copy(update={"doors": has_doors})

    @property
    def private_paths(self) -> tuple[pathlib.Path, ...]:
        """Paths that no code in a kernel may see, including those that do not exist yet."""
        files = (pathlib.Path(".env"), pathlib.Path(str(self.model_config["toml_file"])))
        paths = [self.paths.data, self.paths.runtime, *(path for path in files if path.exists())]
        secret = [self.host.tls, self.package_index.netrc_file]
        secret += [server.token_file for server in self.mcp_servers]
        paths += filter(None, [*secret, *self.paths.private])
        if self.store.url.startswith("sqlite"):
            paths.append(pathlib.Path(self.store.url.partition(":///")[2]))
        return tuple(path.absolute() for path in paths)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[pydantic_settings.BaseSettings],
        init_settings: pydantic_settings.PydanticBaseSettingsSource,
        env_settings: pydantic_settings.PydanticBaseSettingsSource,
        dotenv_settings: pydantic_settings.PydanticBaseSettingsSource,
        file_secret_settings: pydantic_settings.PydanticBaseSettingsSource,
    ) -> tuple[pydantic_settings.PydanticBaseSettingsSource, ...]:
        """Order the sources: environment variables take precedence over the TOML file."""
        toml = pydantic_settings.TomlConfigSettingsSource(settings_cls)
        return init_settings, env_settings, _ServiceVariables(settings_cls), toml


def load(file: pathlib.Path | None) -> Settings:
    """Load the settings, from a named file instead of the usual one if given.

    Raises:
        ValidationError: a value is wrong.
        OSError: the named file cannot be read.
        ValueError: the file is not TOML.
    """
    if file is None:
        return Settings()
    file.read_bytes()

    class _FileSettings(Settings):
        model_config = pydantic_settings.SettingsConfigDict(toml_file=file)

    return _FileSettings()
