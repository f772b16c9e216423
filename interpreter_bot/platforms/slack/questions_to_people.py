"""Questions to people during a turn: for input, and for approval of code, as messages.

The next message in the thread answers, or a button.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Any, Final

from interpreter_bot import events
from interpreter_bot.platforms.slack import (
    api_errors,
    blocks,
    file_uploads,
    markdown,
    message_posting,
    unfinished_answers,
    web_api,
)
from interpreter_bot.sessions import questions
from interpreter_bot.text import fences, quantities, safe_text
from interpreter_bot.wording import question_words

_log = logging.getLogger(__name__)

ASKS: Final = "asks"
QUESTION: Final = "question"
"""Metadata of a message that says: Python waits for this person's next message."""

_EDITED_CHARACTERS: Final = 3_000
_SHOWN_CHARACTERS: Final = 9_000
_PROMPT_CHARACTERS: Final = 1_500


async def ask(
    api: web_api.WebApi,
    place: message_posting.Place,
    thread: str,
    asked: events.InputQuestion,
    closed: Awaitable[events.Answer | None],
    *,
    request_id: str,
) -> None:
    """Ask the person who started the turn, in the thread; for a password in a modal.

    Returns when the question is closed, and its message says so.

    Raises:
        SlackError: the question could not be asked.
    """
    prompt = quantities.one_line(asked.prompt, _PROMPT_CHARACTERS)
    shown = fences.inline(prompt) if prompt else ""
    how = question_words.ANSWER_BY_BUTTON if asked.is_password else question_words.ANSWER_IN_THREAD
    text = f"⌨️ {question_words.asks(shown)}\n\n_{how}_"
    under = [blocks.actions(blocks.button("Answer", blocks.ANSWER, asked.id))]
    content = {"text": question_words.asks(""), "blocks": [*blocks.written(text), *under]}
    payload: dict[str, Any] = {}
    if not asked.is_password:
        payload = {ASKS: place.user, QUESTION: asked.id}
    payload |= _facts(request_id)
    ts = await message_posting.post(api, place, content, thread, payload)
    answer = await closed
    await _settle(
        api, place, ts, f"⌨️ {question_words.asked(shown)}\n\n_{questions.outcome(answer)}_"
    )


async def approve(
    api: web_api.WebApi,
    place: message_posting.Place,
    thread: str,
    asked: events.ApprovalQuestion,
    closed: Awaitable[events.Answer | None],
    *,
    request_id: str,
) -> None:
    """Ask for approval of exactly this code.

    Returns when the question is closed, and its message says so.

    Raises:
        SlackError: the question could not be asked.
    """
    code, title = asked.code, question_words.title(asked.subject)
    # People are asked to agree only to what they see.
    readable = safe_text.revealed(code)
    head = readable.text
    if len(head) > _SHOWN_CHARACTERS:
        await _show_all(api, place, thread, head)
        head = f"{head[:_SHOWN_CHARACTERS]}\n# … all of it is in plan.py"
    shown = markdown.python(head, readable.warning)
    under = blocks.approval(
        f"{title}\n{shown}",
        asked.id,
        label=question_words.approve(asked.subject),
        may_edit=asked.can_edit and len(code) <= _EDITED_CHARACTERS,
        choices=asked.choices,
    )
    content: dict[str, Any] = {"text": title, "blocks": list(under)}
    ts = await message_posting.post(api, place, content, thread, _facts(request_id))
    answer = await closed
    if isinstance(answer, events.Approved) and answer.edited is not None:
        readable = safe_text.revealed(answer.edited)
        shown = markdown.python(readable.text, readable.warning)
    await _settle(api, place, ts, f"{shown}\n_{questions.outcome(answer)}_")


def _facts(request_id: str) -> dict[str, Any]:
    """Return the metadata by which the next bot finds a question of this one."""
    return {unfinished_answers.REQUEST: request_id, unfinished_answers.IS_QUESTION: True}


async def _show_all(
    api: web_api.WebApi, place: message_posting.Place, thread: str, code: str
) -> None:
    plan = file_uploads.of_bytes("plan.py", code.encode("utf-8", "replace"), "", is_image=False)
    complaints = await file_uploads.FileUploads(api).send(place, thread, [plan])
    if complaints:
        raise api_errors.SlackError(question_words.TOO_LONG_TO_SHOW)


async def _settle(api: web_api.WebApi, place: message_posting.Place, ts: str, text: str) -> None:
    """Remove the buttons."""
    metadata = message_posting.metadata({})
    shown = blocks.written(text)
    for blocks_tried in (shown, blocks.plainer(shown), []):
        try:
            await api.call(
                place.workspace,
                "chat.update",
                channel=place.channel,
                ts=ts,
                text="Asked.",
                blocks=blocks_tried or None,
                metadata=metadata,
            )
        except api_errors.ContentRefusedError as error:
            _log.warning("a question is closed more plainly: %s", error)
        except api_errors.SlackError as error:
            _log.info("a question keeps its buttons", exc_info=error)
            return
        else:
            return
