"""Choice of a model on the page by the operator, while the bot runs."""

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
"""Environment variables that name a model."""


class ModelSetup:
    """The models of a bot whose environment and settings name none.

    Attributes:
        is_open: whether models can be chosen on the page.
        is_chosen: whether a model was chosen there, now or before a restart.
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
        self._choice_lock = asyncio.Lock()

    async def choose(self, key: str, address: str) -> str:
        """Try a model, and use it from now on, also after a restart; return its title.

        Raises:
            BotError: the model cannot be used, and nothing is changed; the sentence says why.
        """
        if not self.is_open:
            raise errors.SettingsError(model_words.SET_BY_OPERATOR)
        if self.is_chosen:
            raise errors.SettingsError(model_words.ALREADY_CHOSEN)
        variables = model_choice.make_variables(key, address)
        await model_choice.refuse_reserved(address)
        async with self._choice_lock:
            catalogue = await model_choice.open_tested(variables, self._patience)
            changes = dict.fromkeys(VARIABLES, "") | variables
            try:
                await asyncio.to_thread(self._credentials.save, changes)
                await self._catalogue.adopt(catalogue)
            except BaseException:
                await catalogue.close()
                raise
            self.is_chosen = True
            address = self._catalogue.find_model().base_url
            _log.warning("A model at %s was chosen on the page.", address)
            return self._catalogue.titles[0]


def has_models(environment: Mapping[str, str]) -> bool:
    """Return whether an environment names models."""
    return any(environment.get(name) for name in VARIABLES)


def add_stored_models(
    environment: Mapping[str, str], stored_variables: Mapping[str, str]
) -> dict[str, str]:
    """Add stored models to an environment, unless it already names models."""
    if has_models(environment):
        return dict(environment)
    return {
        **environment,
        **{name: stored_variables[name] for name in VARIABLES if name in stored_variables},
    }


async def find_local_servers() -> dict[str, tuple[str, list[str]]]:
    """Find model servers on this machine; return their addresses and models by name."""
    return await model_choice.find_local_servers()
