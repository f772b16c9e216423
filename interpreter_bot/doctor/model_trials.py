"""Trials of language models: each configured model is asked for one word."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Final

from interpreter_bot import errors, settings
from interpreter_bot.agent.llms import catalogues, model_choice, model_discovery
from interpreter_bot.agent.llms.embedded import on_demand_model
from interpreter_bot.doctor import diagnosis
from interpreter_bot.text import quantities
from interpreter_bot.wording import doctor_words

_MAX_MODELS: Final = 10


def check(
    config: settings.Settings, environment: Mapping[str, str]
) -> tuple[diagnosis.Finding, ...]:
    """Ask each model that is configured, or found by its key in `environment`; uses few tokens."""
    return asyncio.run(_check(config, environment))


async def _check(
    config: settings.Settings, environment: Mapping[str, str]
) -> tuple[diagnosis.Finding, ...]:
    discovery = model_discovery.Discovery(config.models, ())
    if not config.models:
        discovery = await model_discovery.discover(environment)
    models = discovery.models[:_MAX_MODELS]
    if not models:
        return (await _missing_model_finding(config),)
    try:
        catalogue = catalogues.Catalogue(
            models,
            keys=catalogues.collect_keys(models, environment),
            patience=model_choice.TRIAL_PATIENCE,
            max_retries=0,
            unlisted=discovery.unlisted,
        )
    except errors.SettingsError as error:
        return (diagnosis.create_finding("model", False, str(error)),)
    try:
        return tuple(await asyncio.gather(*(_ask_model(catalogue, model) for model in models)))
    finally:
        await catalogue.close()


async def _missing_model_finding(config: settings.Settings) -> diagnosis.Finding:
    async with on_demand_model.OnDemandModel.open(config.local, config.paths.data) as demo_model:
        if reason := demo_model.unavailable_reason:
            detail = f"{doctor_words.NO_MODEL}; {reason}"
            return diagnosis.create_finding("model", False, detail, check="no demo model")
    return diagnosis.create_finding("model", False, doctor_words.NO_MODEL, check="no model")


async def _ask_model(catalogue: catalogues.Catalogue, model: settings.Model) -> diagnosis.Finding:
    """Ask one model for a word."""
    name = f"model {model.title}" if not model.title.startswith("model ") else model.title
    start_time = time.monotonic()
    try:
        await model_choice.require_answer(catalogue, model.title)
    except errors.BotError as error:
        return diagnosis.create_finding(name, False, str(error), check="model")
    duration = quantities.duration(time.monotonic() - start_time)
    detail = doctor_words.answered_within(duration)
    return diagnosis.create_finding(name, True, detail, check="model")
