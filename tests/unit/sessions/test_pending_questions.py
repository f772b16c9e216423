"""Questions to people: whose answer counts, and for how long."""

import asyncio
import itertools

import pytest

from interpreter_bot import errors
from interpreter_bot.sessions import pending_questions

LATE = "This question has expired."


async def test_the_first_answer_counts():
    registry = pending_questions.PendingQuestions()
    with registry.open("anna", code="x") as question:
        assert registry.require(question.id) is question
        assert question.resolve(None)
        assert not question.resolve("x")
        assert await question.answer is None
        assert registry.find(question.id) is None


async def test_a_late_answer_is_told_so_and_the_question_is_still_known_as_ours():
    registry = pending_questions.PendingQuestions()
    with registry.open("anna") as question:
        pass
    assert not question.resolve("words")
    with pytest.raises(errors.BotError, match=LATE):
        registry.require(question.id)
    assert registry.has_asked(question.id)
    assert not pending_questions.PendingQuestions().has_asked(question.id)


async def test_a_message_answers_the_oldest_question_to_its_author_in_its_place():
    registry = pending_questions.PendingQuestions()
    with (
        registry.open("anna", code="x") as approval,
        registry.open("anna", "here") as first,
        registry.open("anna", "here") as second,
    ):
        assert registry.for_message("ben", "here") is None
        assert registry.for_message("anna", "there") is None
        assert registry.for_message("anna", None) is None
        assert registry.for_message("anna", "here") is first
        assert first.resolve("one")
        assert registry.for_message("anna", "here") is second
        assert not approval.answer.done()


async def test_a_wait_for_an_answer_ends_with_the_execution():
    registry = pending_questions.PendingQuestions(next_id=map(str, itertools.count(1)).__next__)
    with registry.open("anna") as question:
        waiting = asyncio.ensure_future(question.answer)
    assert question.id == "1"
    with pytest.raises(asyncio.CancelledError):
        await waiting
