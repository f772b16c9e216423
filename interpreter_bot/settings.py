"""What the operator can set: environment variables, then `interpreter-bot.toml`, then defaults.

A variable is named `INTERPRETER_BOT_<GROUP>__<NAME>`, a TOML key `[group] name`. `Settings()`
is read in `cli` only; each layer receives its own group. Units are in the names. Every default
of `Limits` is what people know from hosted interpreters. Keys and tokens of other services come
from the variables that everybody knows, such as `OPENAI_API_KEY`, and stay out of files.
"""

from __future__ import annotations

import os
import pathlib
from typing import Any, Final

import pydantic
import pydantic_settings
from pydantic.fields import FieldInfo

from interpreter_bot.setting_groups.fields import GIB, KIB, MIB
from interpreter_bot.setting_groups.kernels import Kernels, Limits, Paths, Sandbox, Sessions, Store
from interpreter_bot.setting_groups.language_models import (
    STRANGERS_TOKENS,
    Agent,
    Allowance,
    Local,
    Model,
    Patience,
    Turn,
)
from interpreter_bot.setting_groups.platforms import Discord, Slack, Web

__all__ = [
    "GIB",
    "KIB",
    "MIB",
    "Agent",
    "Allowance",
    "Discord",
    "Kernels",
    "Limits",
    "Local",
    "Model",
    "Paths",
    "Patience",
    "Sandbox",
    "Sessions",
    "Settings",
    "Slack",
    "Store",
    "Turn",
    "Web",
    "load",
]


# Variables by the names that everybody knows, and the settings that they are.
_KNOWN: Final = {
    "DISCORD_TOKEN": ("discord", "token"),
    "SLACK_BOT_TOKEN": ("slack", "bot_token"),
    "SLACK_APP_TOKEN": ("slack", "app_token"),
    "SLACK_SIGNING_SECRET": ("slack", "signing_secret"),
    "SLACK_CLIENT_ID": ("slack", "client_id"),
    "SLACK_CLIENT_SECRET": ("slack", "client_secret"),
    "SLACK_API_BASE_URL": ("slack", "api_base_url"),
}


class _Known(pydantic_settings.PydanticBaseSettingsSource):
    """Reads those variables."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Give nothing field by field: they lie deeper."""
        return None, field_name, False

    def __call__(self) -> dict[str, Any]:
        """Give all that are set to something."""
        found: dict[str, Any] = {}
        for variable, (group, name) in _KNOWN.items():
            if value := os.environ.get(variable):
                found.setdefault(group, {})[name] = value
        return found


class Settings(pydantic_settings.BaseSettings):
    """All of it."""

    model_config = pydantic_settings.SettingsConfigDict(
        env_prefix="INTERPRETER_BOT_",
        env_nested_delimiter="__",
        toml_file="interpreter-bot.toml",
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )

    limits: Limits = Limits()
    """What one session may use."""
    kernels: Kernels = Kernels()
    """Where kernels come from and how long they live."""
    sandbox: Sandbox = Sandbox()
    """The walls."""
    paths: Paths = pydantic.Field(default_factory=Paths)
    """Where things lie on the host."""
    models: tuple[Model, ...] = ()
    """The language models that people can choose, the first by default. None listed means what
    `OPENAI_API_KEY` and `OPENAI_BASE_URL` lead to, or the embedded one."""
    turn: Turn = Turn()
    """What one turn may use."""
    allowance: Allowance = Allowance()
    """What one person may use in a day."""
    patience: Patience = Patience()
    """How long a model's server is waited for."""
    agent: Agent = Agent()
    """What models are told."""
    local: Local = Local()
    """The embedded model."""
    sessions: Sessions = Sessions()
    """Conversations: how many at once, and how they end."""
    store: Store = Store()
    """What is remembered, and where."""
    web: Web = Web()
    """The page."""
    slack: Slack = Slack()
    """Slack."""
    discord: Discord = Discord()
    """Discord."""

    def allowance_on(self, platform: str) -> Allowance:
        """Return what one person may use in a day; never boundless where anybody may come."""
        is_open = platform == "discord" and self.discord.is_open
        if not is_open or self.allowance != Allowance():
            return self.allowance
        return Allowance(tokens=STRANGERS_TOKENS)

    def for_one_session(self) -> Settings:
        """Return the same for a command that needs one kernel, and none standing by."""
        return self.model_copy(update={"kernels": self.kernels.model_copy(update={"spares": 0})})

    @property
    def private_paths(self) -> tuple[pathlib.Path, ...]:
        """What no code in a kernel may come to see: what there is, and what will be made."""
        files = (pathlib.Path(".env"), pathlib.Path(str(self.model_config["toml_file"])))
        named = [self.paths.data, self.paths.runtime, *(path for path in files if path.exists())]
        if self.web.token_file is not None:
            named.append(self.web.token_file)
        if self.store.url.startswith("sqlite"):
            named.append(pathlib.Path(self.store.url.partition(":///")[2]))
        return tuple(path.absolute() for path in named)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[pydantic_settings.BaseSettings],
        init_settings: pydantic_settings.PydanticBaseSettingsSource,
        env_settings: pydantic_settings.PydanticBaseSettingsSource,
        dotenv_settings: pydantic_settings.PydanticBaseSettingsSource,
        file_secret_settings: pydantic_settings.PydanticBaseSettingsSource,
    ) -> tuple[pydantic_settings.PydanticBaseSettingsSource, ...]:
        """Put the TOML file beneath the environment."""
        toml = pydantic_settings.TomlConfigSettingsSource(settings_cls)
        return init_settings, env_settings, _Known(settings_cls), toml


def load(file: pathlib.Path | None) -> Settings:
    """Read the settings, from a named file instead of the usual one where there is one.

    Raises:
        ValidationError: a value is wrong.
        OSError: the named file cannot be read.
        ValueError: it is not TOML.
    """
    if file is None:
        return Settings()
    file.read_bytes()

    class _Named(Settings):
        model_config = pydantic_settings.SettingsConfigDict(toml_file=file)

    return _Named()
