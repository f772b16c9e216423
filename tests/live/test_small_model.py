"""The real small model, through the bot's own child process. Opt in by naming its file:

    INTERPRETER_BOT_TEST_MODEL=/path/to/qwen2.5-coder-1.5b-instruct-q4_k_m.gguf pytest -m live

It talks to nobody outside this machine. The score over whole sets of questions is measured by
`python -m bench.answer_accuracy`; here is only what must hold every time.
"""

import os
import pathlib

import pytest

from interpreter_bot import settings
from interpreter_bot.agent import budgets, loops, observations, transcripts
from interpreter_bot.agent.llms import catalogues
from interpreter_bot.agent.llms.embedded import on_demand_model
from interpreter_bot.agent.loops import OutcomeKind
from tests.unit.agent import scripts

# Read at import, for the settings of whoever runs the tests are taken away from every test.
MODEL = os.environ.get("INTERPRETER_BOT_TEST_MODEL")

pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not MODEL, reason="INTERPRETER_BOT_TEST_MODEL names no model file"),
]


@pytest.fixture(scope="module")
def model_path():
    pytest.importorskip("xllamacpp", reason="the extra [local] is not installed")
    return pathlib.Path(MODEL)


async def test_question_about_a_file_is_answered_from_what_the_code_printed(model_path, tmp_path):
    chosen = settings.EmbeddedModel(model_path=model_path)
    details = "3 rows. Columns: city (str), paid (int64).\nFirst rows:\ncity,paid\nBern,3"
    told = observations.describe_file("paid.csv", 40, kind="text/csv", details=details)
    transcript = transcripts.Transcript()
    transcript.add_user_message(f"{told}\n\nWhat is the sum of paid?")
    observer, environment = scripts.Observer(), scripts.Workbench(scripts.print_step("7193\n"))
    async with on_demand_model.OnDemandModel.open(chosen, tmp_path) as local:
        catalogue = catalogues.Catalogue(
            [local.model],
            keys={},
            patience=settings.Patience(),
            servers={local.model.title: local},
        )
        outcome = await loops.run(
            loops.TurnSpec(
                llm=await catalogue.open_llm(),
                model=local.model,
                limits=settings.TurnLimits(steps=3),
                system="You are a data analyst with a Python interpreter.",
                transcript=transcript,
                environment=environment,
                emit=observer.emit,
                budget=budgets.Budget(settings.TurnLimits(steps=3), local.model),
            )
        )
        await catalogue.close()
    assert outcome.kind is OutcomeKind.ANSWERED
    assert "paid.csv" in environment.ran[0]
    assert "7193" in outcome.text.replace(",", "")
    assert ("Starting the demo model…", None) in observer.contents("progress")
