"""Answers are judged alike, whoever gave them, and however they are worded."""

import pytest

from bench import graders, questions

PLACES = ("Lyon", "Turin", "Ghent")
ONE = graders.names(["Lyon"], among=PLACES)
EACH = graders.each({"Lyon": 4.333, "Turin": 12000.0})


@pytest.mark.parametrize(
    ("check", "text", "is_right"),
    [
        (graders.count(26), "There are 26 of them.", True),
        (graders.count(26), "26.4", False),
        (graders.count(1970), "boxing    1,970\n", True),
        (graders.count(5), "on 2025-05-05 at 5:05", False),
        (graders.numbers(4.333), "It is 4.33 days.", True),
        (graders.numbers(4.333), "It is 4.4 days.", False),
        (graders.numbers(-5.2), "It fell by 5.2 %.", True),
        (graders.numbers(3.0), " ".join(map(str, range(20))), False),
        (ONE, "lyon has the most, which is 7", True),
        (ONE, "Lyon 7\nTurin 4", False),
        (ONE, "Lyonnais", False),
        (EACH, "{'lyon': 4.33, 'turin': 12000}", True),
        (EACH, "Lyon: 4.33", False),
        (graders.line("Ghent, Lyon"), "The order is:\n`Ghent,Lyon`.", True),
        (graders.line("Ghent, Lyon"), "They are Ghent, Lyon", False),
        (graders.every(ONE, graders.count(7)), "Lyon: 7", True),
        (graders.every(ONE, graders.count(7)), "Lyon", False),
    ],
)
def test_answer_is_judged_by_what_it_holds(check, text, is_right):
    assert check(questions.Answer(text=text)) is is_right
