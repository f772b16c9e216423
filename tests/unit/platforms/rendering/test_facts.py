import decimal

from interpreter_bot import settings, values
from interpreter_bot.platforms.rendering import facts
from interpreter_bot.sessions import histories


def test_every_limit_has_words():
    limits = settings.Limits()
    described = [facts.limit(name, value) for name, value in limits.model_dump().items()]
    assert all(fact.label and fact.value and fact.note.endswith(".") for fact in described)
    assert set(facts.limits(limits)) < set(described)
    assert facts.limit("execution_seconds", 90)[:2] == ("Time for one piece of code", "1 min 30 s")
    assert facts.limit("memory_bytes", 3 << 30).value == "3 GiB"
    assert facts.limit("workspace_files", 10_000).value == "10,000"


def test_usage_names_money_where_it_is_spent_or_limited():
    nothing = values.Usage(1000, 234, is_estimated=True, cpu_seconds=1.5)
    paid = values.Usage(1000, 234, money=decimal.Decimal("0.0123"))
    limited = histories.UsageSummary(
        session=nothing, today=paid, allowed_money=decimal.Decimal(2), allowed_tokens=50_000
    )
    free = histories.UsageSummary(
        session=paid, today=nothing, allowed_money=None, allowed_tokens=None
    )
    here, today = facts.usage(limited)
    assert here == (
        "This conversation",
        "about 1,234 tokens, 1.5 s of processor time",
        "1,000 read, 234 written",
    )
    assert today.value == "1,234 tokens (50,000 allowed), 0.0123 of money (2.00 allowed)"
    assert facts.today(free) == "about 1,234 tokens"


def test_of_many_files_a_few_are_listed():
    found = [values.FileInfo(name, 1, 0) for name in "abc"]
    assert (
        facts.files(found, 2, lambda info: info.name) == "Files in /mnt/data:\na\nb\n… and 1 more"
    )
    assert facts.files(found, 3, lambda info: info.name) == "Files in /mnt/data:\na\nb\nc"
    assert facts.files([], 3, str) == "There are no files in /mnt/data."
