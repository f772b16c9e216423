"""Three made-up tables that were held out until what a model made of them had been looked at.

Now prompts may be tried on them as on those of `tuning_questions`.
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


def shipments() -> questions.Subject:
    """Parcels, some of which have not arrived."""
    chance = random.Random(73)
    speed = {"Falcon": 2.0, "Turtle": 6.5, "Swift": 3.2, "Rhino": 4.4}
    rows = []
    for number in range(290):
        carrier = chance.choices(list(speed), [5, 3, 4, 2])[0]
        sent = pandas.Timestamp(2024, 9, 1) + pandas.Timedelta(days=chance.randint(0, 120))
        days = max(1, round(chance.gauss(speed[carrier], 1.3)))
        arrived = None if chance.random() < 0.07 else sent + pandas.Timedelta(days=days)
        weight = round(chance.uniform(0.3, 28.0), 1)
        rows.append(
            {
                "shipment": f"S-{4100 + number}",
                "carrier": carrier,
                "destination": chance.choice(["Bergen", "Malaga", "Vienna", "Riga", "Cork"]),
                "sent": f"{sent:%Y-%m-%d}",
                "delivered": f"{arrived:%Y-%m-%d}" if arrived else None,
                "weight_kg": weight,
                "cost": f"€{4 + weight * chance.uniform(0.6, 1.4):.2f}",
                "damaged": chance.random() < 0.09,
            }
        )
    table = pandas.DataFrame(rows)
    return _subject("shipments", table, _about_shipments(table))


def _about_shipments(table: pandas.DataFrame) -> dict[str, Any]:
    carriers, places = sorted(table["carrier"].unique()), sorted(table["destination"].unique())
    cost = table["cost"].str.removeprefix("€").astype(float)
    sent, arrived = pandas.to_datetime(table["sent"]), pandas.to_datetime(table["delivered"])
    days = (arrived - sent).dt.days
    slow = days.groupby(table["carrier"]).mean()
    broken = table["damaged"].groupby(table["carrier"]).mean() * 100
    per_place = table["destination"].value_counts()
    heaviest = table.loc[table["weight_kg"].idxmax()]
    per_month = table["sent"].str[:7].value_counts()
    kilos = table.groupby("carrier")["weight_kg"].sum()
    top = table.loc[table["weight_kg"].sort_values(ascending=False).index[:3], "shipment"]
    return {
        "How many shipments have not been delivered?": count(int(table["delivered"].isna().sum())),
        "What is the total weight per carrier?": each(kilos.to_dict()),
        "What is the total cost of all shipments?": numbers(cost.sum()),
        "How many days does each carrier take on average from sending to delivery?": each(
            slow.to_dict()
        ),
        "Which destination got the most shipments, and how many?": every(
            names([str(per_place.idxmax())], among=places), count(int(per_place.max()))
        ),
        "What percentage of the shipments of each carrier was damaged?": each(
            broken.to_dict(), within=0.01
        ),
        "Which is the heaviest shipment, and where did it go?": every(
            names([heaviest["shipment"]], among=table["shipment"]),
            names([heaviest["destination"]], among=places),
        ),
        "How many shipments were sent in each month? Answer on one line in the form "
        "YYYY-MM: number, sorted by month and separated by commas.": line(
            ", ".join(f"{month}: {number}" for month, number in per_month.sort_index().items())
        ),
        "How many shipments weigh more than 20 kg, and how many of those were damaged?": count(
            int((table["weight_kg"] > 20).sum()),
            int(((table["weight_kg"] > 20) & table["damaged"]).sum()),
        ),
        "Name the three heaviest shipments.": names(top, among=table["shipment"]),
        "What does a kilogram cost on average with each carrier (total cost over total weight)?": (
            each((cost.groupby(table["carrier"]).sum() / kilos).to_dict())
        ),
        "Which carriers delivered at least one shipment on the day after it was sent or sooner?": (
            names(table.loc[days <= 1, "carrier"].unique(), among=carriers)
        ),
    }


def exams() -> questions.Subject:
    """Results of pupils in several subjects."""
    chance = random.Random(89)
    hard = {"maths": 61, "physics": 58, "French": 70, "music": 79}
    pupils = [f"P{number:02}" for number in range(1, 61)]
    rooms = {pupil: chance.choice(["7a", "7b", "7c"]) for pupil in pupils}
    rows = []
    for pupil in pupils:
        gift = chance.gauss(0, 8)
        for subject, usual in hard.items():
            if chance.random() < 0.1:
                continue
            score = min(100, max(5, round(chance.gauss(usual + gift, 10))))
            day = pandas.Timestamp(2025, 5, 5) + pandas.Timedelta(days=chance.randint(0, 25))
            rows.append(
                {
                    "pupil": pupil,
                    "class": rooms[pupil],
                    "subject": subject,
                    "date": f"{day:%d/%m/%Y}",
                    "score": None if chance.random() < 0.06 else score,
                    "attempts": chance.choices([1, 2, 3], [7, 2, 1])[0],
                }
            )
    table = pandas.DataFrame(rows)
    return _subject("exams", table, _about_exams(table))


def _about_exams(table: pandas.DataFrame) -> dict[str, Any]:
    score, subjects = table["score"], sorted(table["subject"].unique())
    rooms = sorted(table["class"].unique())
    day = pandas.to_datetime(table["date"], format="%d/%m/%Y")
    mean, passed = score.groupby(table["subject"]).mean(), score >= 60
    wide = table.pivot_table(index="pupil", columns="subject", values="score")
    spread = score.groupby(table["subject"]).std()
    per_pupil = score.groupby(table["pupil"]).mean()
    taken = table["pupil"].value_counts()
    class_mean = score.groupby(table["class"]).mean()
    share = 100 * passed[score.notna()].groupby(table["subject"]).mean()
    again = table["attempts"] > 1
    return {
        "What is the mean score of each subject?": each(mean.to_dict()),
        "How many results have no score, and in how many rows were there two or more attempts?": (
            count(int(score.isna().sum()), int(again.sum()))
        ),
        "Which class has the highest mean score, and what is it?": every(
            names([str(class_mean.idxmax())], among=rooms), numbers(class_mean.max())
        ),
        "How many pupils took all four subjects?": count(int((taken == 4).sum())),
        "In which subject do the scores have the largest standard deviation?": names(
            [str(spread.idxmax())], among=subjects
        ),
        "A score of 60 or more is a pass. What percentage of the scores in each subject is a "
        "pass? Leave out missing scores.": each(share.to_dict(), within=0.01),
        "Which pupil has the highest mean score? Answer with the pupil only.": line(
            str(per_pupil.idxmax())
        ),
        "How many exams took place in the week from 12 to 18 May 2025?": count(
            int(((day >= "2025-05-12") & (day <= "2025-05-18")).sum())
        ),
        "What is the correlation between the scores in maths and in physics, over the pupils who "
        "have both?": numbers(wide["maths"].corr(wide["physics"])),
        "How many pupils are in each class? Answer on one line in the form class=number, sorted "
        "by class and separated by commas and a space.": line(
            ", ".join(
                f"{room}={number}"
                for room, number in table.groupby("class")["pupil"].nunique().items()
            )
        ),
        "What are the lowest and the highest score in music?": count(
            *(int(one(score[table["subject"] == "music"])) for one in (min_of, max_of))
        ),
        "Which subjects have a median score above 65?": names(
            [
                one
                for one, median in score.groupby(table["subject"]).median().items()
                if median > 65
            ],
            among=subjects,
        ),
    }


def min_of(column: Any) -> float:
    """The smallest, without what is missing."""
    return float(column.min())


def max_of(column: Any) -> float:
    """The largest, without what is missing."""
    return float(column.max())


def meters() -> questions.Subject:
    """What houses used, a row for each month."""
    chance = random.Random(97)
    houses = {"Oak": 3100, "Elm": 2400, "Fir": 5200, "Yew": 1700, "Ash": 3900}
    rows = []
    for house, usual in houses.items():
        people = chance.randint(4, 40)
        for year in (2023, 2024):
            for month in range(1, 13):
                winter = 1.5 if month in (1, 2, 11, 12) else 0.8
                gas = None if chance.random() < 0.08 else round(usual * winter * 0.06, 1)
                rows.append(
                    {
                        "building": house,
                        "year": year,
                        "month": month,
                        "kwh": round(usual * winter * chance.uniform(0.85, 1.15)),
                        "gas_m3": gas,
                        "people": people,
                        "tariff": chance.choice(["day", "night", "flat"]),
                    }
                )
    table = pandas.DataFrame(rows)
    return _subject("meters", table, _about_meters(table))


def _about_meters(table: pandas.DataFrame) -> dict[str, Any]:
    used, houses = table["kwh"], sorted(table["building"].unique())
    per_house = used.groupby(table["building"]).sum()
    wide = table.pivot_table(index="building", columns="year", values="kwh", aggfunc="sum")
    change = 100 * (wide[2024] / wide[2023] - 1)
    per_month = used.groupby(table["month"]).mean()
    most = table.loc[used.idxmax()]
    per_head = per_house / table.groupby("building")["people"].first()
    winter = table["month"].isin([12, 1, 2])
    gas = table["gas_m3"]
    low = used.groupby(table["building"]).min()
    return {
        "What is the total kwh of each building in 2024?": each(wide[2024].to_dict()),
        "Which building used the most kwh over both years, and how much?": every(
            names([str(per_house.idxmax())], among=houses), count(int(per_house.max()))
        ),
        "By what percentage did the total kwh of each building change from 2023 to 2024?": each(
            change.to_dict(), within=0.01
        ),
        "How many values of the gas are missing, and what is the mean of the others?": every(
            count(int(gas.isna().sum())), numbers(gas.mean())
        ),
        "In which month of the year is the mean kwh the lowest? Answer with the number of the "
        "month only.": line(str(per_month.idxmin())),
        "Which building used the most kwh in a single month, and in which month and year?": every(
            names([most["building"]], among=houses), _month_of(most)
        ),
        "How many kwh did each building use per person, over both years?": each(per_head.to_dict()),
        "What percentage of all kwh was used in December, January and February?": numbers(
            100 * used[winter].sum() / used.sum(), within=0.01
        ),
        "How many months are on each tariff, over all buildings?": each(
            table["tariff"].value_counts().to_dict(), within=0
        ),
        "Which buildings never used less than 2000 kwh in a month?": names(
            low[low >= 2000].index, among=houses
        ),
        "List the buildings from the highest to the lowest total kwh, on one line and separated "
        "by ' > '.": line(" > ".join(per_house.sort_values()[::-1].index)),
        "What is the median kwh in 2023 and in 2024?": numbers(
            *used.groupby(table["year"]).median()
        ),
    }


def _month_of(row: Any) -> Any:
    by_number = count(int(row["month"]), int(row["year"]))
    name = f"{pandas.Timestamp(row['year'], row['month'], 1):%B}"
    in_words = count(int(row["year"]))
    date = f"{row['year']}-{row['month']:02}"
    return lambda answer: (
        by_number(answer) or (name in answer.text and in_words(answer)) or date in answer.text
    )


SUBJECTS = {"shipments": shipments, "exams": exams, "meters": meters}
