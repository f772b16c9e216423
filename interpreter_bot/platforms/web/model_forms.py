"""Choice of a model on the page, for people with the token of the page."""

from __future__ import annotations

import json

from aiohttp import web

from interpreter_bot import errors
from interpreter_bot.platforms.web import validation
from interpreter_bot.sessions import model_setup, session_service
from interpreter_bot.wording import page_words

_MAX_FORM_BYTES = 8 * 1024
_MAX_FIELD_CHARACTERS = 1000


class ModelForms:
    """Handlers of the form for the key or address of a model."""

    def __init__(self, service: session_service.SessionService) -> None:
        self._service = service

    async def choose(self, request: web.Request) -> web.Response:
        """Try a model and use it; the response has its title."""
        if self._service.model_setup is None:
            raise web.HTTPNotFound
        body = await request.read()
        try:
            fields = json.loads(body) if len(body) <= _MAX_FORM_BYTES else None
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            raise errors.BotError(page_words.NOT_A_MODEL)
        key = validation.read_text(fields, "key", max_characters=_MAX_FIELD_CHARACTERS)
        address = validation.read_text(fields, "address", max_characters=_MAX_FIELD_CHARACTERS)
        title = await self._service.model_setup.choose(key, address)
        return web.json_response({"title": title})

    async def list_servers(self, _: web.Request) -> web.Response:
        """Return the model servers that were found on this machine."""
        choices = self._service.model_setup
        if choices is None or not choices.is_open or choices.is_chosen:
            raise web.HTTPNotFound
        addresses = await model_setup.find_local_servers()
        return web.json_response(
            [
                {"name": name, "address": address, "models": models[:5]}
                for name, (address, models) in addresses.items()
            ]
        )
