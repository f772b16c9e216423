"""Titles of sessions, by one short request to the model that gave the first answer.

Its cost is recorded with that answer's turn. The request is not sent if the person has used up the
day's allowance.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from interpreter_bot import errors, events, settings, values
from interpreter_bot.agent import budgets, model_calls, prompt_texts
from interpreter_bot.sessions import quotas, requests, session_dependencies, turn_inputs
from interpreter_bot.text import quantities, safe_text

_log = logging.getLogger(__name__)

# Enough for a model that thinks a little first; a title itself takes ten.
_ANSWER_TOKENS: Final = 256
_MAX_INPUT_CHARACTERS: Final = 1000
_MAX_TITLE_CHARACTERS: Final = 60
_TIMEOUT_SECONDS: Final = 60.0


async def set_model_title(
    services: session_dependencies.SessionDependencies,
    request: requests.Request,
    end: events.TurnEnded,
    *,
    title: str,
) -> bool:
    """Let the model that answered a session's first request write its title; return whether it did.

    Args:
        title: of the session until now; a title that a person gave meanwhile stays.
    """
    is_answer = end.status is values.TurnStatus.DONE and end.text.strip() and end.turn_id
    if request.is_code or not is_answer or not services.config.sessions.model_titles:
        return False
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            session = await services.database.sessions.find(request.key)
            if session is None or session.title != title:
                return False
            preferences = await services.places.choices(request.scope)
            titles = services.catalogue.titles
            model = request.model or turn_inputs.choose_session_model(session, preferences, titles)
            if services.catalogue.is_started_locally(model):
                # The bot's own small model would be busy for a minute, and delay the next question.
                return False
            limits = quotas.limits_for_person(
                services.config.allowance_on(request.key.platform), preferences
            )
            new_title = await _ask_for_title(services, request, end, model=model, limits=limits)
            return bool(new_title) and await services.database.sessions.set_title(
                session.id, new_title, expected=title
            )
    except (errors.BotError, TimeoutError):
        _log.info("a conversation keeps its first words as title", exc_info=True)
        return False


async def _ask_for_title(
    services: session_dependencies.SessionDependencies,
    request: requests.Request,
    end: events.TurnEnded,
    *,
    model: str,
    limits: settings.DailyAllowance,
) -> str:
    """Ask for a title, and record the cost with the turn."""
    # Negative, so that the recorded usage of the turn itself is counted, too.
    usage_number = -end.turn_id
    reservation = services.daily_usage.open(usage_number, request, limits=limits)
    model_info = services.catalogue.find_model(model)
    budget = reservation.budget = budgets.Budget(
        services.config.turn, model_info, allowance=reservation.allowance(services.database)
    )
    answer = end.text[:_MAX_INPUT_CHARACTERS]
    try:
        new_title = await model_calls.write_short_text(
            await services.catalogue.open_llm(model),
            budget,
            system=prompt_texts.read("title"),
            text=f"The person: {request.text[:_MAX_INPUT_CHARACTERS]}\n\nThe analyst: {answer}",
            answer_tokens=_ANSWER_TOKENS,
            charge=budget.charge,
        )
    finally:
        try:
            if budget.usage.tokens:
                await services.database.usage.add(end.turn_id, budget.usage, model=model)
        finally:
            services.daily_usage.close(usage_number)
    return clean_title(new_title)


def clean_title(text: str) -> str:
    """Make a title of a model's text: its first line, without Markdown and quotes around it."""
    line = next((line for line in safe_text.sanitize(text).splitlines() if line.strip()), "")
    return quantities.one_line(line.strip(" \t#*_`\"'“”„«»."), _MAX_TITLE_CHARACTERS)
