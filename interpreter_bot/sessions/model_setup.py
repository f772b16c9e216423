"""Choice of a model by whoever runs the bot, while it runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from interpreter_bot import errors, settings, stored_credentials
from interpreter_bot.agent.llms import catalogues, model_choice
from interpreter_bot.wording import model_words

_log = logging.getLogger(__name__)

VARIABLES: Final = (
    *("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL"),
    *("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "ANTHROPIC_MODEL"),
)
"""What of the environment names a model."""


class ModelSetup:
    """The models of a bot whose environment and settings name none.

    Attributes:
        is_open: whether models can be chosen here.
        is_chosen: whether one was chosen, now or before a restart.
    """

    def __init__(
        self,
        catalogue: catalogues.Catalogue,
        credentials: stored_credentials.StoredCredentials,
        *,
        patience: settings.Patience,
        is_open: bool,
        is_chosen: bool,
    ) -> None:
        self.is_open = is_open
        self.is_chosen = is_chosen
        self._catalogue = catalogue
        self._patience = patience
        self._credentials = credentials
        self._choosing = asyncio.Lock()

    async def choose(self, key: str, address: str) -> str:
        """Try a model, and use it from now on, also after a restart; return its title.

        Raises:
            BotError: it cannot be used; the sentence says why, and nothing is changed.
        """
        if not self.is_open:
            raise errors.SettingsError(model_words.SET_BY_OPERATOR)
        if self.is_chosen:
            raise errors.SettingsError(model_words.ALREADY_CHOSEN)
        variables = model_choice.variables(key, address)
        await model_choice.refuse_reserved(address)
        async with self._choosing:
            chosen = await model_choice.open_tested(variables, self._patience)
            changes = dict.fromkeys(VARIABLES, "") | variables
            try:
                await asyncio.to_thread(self._credentials.save, changes)
                await self._catalogue.adopt(chosen)
            except BaseException:
                await chosen.close()
                raise
            self.is_chosen = True
            address = self._catalogue.model().base_url
            _log.warning("The model was changed on the page; it is asked at %s.", address)
            return self._catalogue.titles[0]


def has_models(environment: Mapping[str, str]) -> bool:
    """Whether an environment names models."""
    return any(environment.get(name) for name in VARIABLES)


def add_stored_models(environment: Mapping[str, str], stored: Mapping[str, str]) -> dict[str, str]:
    """Add stored models to an environment, unless that names models itself."""
    if has_models(environment):
        return dict(environment)
    return {**environment, **{name: stored[name] for name in VARIABLES if name in stored}}


async def local_servers() -> dict[str, tuple[str, list[str]]]:
    """Look for servers of models on this machine; return their addresses and models by name."""
    return await model_choice.local_servers()
