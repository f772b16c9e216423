"""Three made-up tables that are held out, with what answers must hold.

Nothing is to be changed because of what a model makes of these, or their figure says nothing any
more. They ask the kinds of things that `tuning_questions` asks, twelve of each table.
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


def harvest() -> questions.Subject:
    """What was picked in an orchard, a row for each picker and day."""
    chance = random.Random(113)
    crops = {"apple": 210.0, "pear": 160.0, "plum": 95.0, "cherry": 48.0}
    rows = []
    for _ in range(280):
        crop = chance.choices(list(crops), [5, 3, 4, 3])[0]
        day = pandas.Timestamp(2025, 6, 1) + pandas.Timedelta(days=chance.randint(0, 121))
        picked = round(crops[crop] * chance.uniform(0.5, 1.5), 1)
        rows.append(
            {
                "day": f"{day:%Y-%m-%d}",
                "crop": crop,
                "field": chance.choices(["Upper", "Lower", "River"], [3, 4, 2])[0],
                "picker": chance.choice(["Ada", "Ben", "Cleo", "Dov", "Emil", "Flora", "Gil"]),
                "kg": picked,
                "spoiled_kg": None
                if chance.random() < 0.12
                else round(picked * chance.uniform(0, 0.1), 1),
                "hours": chance.choice([2, 3, 4, 5, 6, 7, 8]),
                "organic": chance.random() < 0.35,
            }
        )
    table = pandas.DataFrame(rows)
    return _subject("harvest", table, _about_harvest(table))


def _about_harvest(table: pandas.DataFrame) -> dict[str, Any]:
    crops, fields = sorted(table["crop"].unique()), sorted(table["field"].unique())
    pickers = sorted(table["picker"].unique())
    per_crop = table.groupby("crop")["kg"].sum()
    per_picker = table.groupby("picker")["kg"].sum()
    rate = per_picker / table.groupby("picker")["hours"].sum()
    months = table["day"].str[:7].value_counts()
    spoiled, kg = table["spoiled_kg"], table["kg"]
    per_field = table["field"].value_counts()
    in_july = table["day"].str.startswith("2025-07")
    is_plum = table["crop"] == "plum"
    organic = 100 * table["organic"].groupby(table["crop"]).mean()
    hours = table["hours"].groupby(table["field"]).mean()
    best = table.loc[kg.idxmax()]
    return {
        "How many kg of each crop were picked in total?": each(per_crop.to_dict()),
        "Who picked the most kg in total, and how much?": every(
            names([str(per_picker.idxmax())], among=pickers), numbers(per_picker.max())
        ),
        "How many rows have no spoiled_kg, and what is the mean of the others?": every(
            count(int(spoiled.isna().sum())), numbers(spoiled.mean())
        ),
        "How many kg per hour did each picker pick (total kg over total hours)?": each(
            rate.to_dict()
        ),
        "In which month were there the fewest rows? Answer in the form YYYY-MM.": line(
            str(months.idxmin())
        ),
        "What percentage of the rows of each crop is organic?": each(
            organic.to_dict(), within=0.01
        ),
        "How many rows are about plums, and how many of those are from the River field?": count(
            int(is_plum.sum()), int((is_plum & (table["field"] == "River")).sum())
        ),
        "Which fields have more than 80 rows?": names(
            per_field[per_field > 80].index, among=fields
        ),
        "What is the largest amount of kg in one row, and which crop and picker is it?": every(
            numbers(best["kg"]), names([best["crop"]], among=crops), _names_one(best["picker"])
        ),
        "How many kg were picked in July 2025?": numbers(kg[in_july].sum()),
        "List the fields by their mean hours, longest first, on one line and separated by "
        "commas.": line(", ".join(hours.sort_values()[::-1].index)),
        "What is the median of the kg of cherries? Answer with the number only, rounded to one "
        "decimal.": line(f"{kg[table['crop'] == 'cherry'].median():.1f}"),
    }


def _names_one(name: str) -> Any:
    return lambda answer: name.lower() in answer.text.lower()


def flats() -> questions.Subject:
    """Flats that are to let; the rent is text with a currency in it."""
    chance = random.Random(127)
    quarters = {"Oldtown": 19.0, "Docks": 15.5, "Hill": 22.0, "Meadow": 12.5, "Parkside": 17.0}
    rows = []
    for number in range(240):
        quarter = chance.choices(list(quarters), [4, 5, 2, 4, 3])[0]
        rooms = chance.choices([1, 2, 3, 4, 5], [3, 5, 5, 3, 1])[0]
        area = round(18 + rooms * chance.uniform(14, 26))
        free = pandas.Timestamp(2025, 1, 1) + pandas.Timedelta(days=chance.randint(0, 364))
        rows.append(
            {
                "flat": f"F{200 + number}",
                "quarter": quarter,
                "rooms": rooms,
                "area_m2": area,
                "rent": f"£{round(area * quarters[quarter] * chance.uniform(0.8, 1.2)):,}",
                "free_from": f"{free:%d/%m/%Y}",
                "floor": None if chance.random() < 0.1 else chance.randint(0, 8),
                "pets": chance.choices(["yes", "no"], [2, 3])[0],
            }
        )
    table = pandas.DataFrame(rows)
    return _subject("flats", table, _about_flats(table))


def _about_flats(table: pandas.DataFrame) -> dict[str, Any]:
    quarters = sorted(table["quarter"].unique())
    rent = table["rent"].str.replace("[£,]", "", regex=True).astype(float)
    free = pandas.to_datetime(table["free_from"], format="%d/%m/%Y")
    mean = rent.groupby(table["quarter"]).mean()
    area = table.groupby("quarter")["area_m2"].mean()
    largest = table.loc[table["area_m2"].sort_values(ascending=False).index[0]]
    pets = 100 * (table["pets"] == "yes").groupby(table["quarter"]).mean()
    per_quarter, rooms = table["quarter"].value_counts(), table["rooms"].value_counts()
    months = free.dt.month.value_counts()
    floors = table["floor"]
    big = table["area_m2"] > 90
    return {
        "What is the mean rent in each quarter?": each(mean.to_dict()),
        "Which flat has the highest rent, and how much is it?": every(
            names([str(table.loc[rent.idxmax(), "flat"])], among=table["flat"]),
            numbers(rent.max()),
        ),
        "How many flats are free from a day in June 2025?": count(int((free.dt.month == 6).sum())),
        "How many flats have no floor entered, and what is the highest floor?": count(
            int(floors.isna().sum()), int(floors.max())
        ),
        "What percentage of the flats in each quarter allows pets?": each(
            pets.to_dict(), within=0.01
        ),
        "Which quarters have a mean area above 71 square metres?": names(
            area[area > 71].index, among=quarters
        ),
        "How many flats have each number of rooms? Answer on one line in the form rooms=number, "
        "sorted by rooms and separated by semicolons and a space.": line(
            "; ".join(f"{one}={number}" for one, number in rooms.sort_index().items())
        ),
        "Which quarter has the most flats, and how many?": every(
            names([str(per_quarter.idxmax())], among=quarters), count(int(per_quarter.max()))
        ),
        "What is the difference between the mean area of flats with 4 rooms and with 2 rooms?": (
            numbers(
                table.loc[table["rooms"] == 4, "area_m2"].mean()
                - table.loc[table["rooms"] == 2, "area_m2"].mean()
            )
        ),
        "How many flats are larger than 90 square metres, and how many of those allow pets?": count(
            int(big.sum()), int((big & (table["pets"] == "yes")).sum())
        ),
        "In which month of the year do the most flats become free? Answer with the number of the "
        "month only.": line(str(months.idxmax())),
        "What is the largest area of a flat, and in which quarter is that flat?": every(
            count(int(largest["area_m2"])), names([largest["quarter"]], among=quarters)
        ),
    }


def races() -> questions.Subject:
    """Runs of a season; who gave up has no time."""
    chance = random.Random(131)
    runs = {"Lake": 10.0, "Forest": 21.1, "City": 5.0, "Ridge": 15.0}
    runners = [f"R{number:02}" for number in range(1, 76)]
    clubs = {one: chance.choice(["Comets", "Hares", "Owls", "Storks"]) for one in runners}
    years = {one: chance.randint(1958, 2006) for one in runners}
    rows = []
    for runner in runners:
        pace = chance.gauss(5.6, 0.7)
        for run, km in runs.items():
            if chance.random() < 0.3:
                continue
            minutes = round(km * pace * chance.uniform(0.93, 1.1), 1)
            rows.append(
                {
                    "runner": runner,
                    "club": clubs[runner],
                    "birth_year": years[runner],
                    "run": run,
                    "km": km,
                    "minutes": None if chance.random() < 0.09 else minutes,
                    "start": f"{chance.choice([8, 9, 10, 11])}:{chance.choice([0, 20, 40]):02}",
                }
            )
    table = pandas.DataFrame(rows)
    return _subject("races", table, _about_races(table))


def _about_races(table: pandas.DataFrame) -> dict[str, Any]:
    runners = sorted(table["runner"].unique())
    minutes = table["minutes"]
    mean = minutes.groupby(table["run"]).mean()
    finished = minutes.notna()
    taken = table["runner"].value_counts()
    rates = 100 * finished.groupby(table["run"]).mean()
    lake = table[table["run"] == "Lake"]
    fastest = lake.loc[lake["minutes"].idxmin()]
    distance = table[finished].groupby("club")["km"].sum()
    wide = table.pivot_table(index="runner", columns="run", values="minutes")
    starters = table.groupby("club")["runner"].nunique()
    people = table.drop_duplicates("runner")
    spread = minutes.groupby(table["run"]).std()
    return {
        "What is the mean time in minutes of each run?": each(mean.to_dict()),
        "How many starts ended without a time?": count(int(minutes.isna().sum())),
        "Who was the fastest in the Lake run, and in how many minutes?": every(
            names([str(fastest["runner"])], among=runners), numbers(fastest["minutes"])
        ),
        "How many runners took part in all four runs?": count(int((taken == 4).sum())),
        "What percentage of the starts in each run ended with a time?": each(
            rates.to_dict(), within=0.01
        ),
        "How many km did the runners of each club run in total? Count only starts with a time.": (
            each(distance.to_dict())
        ),
        "How many different runners does each club have? Answer on one line in the form "
        "club=number, sorted by club and separated by commas and a space.": line(
            ", ".join(f"{one}={number}" for one, number in starters.items())
        ),
        "How many different runners are there, and how many of them were born before 1980?": count(
            len(people), int((people["birth_year"] < 1980).sum())
        ),
        "What is the correlation between km and minutes? Answer with the number only, rounded to "
        "three decimals.": line(f"{table['km'].corr(minutes):.3f}"),
        "How many starts were before 10 o'clock?": count(
            int((table["start"].str.split(":").str[0].astype(int) < 10).sum())
        ),
        "List the runs from the smallest to the largest standard deviation of the minutes, on one "
        "line and separated by ' < '.": line(" < ".join(spread.sort_values().index)),
        "Which runners have the shortest mean time over all four runs, if only those count who "
        "have a time in each of them? Name the best two.": names(
            wide.dropna().mean(axis=1).sort_values().index[:2], among=runners
        ),
    }


SUBJECTS = {"harvest": harvest, "flats": flats, "races": races}
