"""Plain questions about made-up tables, with the expected answers, computed with pandas.

Prompts may be tuned on the first two tables. The last one is held out: never change anything
because of a model's answers about it, or its figure means nothing.
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

_MEASUREMENTS = ("sepal_length", "sepal_width", "petal_length", "petal_width")
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The result of a turn.

    Attributes:
        text: the final answer to the person.
        picture_count: how many pictures were shown.
        files: contents of the files that the code saved, by name.
    """

    text: str
    picture_count: int = 0
    files: Mapping[str, bytes] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """A question; `is_right` checks an answer to it."""

    text: str
    is_right: Callable[[Answer], bool]


@dataclasses.dataclass(frozen=True, slots=True)
class Subject:
    """A table, and the questions about it."""

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
        """The description of the file for the model: columns, types, first rows."""
        columns = ", ".join(
            f"{name} ({_name_type(self.table[name])})" for name in self.table.columns.map(str)
        )
        head = self.table.head(3).to_csv(index=False).strip()
        return f"{len(self.table):,} rows. Columns: {columns}.\nFirst rows:\n{head}"


def _name_type(column: pandas.Series[Any]) -> str:
    return "str" if pandas.api.types.is_string_dtype(column) else str(column.dtype)


def says(*expected: str | float, within: float = 0.005) -> Callable[[Answer], bool]:
    """Check that the text has every word, and every number with a relative error of `within`."""

    def is_right(answer: Answer) -> bool:
        numbers = [float(match.replace(",", "")) for match in _NUMBER.findall(answer.text)]
        words = answer.text.lower()
        return all(
            item.lower() in words
            if isinstance(item, str)
            else any(abs(number - item) <= within * max(abs(item), 1) for number in numbers)
            for item in expected
        )

    return is_right


def shows_picture(answer: Answer) -> bool:
    """Check that at least one picture was shown."""
    return answer.picture_count > 0


def saves(name: str, is_right: Callable[[pandas.DataFrame], bool]) -> Callable[[Answer], bool]:
    """Check that the file exists, is a CSV and passes `is_right`."""

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
    """Check that the text has the amount, and a month such as `2026-03` in any usual form."""
    number = int(month[5:])
    name = calendar.month_name[number]
    pattern = re.compile(rf"{month}|\b0?{number}\b|\b{name}\b|\b{name[:3]}\b")
    is_told = says(amount)
    return lambda answer: pattern.search(answer.text) is not None and is_told(answer)


def flowers() -> Subject:
    """The first table for tuning prompts."""
    table = _make_flowers()
    return Subject("flowers", "flowers.csv", table, _ask_about_flowers(table))


def _make_flowers() -> pandas.DataFrame:
    rng = random.Random(1936)
    species = {
        "setosa": (41, 5.0, 3.4, 1.5, 0.25),
        "versicolor": (53, 5.9, 2.8, 4.3, 1.3),
        "virginica": (49, 6.6, 3.0, 5.6, 2.0),
    }
    rows = [
        {"species": name}
        | {n: round(rng.gauss(m, 0.12 * m), 2) for n, m in zip(_MEASUREMENTS, means, strict=True)}
        for name, (count, *means) in species.items()
        for _ in range(count)
    ]
    rng.shuffle(rows)
    return pandas.DataFrame(rows)


def _ask_about_flowers(table: pandas.DataFrame) -> tuple[Question, ...]:
    means = table.groupby("species")[list(_MEASUREMENTS)].mean()
    widths, is_long = means["sepal_width"], table["petal_length"] > 5
    widest = table.loc[table["petal_width"].idxmax()]
    lengths = table["sepal_length"]
    correlation = table["petal_length"].corr(table["petal_width"])
    share = 100 * (table["species"] == "versicolor").mean()

    def holds_means(saved_table: pandas.DataFrame) -> bool:
        numbers = saved_table.select_dtypes("number").to_numpy().ravel()
        return all(any(abs(entry - mean) < 0.005 for entry in numbers) for mean in means.stack())

    questions = {
        "How many rows does this table have?": says(len(table)),
        "What is the mean petal length of each species?": says(*means["petal_length"]),
        "Which species has the largest mean sepal width, and how large is it?": says(
            str(widths.idxmax()), widths.max()
        ),
        "What is the correlation between petal length and petal width?": says(correlation),
        "How many flowers have a petal length over 5?": says(is_long.sum(), within=0),
        "What is the median sepal length?": says(lengths.median()),
        "What is the standard deviation of the sepal width?": says(table["sepal_width"].std()),
        "Plot petal length by species.": shows_picture,
        "Save the mean of every measurement per species to means.csv.": saves(
            "means.csv", holds_means
        ),
        "What is the largest petal width, and which species is that flower?": says(
            str(widest["species"]), widest["petal_width"]
        ),
        "What percentage of the flowers is versicolor?": says(share, within=0.01),
        "What is the difference between the longest and the shortest sepal length?": says(
            lengths.max() - lengths.min()
        ),
    }
    return tuple(Question(*entry) for entry in questions.items())


def orders() -> Subject:
    """The second table for tuning prompts; it was held out at first."""
    table = _make_orders()
    return Subject("orders", "orders.csv", table, _ask_about_orders(table))


