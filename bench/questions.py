"""Plain questions about made-up tables, with what an answer must hold; computed with pandas.

The first two sets are those that prompts may be tried on. The last is held out: nothing is to be
changed because of what a model makes of it, or its figure says nothing any more.
"""

from __future__ import annotations

import calendar
import dataclasses
import io
import random
import re
from collections.abc import Callable, Mapping
from typing import Any

import pandas

_PARTS = ("sepal_length", "sepal_width", "petal_length", "petal_width")
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a turn came to.

    Attributes:
        text: the last words to the person.
        pictures: how many were shown.
        files: what the code saved, by name.
    """

    text: str
    pictures: int = 0
    files: Mapping[str, bytes] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """`is_right` says whether an answer holds what it must."""

    text: str
    is_right: Callable[[Answer], bool]


@dataclasses.dataclass(frozen=True, slots=True)
class Subject:
    """A table, and what is asked about it."""

    name: str
    file_name: str
    table: pandas.DataFrame
    questions: tuple[Question, ...]

    @property
    def content(self) -> bytes:
        """The file that the person sends."""
        return self.table.to_csv(index=False).encode()

    @property
    def details(self) -> str:
        """What the model is told of the file: columns, types, first rows."""
        columns = ", ".join(
            f"{name} ({_kind(self.table[name])})" for name in self.table.columns.map(str)
        )
        head = self.table.head(3).to_csv(index=False).strip()
        return f"{len(self.table):,} rows. Columns: {columns}.\nFirst rows:\n{head}"


def _kind(column: pandas.Series[Any]) -> str:
    return "str" if pandas.api.types.is_string_dtype(column) else str(column.dtype)


def says(*expected: str | float, within: float = 0.005) -> Callable[[Answer], bool]:
    """Every word is in the text, and every number, as rounded as `within` allows."""

    def is_right(answer: Answer) -> bool:
        numbers = [float(found.replace(",", "")) for found in _NUMBER.findall(answer.text)]
        words = answer.text.lower()
        return all(
            one.lower() in words
            if isinstance(one, str)
            else any(abs(number - one) <= within * max(abs(one), 1) for number in numbers)
            for one in expected
        )

    return is_right


def shows_a_picture(answer: Answer) -> bool:
    """At least one was shown."""
    return answer.pictures > 0


def saves(name: str, is_right: Callable[[pandas.DataFrame], bool]) -> Callable[[Answer], bool]:
    """The file is there, is a CSV, and holds what it must."""

    def has_saved(answer: Answer) -> bool:
        if name not in answer.files:
            return False
        try:
            table = pandas.read_csv(io.BytesIO(answer.files[name]))
        except (ValueError, pandas.errors.ParserError):
            return False
        return is_right(table)

    return has_saved


def names_month(month: str, amount: float) -> Callable[[Answer], bool]:
    """A month such as `2026-03` is in the text, as that, by its number or its name; so is more."""
    number = int(month[5:])
    name = calendar.month_name[number]
    pattern = re.compile(rf"{month}|\b0?{number}\b|\b{name}\b|\b{name[:3]}\b")
    is_told = says(amount)
    return lambda answer: pattern.search(answer.text) is not None and is_told(answer)


def flowers() -> Subject:
    """The first of those that prompts are tried on."""
    table = _flowers()
    return Subject("flowers", "flowers.csv", table, _about_flowers(table))


def _flowers() -> pandas.DataFrame:
    chance = random.Random(1936)
    kinds = {
        "setosa": (41, 5.0, 3.4, 1.5, 0.25),
        "versicolor": (53, 5.9, 2.8, 4.3, 1.3),
        "virginica": (49, 6.6, 3.0, 5.6, 2.0),
    }
    rows = [
        {"species": kind}
        | {n: round(chance.gauss(m, 0.12 * m), 2) for n, m in zip(_PARTS, means, strict=True)}
        for kind, (count, *means) in kinds.items()
        for _ in range(count)
    ]
    chance.shuffle(rows)
    return pandas.DataFrame(rows)


def _about_flowers(table: pandas.DataFrame) -> tuple[Question, ...]:
    means = table.groupby("species")[list(_PARTS)].mean()
    widths, long = means["sepal_width"], table["petal_length"] > 5
    most = table.loc[table["petal_width"].idxmax()]
    lengths = table["sepal_length"]
    correlation = table["petal_length"].corr(table["petal_width"])
    share = 100 * (table["species"] == "versicolor").mean()

    def holds_means(saved: pandas.DataFrame) -> bool:
        found = saved.select_dtypes("number").to_numpy().ravel()
        return all(any(abs(one - mean) < 0.005 for one in found) for mean in means.stack())

    asked = {
        "How many rows does this table have?": says(len(table)),
        "What is the mean petal length of each species?": says(*means["petal_length"]),
        "Which species has the largest mean sepal width, and how large is it?": says(
            str(widths.idxmax()), widths.max()
        ),
        "What is the correlation between petal length and petal width?": says(correlation),
        "How many flowers have a petal length over 5?": says(long.sum(), within=0),
        "What is the median sepal length?": says(lengths.median()),
        "What is the standard deviation of the sepal width?": says(table["sepal_width"].std()),
        "Plot petal length by species.": shows_a_picture,
        "Save the mean of every measurement per species to means.csv.": saves(
            "means.csv", holds_means
        ),
        "What is the largest petal width, and which species is that flower?": says(
            str(most["species"]), most["petal_width"]
        ),
        "What percentage of the flowers is versicolor?": says(share, within=0.01),
        "What is the difference between the longest and the shortest sepal length?": says(
            lengths.max() - lengths.min()
        ),
    }
    return tuple(Question(*one) for one in asked.items())


def orders() -> Subject:
    """The second of those, held out until what a model made of it had been looked at."""
    table = _orders()
    return Subject("orders", "orders.csv", table, _about_orders(table))


def _orders() -> pandas.DataFrame:
    chance = random.Random(2026)
    prices = {"lamp": 34.5, "chair": 89.0, "desk": 240.0, "shelf": 120.0}
    weights = {"North": 5, "South": 3, "East": 4, "West": 2}
    rows = []
    for number in range(236):
        product = chance.choice(list(prices))
        rows.append(
            {
                "order_id": 5000 + number,
                "date": f"2026-{chance.randint(1, 6):02}-{chance.randint(1, 28):02}",
                "region": chance.choices(list(weights), list(weights.values()))[0],
                "customer": f"C{chance.randint(1, 60):03}",
                "product": product,
                "units": chance.randint(1, 12),
                "unit_price": prices[product],
                "rating": None if chance.random() < 0.15 else chance.randint(1, 5),
            }
        )
    return pandas.DataFrame(rows)


def _about_orders(table: pandas.DataFrame) -> tuple[Question, ...]:
    units, revenue = table["units"], table["units"] * table["unit_price"]
    sold = units.groupby(table["product"]).sum()
    march = table["date"].str.startswith("2026-03").sum()
    north = 100 * revenue[table["region"] == "North"].sum() / revenue.sum()
    of = revenue.groupby(table["date"].str[:7]).sum()
    best = str(of.idxmax())

    def holds_large(saved: pandas.DataFrame) -> bool:
        return len(saved) == (units > 8).sum() and bool((saved["units"] > 8).all())

    asked = {
        "What is the total revenue (units times unit price)?": says(revenue.sum()),
        "Which product sold the most units, and how many?": says(
            str(sold.idxmax()), sold.max(), within=0
        ),
        "What is the average number of units per order in each region?": says(
            *units.groupby(table["region"]).mean()
        ),
        "How many orders were placed in March 2026?": says(march, within=0),
        "Which month had the highest revenue, and how much was it?": names_month(best, of.max()),
        "How many orders have no rating?": says(table["rating"].isna().sum(), within=0),
        "How many different customers are there?": says(table["customer"].nunique(), within=0),
        "Draw a bar chart of the total units by region.": shows_a_picture,
        "Save all orders with more than 8 units to large.csv.": saves("large.csv", holds_large),
        "What percentage of the revenue comes from the region North?": says(north, within=0.01),
    }
    return tuple(Question(*one) for one in asked.items())


def weather() -> Subject:
    """The set that is held out."""
    table = _weather()
    return Subject("weather", "weather.csv", table, _about_weather(table))


def _weather() -> pandas.DataFrame:
    chance = random.Random(1654)
    rows = []
    for day in range(80):
        for city, usual in {"Oslo": 1.0, "Porto": 13.0, "Graz": 5.0}.items():
            degrees = round(chance.gauss(usual, 5.0), 1)
            rows.append(
                {
                    "date": f"2026-{1 + day // 28:02}-{1 + day % 28:02}",
                    "city": city,
                    "temperature": degrees,
                    "humidity": round(75 - degrees + chance.gauss(0, 6), 1),
                    "rain_mm": max(0.0, round(chance.gauss(1.0, 6.0), 1)),
                    "wind_kmh": None if chance.random() < 0.08 else round(chance.uniform(0, 60), 1),
                }
            )
    return pandas.DataFrame(rows)


def _about_weather(table: pandas.DataFrame) -> tuple[Question, ...]:
    degrees, rain = table["temperature"], table["rain_mm"]
    warmest = table.loc[degrees.idxmax()]
    by_city = rain.groupby(table["city"]).sum()
    in_oslo = ((table["city"] == "Oslo") & (rain > 0)).sum()

    def holds_wet(saved: pandas.DataFrame) -> bool:
        return len(saved) == (rain > 10).sum() and bool((saved["rain_mm"] > 10).all())

    asked = {
        "What is the average temperature in each city?": says(
            *degrees.groupby(table["city"]).mean()
        ),
        "Which city had the most rain in total, and how much?": says(
            str(by_city.idxmax()), by_city.max()
        ),
        "On how many days did it rain in Oslo?": says(in_oslo, within=0),
        "What was the highest temperature, and in which city was it measured?": says(
            str(warmest["city"]), warmest["temperature"]
        ),
        "What is the correlation between temperature and humidity?": says(
            degrees.corr(table["humidity"])
        ),
        "How many values of the wind are missing?": says(table["wind_kmh"].isna().sum(), within=0),
        "What is the median wind speed?": says(table["wind_kmh"].median()),
        "Plot the temperature over time for each city.": shows_a_picture,
        "Save the rows with more than 10 mm of rain to wet.csv.": saves("wet.csv", holds_wet),
        "What percentage of the rows has a temperature below zero?": says(
            100 * (degrees < 0).mean(), within=0.01
        ),
    }
    return tuple(Question(*one) for one in asked.items())


SUBJECTS = {"flowers": flowers, "orders": orders, "weather": weather}
