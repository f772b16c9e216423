"""Ask a reply questions, as a turn does; answers come as text, and None for a refusal."""

import itertools

from interpreter_bot import errors, events, values

TEST = values.SessionKey("test")

_numbers = itertools.count(1)


def answer_text(question, answer):
    """Return the text of an answer, or None if the person declined."""
    match answer:
        case events.Unanswered(reason=reason):
            raise errors.BotError(reason)
        case events.TextAnswer(text=text):
            return text
        case events.Declined():
            return None
        case events.Approved(scope=scope, edited=edited):
            return scope or (question.code if edited is None else edited)


class Asker:
    """Asks questions through one reply."""

    def __init__(self, reply, questions, *, session=TEST, person="anna"):
        self._reply = reply
        self._questions = questions
        self._session = session
        self._person = person

    async def _ask(self, kind, *, turn_id=None, **fields):
        number = next(_numbers)
        question = kind(id=f"{number}", session=self._session, person=self._person, **fields)
        answer = await self._questions.ask(
            question, emit=self._reply.emit, turn_id=turn_id or number
        )
        return answer_text(question, answer)

    async def input(self, prompt, cell=0, **fields):
        return await self._ask(events.InputQuestion, cell=cell, prompt=prompt, **fields)

    async def approval(self, code, cell=0, **fields):
        return await self._ask(events.ApprovalQuestion, cell=cell, code=code, **fields)