def _make_orders() -> pandas.DataFrame:
    rng = random.Random(2026)
    prices = {"lamp": 34.5, "chair": 89.0, "desk": 240.0, "shelf": 120.0}
    weights = {"North": 5, "South": 3, "East": 4, "West": 2}
    rows = []
    for number in range(236):
        product = rng.choice(list(prices))
        rows.append(
            {
                "order_id": 5000 + number,
                "date": f"2026-{rng.randint(1, 6):02}-{rng.randint(1, 28):02}",
                "region": rng.choices(list(weights), list(weights.values()))[0],
                "customer": f"C{rng.randint(1, 60):03}",
                "product": product,
                "units": rng.randint(1, 12),
                "unit_price": prices[product],
                "rating": None if rng.random() < 0.15 else rng.randint(1, 5),
            }
        )
    return pandas.DataFrame(rows)


def _ask_about_orders(table: pandas.DataFrame) -> tuple[Question, ...]:
    units, revenue = table["units"], table["units"] * table["unit_price"]
    units_by_product = units.groupby(table["product"]).sum()
    march_count = table["date"].str.startswith("2026-03").sum()
    north_percent = 100 * revenue[table["region"] == "North"].sum() / revenue.sum()
    revenue_by_month = revenue.groupby(table["date"].str[:7]).sum()
    best_month = str(revenue_by_month.idxmax())

    def holds_large(saved_table: pandas.DataFrame) -> bool:
        return len(saved_table) == (units > 8).sum() and bool((saved_table["units"] > 8).all())

    questions = {
        "What is the total revenue (units times unit price)?": says(revenue.sum()),
        "Which product sold the most units, and how many?": says(
            str(units_by_product.idxmax()), units_by_product.max(), within=0
        ),
        "What is the average number of units per order in each region?": says(
            *units.groupby(table["region"]).mean()
        ),
        "How many orders were placed in March 2026?": says(march_count, within=0),
        "Which month had the highest revenue, and how much was it?": names_month(
            best_month, revenue_by_month.max()
        ),
        "How many orders have no rating?": says(table["rating"].isna().sum(), within=0),
        "How many different customers are there?": says(table["customer"].nunique(), within=0),
        "Draw a bar chart of the total units by region.": shows_picture,
        "Save all orders with more than 8 units to large.csv.": saves("large.csv", holds_large),
        "What percentage of the revenue comes from the region North?": says(
            north_percent, within=0.01
        ),
    }
    return tuple(Question(*entry) for entry in questions.items())


def weather() -> Subject:
    """The table that is held out."""
    table = _make_weather()
    return Subject("weather", "weather.csv", table, _ask_about_weather(table))


def _make_weather() -> pandas.DataFrame:
    rng = random.Random(1654)
    rows = []
    for day in range(80):
        for city, mean_degrees in {"Oslo": 1.0, "Porto": 13.0, "Graz": 5.0}.items():
            degrees = round(rng.gauss(mean_degrees, 5.0), 1)
            rows.append(
                {
                    "date": f"2026-{1 + day // 28:02}-{1 + day % 28:02}",
                    "city": city,
                    "temperature": degrees,
                    "humidity": round(75 - degrees + rng.gauss(0, 6), 1),
                    "rain_mm": max(0.0, round(rng.gauss(1.0, 6.0), 1)),
                    "wind_kmh": None if rng.random() < 0.08 else round(rng.uniform(0, 60), 1),
                }
            )
    return pandas.DataFrame(rows)


def _ask_about_weather(table: pandas.DataFrame) -> tuple[Question, ...]:
    degrees, rain = table["temperature"], table["rain_mm"]
    warmest = table.loc[degrees.idxmax()]
    rain_by_city = rain.groupby(table["city"]).sum()
    rainy_days_in_oslo = ((table["city"] == "Oslo") & (rain > 0)).sum()

    def holds_wet(saved_table: pandas.DataFrame) -> bool:
        return len(saved_table) == (rain > 10).sum() and bool((saved_table["rain_mm"] > 10).all())

    questions = {
        "What is the average temperature in each city?": says(
            *degrees.groupby(table["city"]).mean()
        ),
        "Which city had the most rain in total, and how much?": says(
            str(rain_by_city.idxmax()), rain_by_city.max()
        ),
        "On how many days did it rain in Oslo?": says(rainy_days_in_oslo, within=0),
        "What was the highest temperature, and in which city was it measured?": says(
            str(warmest["city"]), warmest["temperature"]
        ),
        "What is the correlation between temperature and humidity?": says(
            degrees.corr(table["humidity"])
        ),
        "How many values of the wind are missing?": says(table["wind_kmh"].isna().sum(), within=0),
        "What is the median wind speed?": says(table["wind_kmh"].median()),
        "Plot the temperature over time for each city.": shows_picture,
        "Save the rows with more than 10 mm of rain to wet.csv.": saves("wet.csv", holds_wet),
        "What percentage of the rows has a temperature below zero?": says(
            100 * (degrees < 0).mean(), within=0.01
        ),
    }
    return tuple(Question(*entry) for entry in questions.items())


SUBJECTS = {"flowers": flowers, "orders": orders, "weather": weather}
