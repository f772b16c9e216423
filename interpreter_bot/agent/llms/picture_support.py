"""Detect whether a model can see pictures, by its server's errors."""

from __future__ import annotations

import dataclasses
import logging
import re
from typing import Final

from interpreter_bot import events, settings
from interpreter_bot.agent import chat_messages, model_errors, picture_selection, ports, tools
from interpreter_bot.wording import model_words

_log = logging.getLogger(__name__)

# Errors about one picture, which prove nothing about the model.
_UNREADABLE: Final = re.compile(
    r"unsupported image\b(?! input)|invalid[ _]image"
    r"|image[^.\n]{0,60}\b(?:invalid|corrupt|truncated|format|mime|media type|too large|exceed)"
    r"|(?:could not|cannot|failed to|unable to)[^.\n]{0,30}"
    r"(?:process|decode|load|read|identify|parse)[^.\n]{0,30}image|valid image|image_parse_error",
    re.IGNORECASE,
)
_REFUSED: Final = re.compile(
    r"(?:n.t|not|no\b[^.\n]{0,30}) support\w*[^.\n]{0,40}(?:image|vision|multi-?modal)"
    r"|(?:image|vision|multi-?modal)[^.\n]{0,60}(?:not (?:support|enabled|avail)|unsupported)"
    r"|image[^.\n]{0,60}only supported by|not a (?:multi-?modal|vision)|unknown variant .{0,9}image"
    r"|unsupported content part[^.\n]{0,20}image|mmproj|at most 0 image"
    r"|content[^.\n]{0,40}(?:must|should) be[^.\n]{0,20}string",
    re.IGNORECASE,
)
_TOO_MANY: Final = re.compile(r"at most ([1-9]\d{0,5}) image", re.IGNORECASE)


def refusal(said: str) -> model_errors.ModelError | None:
    """Return the error that a server's message about pictures stands for; each server words it
    its own way."""
    if limit := _TOO_MANY.search(said):
        return model_errors.TooManyPicturesError(int(limit[1]))
    if _UNREADABLE.search(said):
        return model_errors.PictureUnreadableError()
    if _REFUSED.search(said):
        return model_errors.PicturesRefusedError()
    return model_errors.PictureUnreadableError() if "image" in said else None


class PictureFallbackLlm:
    """A model that is sent pictures until its server says that it cannot see.

    A single picture that a server cannot read proves nothing about the model: anybody could send
    one and make it blind for all. It is left out, and the reply says so.

    Attributes:
        is_blind: it is known not to see.
    """

    def __init__(self, llm: ports.Llm, model: settings.Model) -> None:
        self._llm = llm
        self._is_sure = model.can_see_images == "yes"
        self.is_blind = model.can_see_images == "no"
        self._most = picture_selection.MAX

    async def reply(
        self, prompt: chat_messages.Prompt, *, emit: events.Emit
    ) -> chat_messages.ModelReply:
        """Request a reply, with pictures or with their descriptions alone."""
        told = dataclasses.replace(prompt, messages=picture_selection.without(prompt.messages))
        if not self.is_blind:
            try:
                return await self._limited(prompt, emit)
            except model_errors.PicturesRefusedError:
                if self._is_sure:
                    raise
                _log.info("a model is told of pictures in words from now on")
                self.is_blind = True
                emit(events.NoticeShown(model_words.TOLD_OF_PICTURES))
            except model_errors.PictureUnreadableError:
                _log.info("a model's server could not read a picture")
                reply = await self._llm.reply(told, emit=emit)
                return dataclasses.replace(reply, are_pictures_refused=True)
        blindly = tuple(tool for tool in prompt.tools if tool.name != tools.VIEW_IMAGE)
        return await self._llm.reply(dataclasses.replace(told, tools=blindly), emit=emit)

    async def _limited(
        self, prompt: chat_messages.Prompt, emit: events.Emit
    ) -> chat_messages.ModelReply:
        """Request a reply, with as many pictures as the server has shown to take."""
        # Each try sends fewer pictures.
        for _ in range(self._most + 1):
            messages = picture_selection.newest(prompt.messages, self._most)
            limited = dataclasses.replace(prompt, messages=messages)
            try:
                return await self._llm.reply(limited, emit=emit)
            except model_errors.TooManyPicturesError as error:
                if error.most >= self._most:
                    raise model_errors.PictureUnreadableError from error
                self._most = error.most
        raise model_errors.PictureUnreadableError
