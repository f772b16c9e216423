"""Three made-up tables that prompts may be tried on, with what answers must hold.

Twelve questions each: of one part and of two, of sums, dates, missing values and names, some of
which ask for a form. What is true is computed here with pandas.
"""

from __future__ import annotations

import random
from typing import Any

import pandas

from bench import questions
from bench.graders import count, each, every, line, names, numbers


def _subject(name: str, table: pandas.DataFrame, asked: dict[str, Any]) -> questions.Subject:
    found = tuple(questions.Question(*one) for one in asked.items())
    return questions.Subject(name, f"{name}.csv", table, found)


def loans() -> questions.Subject:
    """Books that a library lent; some are not back yet."""
    chance = random.Random(31)
    genres = {"crime": 19, "poetry": 8, "travel": 24, "history": 27}
    rows = []
    for number in range(260):
        genre = chance.choice(list(genres))
        borrowed = pandas.Timestamp(2025, 1, 1) + pandas.Timedelta(days=chance.randint(0, 179))
        days = max(1, round(chance.gauss(genres[genre], 7)))
        back = None if chance.random() < 0.11 else borrowed + pandas.Timedelta(days=days)
        rows.append(
            {
                "loan_id": 7000 + number,
                "member": f"M{chance.randint(1, 70):03}",
                "branch": chance.choices(["Harbour", "Castle", "Station"], [5, 3, 4])[0],
                "genre": genre,
                "borrowed": f"{borrowed:%Y-%m-%d}",
                "returned": f"{back:%Y-%m-%d}" if back else None,
                "renewals": chance.choices([0, 1, 2, 3], [6, 3, 2, 1])[0],
                "fine_eur": round(max(0.0, (days - 25) * 0.4), 2),
            }
        )
    table = pandas.DataFrame(rows)
    return _subject("loans", table, _about_loans(table))


def _about_loans(table: pandas.DataFrame) -> dict[str, Any]:
    branches, genres = sorted(table["branch"].unique()), sorted(table["genre"].unique())
    per_genre = table.groupby("genre")["fine_eur"].sum()
    per_branch = table["branch"].value_counts()
    borrowed, back = pandas.to_datetime(table["borrowed"]), pandas.to_datetime(table["returned"])
    days = (back - borrowed).dt.days
    kept = days.groupby(table["genre"]).mean()
    months = table["borrowed"].str[:7].value_counts()
    members = table["member"].value_counts()
    many = members[members == members.max()]
    renewed = table["renewals"].groupby(table["branch"]).mean()
    is_out = table["returned"].isna()
    return {
        "How many loans have not been returned yet?": count(int(is_out.sum())),
        "What is the total fine per genre?": each(per_genre.to_dict()),
        "Which branch lent the most books, and how many?": every(
            names([str(per_branch.idxmax())], among=branches), count(int(per_branch.max()))
        ),
        "How many days were books kept on average before they were returned, for each genre?": each(
            kept.to_dict()
        ),
        "How many different members borrowed something, and what is the largest single fine?": (
            every(count(table["member"].nunique()), numbers(table["fine_eur"].max()))
        ),
        "In which month were the most books borrowed? Answer in the form YYYY-MM.": line(
            str(months.idxmax())
        ),
        "Which members borrowed the most books?": names(many.index, among=members.index),
        "What percentage of the loans was renewed at least once?": numbers(
            100 * (table["renewals"] > 0).mean(), within=0.01
        ),
        "List the branches in the order of their mean number of renewals, highest first, on one "
        "line and separated by commas.": line(", ".join(renewed.sort_values()[::-1].index)),
        "How many crime books were borrowed at the Castle branch, and how many of those have a "
        "fine?": count(
            *(
                int(one.sum())
                for one in (
                    (table["genre"] == "crime") & (table["branch"] == "Castle"),
                    (table["genre"] == "crime")
                    & (table["branch"] == "Castle")
                    & (table["fine_eur"] > 0),
                )
            )
        ),
        "What is the median fine of those loans that have one? Answer with the number only, "
        "rounded to two decimals.": line(
            f"{table.loc[table['fine_eur'] > 0, 'fine_eur'].median():.2f}"
        ),
        "Which genres have a mean fine above 1 euro?": names(
            [one for one, mean in table.groupby("genre")["fine_eur"].mean().items() if mean > 1],
            among=genres,
        ),
    }


def staff() -> questions.Subject:
    """People who work somewhere; the salary is text with a currency in it."""
    chance = random.Random(47)
    pay = {"Sales": 41000, "Research": 58000, "Support": 36000, "Legal": 63000, "Design": 47000}
    given = ["Ana", "Bo", "Cem", "Dia", "Eli", "Fay", "Gus", "Hana", "Ivo", "Jun", "Kim", "Lea"]
    family = ["Adler", "Brandt", "Costa", "Dubois", "Evans", "Fischer", "Garcia", "Hansen"]
    people = [f"{one} {other}" for one in given for other in family]
    chance.shuffle(people)
    rows = []
    for name in people:
        department = chance.choice(list(pay))
        hired = pandas.Timestamp(2012, 1, 1) + pandas.Timedelta(days=chance.randint(0, 4900))
        rows.append(
            {
                "name": name,
                "department": department,
                "city": chance.choices(["Lyon", "Turin", "Ghent"], [4, 3, 2])[0],
                "hired": f"{hired:%d.%m.%Y}",
                "salary": f"${round(chance.gauss(pay[department], 6000), -2):,.0f}",
                "bonus_pct": None if chance.random() < 0.2 else chance.choice([2, 4, 5, 8, 10]),
                "remote": chance.choice(["yes", "no", "no"]),
            }
        )
    table = pandas.DataFrame(rows)
    return _subject("staff", table, _about_staff(table))


