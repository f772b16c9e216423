"""Accounts of people at servers of tools, and logins that have begun."""

import asyncio
import datetime

import pytest

from interpreter_bot.store import records

ANNA = records.Account("slack", "T1", "U1", "jira")
BERT = records.Account("slack", "T1", "U2", "jira")
AGE = datetime.timedelta(minutes=10)
NO_AGE = datetime.timedelta(0)


@pytest.mark.first_case
async def test_an_account_is_one_persons_at_one_server(database):
    accounts = database.accounts
    await accounts.put(ANNA, "first")
    await accounts.put(ANNA, "second")
    elsewhere = [BERT, records.Account("slack", "T2", "U1", "jira")]
    elsewhere += [records.Account("discord", "T1", "U1", "jira")]
    elsewhere += [records.Account("slack", "T1", "U1", "wiki")]
    assert [await accounts.find(account) for account in (ANNA, *elsewhere)] == ["second"] + [
        None
    ] * 4
    assert await accounts.remove(ANNA) == "second"
    assert await accounts.remove(ANNA) is None


@pytest.mark.first_case
async def test_an_account_that_has_changed_or_is_gone_is_not_replaced(database):
    accounts = database.accounts
    assert not await accounts.replace(ANNA, "new", expected="old")
    await accounts.put(ANNA, "old")
    replaced = await asyncio.gather(
        *(accounts.replace(ANNA, f"new {number}", expected="old") for number in range(5))
    )
    assert sorted(replaced) == [False] * 4 + [True]


async def test_of_many_who_take_a_login_one_gets_it(database):
    accounts = database.accounts
    await accounts.begin_login(ANNA, "digest", "sealed")
    assert await accounts.find_login("digest", AGE) == (ANNA, "sealed")
    logins = await asyncio.gather(*(accounts.take_login("digest", AGE) for _ in range(5)))
    assert [login for login in logins if login] == [(ANNA, "sealed")]


@pytest.mark.first_case
async def test_a_login_ends_by_its_age_by_a_newer_one_and_with_the_account(database):
    accounts = database.accounts
    await accounts.begin_login(ANNA, "a", "")
    await accounts.begin_login(BERT, "b", "")
    assert await accounts.find_login("a", NO_AGE) is None
    await accounts.begin_login(ANNA, "newer", "")
    assert await accounts.find_login("a", AGE) is None
    await accounts.remove(ANNA)
    assert await accounts.find_login("newer", AGE) is None
    assert await accounts.take_login("nothing", NO_AGE) is None
    assert await accounts.find_login("b", AGE) is None


@pytest.mark.first_case
async def test_what_is_kept_is_encrypted_anew(database):
    accounts = database.accounts
    await accounts.put(ANNA, "old")
    await accounts.put(BERT, "new")
    assert await accounts.reencrypt(lambda sealed: "new") == 1
    assert [await accounts.find(one) for one in (ANNA, BERT)] == ["new", "new"]
