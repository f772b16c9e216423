import decimal

from interpreter_bot import code_activity, session_variables, settings, values
from interpreter_bot.platforms.rendering import session_facts
from interpreter_bot.sessions import past_turns
from interpreter_bot.wording import fact_words


def test_every_limit_has_words():
    limits = settings.Limits()
    names = fact_words.LIMITS_OF_CODE | fact_words.LIMITS_OF_HOST
    assert names.keys() >= settings.Limits.model_fields.keys()
    described = [session_facts.describe_limit(name, getattr(limits, name)) for name in names]
    assert all(fact.label and fact.value and fact.note.endswith(".") for fact in described)
    assert set(session_facts.describe_limits(limits, settings.Kernels(per_person=0))) < set(
        described
    )
    assert session_facts.describe_limits(limits, settings.Kernels(per_person=7))[-1].value == "7"
    assert session_facts.describe_limit("execution_seconds", 90)[:2] == (
        "Time for one piece of code",
        "1 min 30 s",
    )
    assert session_facts.describe_limit("memory_bytes", 3 << 30).value == "3 GiB"
    assert session_facts.describe_limit("workspace_files", 10_000).value == "10,000"


def test_usage_names_money_where_it_is_spent_or_limited():
    nothing = values.Usage(1000, 234, is_estimated=True, cpu_seconds=1.5)
    paid = values.Usage(1000, 234, money=decimal.Decimal("0.0123"))
    limited = past_turns.UsageSummary(
        session=nothing, today=paid, allowed_money=decimal.Decimal(2), allowed_tokens=50_000
    )
    free = past_turns.UsageSummary(
        session=paid, today=nothing, allowed_money=None, allowed_tokens=None
    )
    here, today = session_facts.describe_usage(limited)
    assert here == (
        "This conversation",
        "about 1,234 tokens, 1.5 s of processor time",
        "1,000 input, 234 output tokens",
    )
    assert today.value == "1,234 tokens (50,000 allowed), cost 0.0123 (2.00 allowed)"
    assert session_facts.describe_today(free) == "about 1,234 tokens"


def test_variables_are_listed_with_those_that_could_not_be_saved():
    many = tuple((f"g{n}", "a generator") for n in range(25))
    saved = session_variables.SavedVariables(
        "k", 3, 1_800_000_000.0, 1200, lost=many, lost_count=300, partly_saved=(("d", "a lock"),)
    )
    held = session_variables.SessionVariables(("x", "y"), 3, saved)
    facts = session_facts.describe_variables(held)
    assert facts[:3] == [
        ("In Python now", "x, y and 3 more", ""),
        ("Saved", "1,200 variables on 15 January at 08:00 UTC", ""),
        ("Not saved", "g0 (a generator)", ""),
    ]
    assert facts[-3:] == [
        ("Not saved", "280 more", ""),
        ("Saved without these parts", "d (a lock)", ""),
        ("If variables are lost", "“again” re-runs the cells that made them", ""),
    ]
    nothing = session_facts.describe_variables(session_variables.SessionVariables())
    assert [fact.value for fact in nothing] == ["nothing", "nothing"]


def test_what_code_may_reach_is_listed_with_how():
    reach = code_activity.Reach(
        (
            code_activity.ReachableHost("*.example.org", (443, 8443)),
            code_activity.ReachableHost("a.org", (443,), ("GET",), ("/x/", "/y/"), has_secret=True),
        ),
        used_bytes=3_000_000,
        max_bytes=2**30,
        grants=("POST a.org:443",),
        offers=(
            code_activity.Offer(
                "connections",
                "sales",
                "SQLite: Orders",
                recent_queries=(("select 1", "1 rows in 0.1 s"),),
            ),
        ),
    )
    assert session_facts.describe_network(reach) == [
        ("*.example.org", "ports 443, 8443", ""),
        (
            "a.org",
            "port 443; GET only; below /x/, /y/",
            "The bot adds the credentials; code does not see them.",
        ),
        ("Allowed until Python restarts", "POST a.org:443", ""),
        ("Exchanged today", "2.86 MiB of 1 GiB", ""),
        ("connections.sales", "SQLite: Orders", ""),
        ("Asked", "select 1", "1 rows in 0.1 s"),
    ]
    (nothing,) = session_facts.describe_network(code_activity.NO_REACH)
    assert nothing[:2] == ("Network", "none")


def test_limits_say_what_code_lacks_in_an_ordinary_container():
    bounds, kernels = settings.Limits(), settings.Kernels()
    lacking = "Writing to /tmp, opening ports"
    for level, is_said in (
        (values.SandboxLevel.CONTAINER, True),
        (values.SandboxLevel.FULL, False),
    ):
        labels = [fact.label for fact in session_facts.describe_limits(bounds, kernels, level)]
        assert (lacking in labels) is is_said
