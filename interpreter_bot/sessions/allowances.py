"""What one person may use in a day, whatever the conversation."""

from __future__ import annotations

import decimal
from typing import Final

from interpreter_bot import settings, values
from interpreter_bot.agent import budgets
from interpreter_bot.sessions import requests
from interpreter_bot.store import databases, records

MICROS: Final = 1_000_000
_USED_UP: Final = "This would be more than the {what} that one person may use in a day. {until}"
_UNTIL: Final = "It goes on tomorrow (UTC); code that you run yourself costs nothing."


def money(spending: records.Spending) -> decimal.Decimal:
    """Return what was spent, in the currency of the price list."""
    return decimal.Decimal(spending.money_micros) / MICROS


def spending(spent: budgets.Spent, cpu_seconds: float) -> records.Spending:
    """Say what a turn has used, as it is recorded."""
    return records.Spending(
        input_tokens=spent.usage.input_tokens,
        output_tokens=spent.usage.output_tokens,
        money_micros=int((spent.money * MICROS).to_integral_value(decimal.ROUND_UP)),
        cpu_seconds=cpu_seconds,
    )


def of(
    limits: settings.Allowance,
    person: requests.Person,
    key: values.SessionKey,
    database: databases.Database,
) -> budgets.Allowance | None:
    """Return what is to be asked before each spend; None where nothing is limited."""
    if limits.money is None and limits.tokens is None:
        return None

    async def ask(worst: budgets.Spent) -> str | None:
        used = await database.usage.of_person(
            person.id, platform=key.platform, workspace=key.workspace
        )
        tokens = used.input_tokens + used.output_tokens + worst.usage.tokens
        if limits.tokens is not None and tokens > limits.tokens:
            return _USED_UP.format(what=f"{limits.tokens:,} tokens", until=_UNTIL)
        if limits.money is not None and money(used) + worst.money > limits.money:
            return _USED_UP.format(what=f"{limits.money} of money", until=_UNTIL)
        return None

    return ask
