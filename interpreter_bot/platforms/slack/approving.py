"""Asking people in the middle of a turn: for input, and for leave to run code."""

from __future__ import annotations

import contextlib
from typing import Any, Final

from interpreter_bot import values
from interpreter_bot.platforms.rendering import fences
from interpreter_bot.platforms.slack import (
    asking,
    blocks,
    failures,
    markdown,
    places,
    posts,
    sending,
    uploads,
)
from interpreter_bot.text import formatting, sanitizing

_EDITED_CHARACTERS: Final = 3_000
_SHOWN_CHARACTERS: Final = 9_000
_PROMPT_CHARACTERS: Final = 1_500


async def ask(
    sender: sending.Sender,
    questions: asking.Questions,
    place: places.Place,
    thread: str,
    request: values.InputRequested,
) -> str:
    """Let the person who asked answer running code, in the thread; a password in a form.

    Raises:
        SlackError: the question could not be asked.
    """
    prompt = formatting.one_line(request.prompt, _PROMPT_CHARACTERS)
    shown = fences.inline(prompt) if prompt else ""
    where = None if request.is_password else (place.workspace.team, place.channel, thread)
    how = "Answer with the button." if request.is_password else "Answer here in the thread."
    text = markdown.defused(f"⌨️ Python asks {shown or 'for input'}\n\n_{how}_")
    with questions.open(where, place.user, prompt=prompt) as question:
        under = [blocks.actions(blocks.button("Answer", blocks.ANSWER, question.id))]
        content = {"text": "Python asks for input", "blocks": [blocks.prose(text), *under]}
        payload = {asking.ASKS: place.user, asking.QUESTION: question.id} if where else None
        ts = await posts.post(sender, place, content, thread, payload)
        said = "No longer waiting for an answer."
        try:
            answer = await question.answer
            said = "Answered."
        finally:
            done = f"⌨️ Python asked {shown or 'for input'}\n\n_{said}_"
            await _settle(sender, place, ts, markdown.defused(done))
    return answer or ""


async def approve(
    sender: sending.Sender,
    questions: asking.Questions,
    place: places.Place,
    thread: str,
    code: str,
) -> str | None:
    """Ask for leave to run exactly this code; returns what may run, None for nothing.

    Raises:
        SlackError: the question could not be asked.
    """
    # Nobody may be asked to agree to what they do not see.
    readable = sanitizing.revealed(code)
    head = readable.text
    if len(head) > _SHOWN_CHARACTERS:
        await _show_all(sender, place, thread, head)
        head = f"{head[:_SHOWN_CHARACTERS]}\n# … all of it is in plan.py"
    shown = markdown.python(head, readable.warning)
    may_edit = len(code) <= _EDITED_CHARACTERS
    with questions.open(None, place.user, code=code) as question:
        under = blocks.approval(f"May this run?\n{shown}", question.id, may_edit=may_edit)
        content: dict[str, Any] = {"text": "May this code run?", "blocks": list(under)}
        ts = await posts.post(sender, place, content, thread)
        said = "No longer waiting."
        try:
            answer = await question.answer
            said = "Cancelled." if answer is None else "Approved."
            if answer not in (None, code):
                edited = sanitizing.revealed(answer or "")
                shown = markdown.python(edited.text, edited.warning)
                said = "Approved, as edited."
        finally:
            await _settle(sender, place, ts, f"{shown}\n_{said}_")
    return answer


async def _show_all(sender: sending.Sender, place: places.Place, thread: str, code: str) -> None:
    plan = uploads.of_bytes("plan.py", code.encode("utf-8", "replace"), "", is_image=False)
    complaints = await uploads.Uploads(sender).send(place, thread, [plan])
    if complaints:
        raise failures.SlackError("The code is too long to be shown for approval.")


async def _settle(sender: sending.Sender, place: places.Place, ts: str, text: str) -> None:
    """Take the buttons away."""
    with contextlib.suppress(failures.SlackError):
        await sender.call(
            place.workspace,
            "chat.update",
            channel=place.channel,
            ts=ts,
            text="Asked.",
            blocks=[blocks.prose(text)],
            metadata={"event_type": posts.METADATA, "event_payload": {}},
        )
