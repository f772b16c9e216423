"""Charts of a real kernel, as pages that a real browser opens without a network."""

from __future__ import annotations

import asyncio
import re

import pytest

from interpreter_bot import settings, values
from interpreter_bot.kernels import pools

pytestmark = pytest.mark.kernel
# The last line shows it; what there is to be seen once it is drawn; whether it has a preview.
CHARTS = {
    "plotly": (
        "import plotly.express as px\npx.scatter(x=[1, 2], y=[3, 4], title='Two')",
        "document.querySelectorAll('.scatterlayer path.point').length === 2",
        True,
    ),
    "altair": (
        "import altair, pandas as pd\n"
        "data = pd.DataFrame({'a': [1, 2], 'b': [3, 4]})\n"
        "altair.Chart(data, title='Two').mark_point().encode(x='a', y='b')",
        "document.querySelector('canvas, svg').getBoundingClientRect().width > 100",
        True,
    ),
    "bokeh": (
        "from bokeh.plotting import figure\n"
        "made = figure(title='Two', width=300, height=200)\n"
        "made.scatter([1, 2], [3, 4])\n"
        "made",
        "Bokeh.documents[0].is_idle && Bokeh.documents[0].roots()[0].title.text === 'Two'",
        False,
    ),
    # Tiles come from elsewhere, so there are none.
    "folium": (
        "import folium\n"
        "made = folium.Map([47.1, 15.4], tiles=None, zoom_start=12)\n"
        "folium.CircleMarker([47.1, 15.4], tooltip='here').add_to(made)\n"
        "made",
        "document.querySelectorAll('.leaflet-overlay-pane path').length === 1",
        False,
    ),
}


@pytest.fixture(scope="module")
def pool_of(tmp_path_factory):
    """Open a pool, with the stack that everybody has."""
    directory = tmp_path_factory.mktemp("charts")
    return lambda short_path: pools.Pool.open(
        settings.Settings(
            kernels=settings.Kernels(spares=0),
            paths=settings.Paths(data=directory, runtime=short_path),
        )
    )


@pytest.mark.slow
async def test_charts_open_offline_and_svg_and_formulas_have_pictures(
    pool_of, short_path, tmp_path, browsing
):
    async with pool_of(short_path) as pool, browsing() as browser:
        for name, (code, is_drawn, has_preview) in CHARTS.items():
            (page,) = await _shown(pool, code, values.Html)
            assert page.preview.startswith(b"\x89PNG") == has_preview, name
            path = tmp_path / f"{name}.html"
            await asyncio.to_thread(path.write_bytes, page.html)
            tab = await browser.page()
            await tab.go(path.as_uri())
            await tab.until(is_drawn)
            assert not [one for one in tab.requests if one.startswith("http")], name
            await tab.close()
        drawing = (
            "from IPython.display import SVG\n"
            'SVG(\'<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20">'
            '<rect width="40" height="20" fill="#f00"/></svg>\')'
        )
        (svg,) = await _shown(pool, drawing, values.Image)
        assert svg.mime == "image/svg+xml"
        assert _size(svg.preview) == (80, 40)
        (formula,) = await _shown(pool, "import sympy\nsympy.sqrt(sympy.Symbol('x'))", values.Latex)
        assert _size(formula.preview) > (10, 10)


async def _shown(pool, code, kind):
    outputs: list[values.Output] = []
    finished = await (await pool.take("a")).execute(code, show=outputs.append, seconds=50)
    assert finished.ending is values.Ending.OK, outputs
    return [one for one in outputs if isinstance(one, kind)]


def _size(png):
    assert re.match(rb"\x89PNG\r\n\x1a\n....IHDR", png, re.DOTALL)
    return int.from_bytes(png[16:20]), int.from_bytes(png[20:24])