def _about_staff(table: pandas.DataFrame) -> dict[str, Any]:
    pay = table["salary"].str.replace("[$,]", "", regex=True).astype(float)
    hired = pandas.to_datetime(table["hired"], format="%d.%m.%Y")
    departments = sorted(table["department"].unique())
    mean = pay.groupby(table["department"]).mean()
    best = table.loc[pay.idxmax()]
    years = hired.dt.year.value_counts()
    remote = (table["remote"] == "yes").groupby(table["city"]).mean() * 100
    bonus = pay * table["bonus_pct"] / 100
    top = table.loc[pay.sort_values(ascending=False).index[:3], "name"]
    heads = table["department"].value_counts()
    oldest = table.loc[hired.idxmin()]
    return {
        "What is the mean salary of each department?": each(mean.to_dict()),
        "Who earns the most, and how much?": every(
            names([best["name"]], among=table["name"]), numbers(pay.max())
        ),
        "How many people were hired in 2019?": count(int((hired.dt.year == 2019).sum())),
        "What is the difference between the highest and the lowest mean salary of a department?": (
            numbers(mean.max() - mean.min())
        ),
        "How many people have no bonus entered, and what is the mean bonus_pct of the others?": (
            every(count(int(table["bonus_pct"].isna().sum())), numbers(table["bonus_pct"].mean()))
        ),
        "What percentage of the people in each city works remotely?": each(
            remote.to_dict(), within=0.01
        ),
        "Who has been with the company the longest, and in which department?": every(
            names([oldest["name"]], among=table["name"]),
            names([oldest["department"]], among=departments),
        ),
        "Name the three people with the highest salaries.": names(top, among=table["name"]),
        "How many people work in each department? Answer on one line in the form "
        "Department=number, sorted by name and separated by semicolons and a space.": line(
            "; ".join(f"{one}={number}" for one, number in heads.sort_index().items())
        ),
        "What would all bonuses cost in total (salary times bonus_pct over 100)?": numbers(
            bonus.sum()
        ),
        "In which year were the most people hired, and how many?": count(
            int(years.idxmax()), int(years.max())
        ),
        "Which departments have more than 20 people?": names(
            heads[heads > 20].index, among=departments
        ),
    }


def gym() -> questions.Subject:
    """Training sessions, each with a day and a time."""
    chance = random.Random(58)
    sports = {"rowing": 11.0, "cycling": 8.5, "yoga": 3.2, "boxing": 12.4}
    rows = []
    for _ in range(310):
        sport = chance.choices(list(sports), [4, 6, 3, 2])[0]
        minutes = chance.choice([20, 30, 40, 45, 60, 90])
        start = pandas.Timestamp(2025, 3, 1) + pandas.Timedelta(
            days=chance.randint(0, 91), hours=chance.randint(6, 21), minutes=chance.choice([0, 30])
        )
        rows.append(
            {
                "member_id": chance.randint(100, 145),
                "sport": sport,
                "start": f"{start:%Y-%m-%d %H:%M}",
                "minutes": minutes,
                "calories": round(minutes * sports[sport] * chance.uniform(0.8, 1.2)),
                "heart_rate": None if chance.random() < 0.13 else round(chance.gauss(128, 14)),
            }
        )
    table = pandas.DataFrame(rows)
    return _subject("gym", table, _about_gym(table))


def _about_gym(table: pandas.DataFrame) -> dict[str, Any]:
    start, sports = pandas.to_datetime(table["start"]), sorted(table["sport"].unique())
    minutes = table.groupby("sport")["minutes"].sum()
    rate = table["calories"].groupby(table["sport"]).sum() / minutes
    days = start.dt.day_name()
    members = table.groupby("member_id")["calories"].sum()
    longest = table[table["minutes"] == 90]["sport"].value_counts()
    early = start.dt.hour < 9
    hearts = table.groupby("sport")["heart_rate"].mean()
    april = start.dt.month == 4
    return {
        "How many minutes were spent on each sport in total?": each(minutes.to_dict()),
        "On which day of the week are there the most sessions?": names(
            [str(days.value_counts().idxmax())], among=days.unique()
        ),
        "How many calories are burnt per minute in each sport, over all its sessions?": each(
            rate.to_dict(), within=0.01
        ),
        "Which member burnt the most calories in total, and how many?": count(
            int(members.idxmax()), int(members.max())
        ),
        "How many sessions started before 9 in the morning?": count(int(early.sum())),
        "What is the correlation between minutes and calories? Answer with the number only, "
        "rounded to three decimals.": line(f"{table['minutes'].corr(table['calories']):.3f}"),
        "How many sessions have no heart rate, and in which sport is the mean heart rate the "
        "highest?": every(
            count(int(table["heart_rate"].isna().sum())),
            names([str(hearts.idxmax())], among=sports),
        ),
        "How many sessions were there in April 2025, and how many minutes did they take?": count(
            int(april.sum()), int(table.loc[april, "minutes"].sum())
        ),
        "What is the 90th percentile of the calories of a session?": numbers(
            table["calories"].quantile(0.9)
        ),
        "Which sport has the most sessions of 90 minutes, and what percentage of all sessions of "
        "90 minutes is that?": every(
            names([str(longest.idxmax())], among=sports),
            numbers(100 * longest.max() / longest.sum(), within=0.01),
        ),
        "How many members had more than 8 sessions?": count(
            int((table["member_id"].value_counts() > 8).sum())
        ),
        "List the sports from the fewest to the most calories in total, on one line and separated "
        "by ' < '.": line(" < ".join(table.groupby("sport")["calories"].sum().sort_values().index)),
    }


SUBJECTS = {"loans": loans, "staff": staff, "gym": gym}
