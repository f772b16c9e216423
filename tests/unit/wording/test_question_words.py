"""The questions that people approve or decline."""

import typing

from interpreter_bot import events
from interpreter_bot.wording import question_words


def test_each_kind_of_approval_has_a_question_of_its_own():
    subjects = typing.get_args(events.Subject)
    assert len({question_words.title(subject) for subject in subjects}) == len(subjects)
