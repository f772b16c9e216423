"""What becomes of displays that need a browser, before they leave the kernel."""

import base64
import importlib
import importlib.util
import json
import re
import sys
import types
import warnings

import pytest

from interpreter_bot.guest import display_previews, html_displays, plotly_drawing, preloads

PLOTLY = "application/vnd.plotly.v1+json"
PNG = b"\x89PNG\r\n\x1a\n"


def completed(data):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        html_displays.add_visible_forms(data)
    return data


def preview(data):
    return base64.b64decode(data[html_displays.PREVIEW_MIME])


def figure(*shown, **layout):
    return {"data": list(shown), "layout": layout}


def test_a_plotly_figure_becomes_one_page_that_needs_nothing_else():
    data = completed({PLOTLY: figure({"y": [1, 2]}, title={"text": "Sales <b>up</b> </script>"})})
    assert PLOTLY not in data
    page = data["text/html"]
    assert not re.findall(r"""(?:src|href)\s*=\s*["']?https?:""", page)
    assert "Plotly.newPlot" in page
    assert page.count("</script>") == 3
    assert len(page) < 3_000_000
    assert data[html_displays.TITLE_MIME] == "Sales up"
    assert data["text/plain"] == "plotly figure 'Sales up': scatter"
    assert preview(data).startswith(PNG)


@pytest.mark.parametrize(
    "trace",
    [
        {"type": "scatter", "x": ["2024-01-01", "2024-02-01"], "y": [1, None], "mode": "lines"},
        {"type": "scatter", "x": [1, 2], "y": [1, 2], "marker": {"color": [1, 2], "size": [3, 9]}},
        {"type": "scattergl", "y": [1, 2], "line": {"color": "rgb(1, 2, 3)", "dash": "dot"}},
        {"type": "scatter", "y": {"bdata": "AQIDBA==", "dtype": "i1"}, "fill": "tozeroy"},
        {"type": "bar", "x": ["a", "b"], "y": [1, 2], "name": "n"},
        {"type": "bar", "y": ["a", "b"], "x": [1, 2], "orientation": "h"},
        {"type": "histogram", "x": [1, 2, 2, None]},
        {"type": "histogram", "x": ["a", "b", "a"]},
        {"type": "pie", "labels": ["a", "b", "a"], "values": [1, 2, 3], "hole": 0.5},
        {"type": "heatmap", "z": [[1, None], [3, 4]], "x": ["a", "b"]},
        {"type": "box", "y": [1, 2, 3], "x": ["a", "a", "b"]},
        {"type": "violin", "x": [1, 2, 3], "name": "v"},
    ],
    ids=lambda trace: trace["type"],
)
def test_common_traces_have_a_preview(trace):
    assert preview(completed({PLOTLY: figure(trace, dict(trace))})).startswith(PNG)


def test_traces_side_by_side_and_on_two_scales_have_a_preview():
    found = figure(
        {"y": [1, 2]},
        {"y": [3, 4], "yaxis": "y2"},
        {"y": [5, 6], "xaxis": "x3", "yaxis": "y3"},
        xaxis={"domain": [0, 0.4]},
        yaxis2={"overlaying": "y", "type": "log"},
        xaxis3={"domain": [0.6, 1], "title": {"text": "t"}, "autorange": "reversed"},
        annotations=[{"xref": "paper", "yref": "paper", "x": 0.2, "y": 1, "text": "left"}],
    )
    assert preview(completed({PLOTLY: found})).startswith(PNG)


@pytest.mark.parametrize("kind", ["scatter3d", "choropleth", "no such kind"])
def test_other_traces_have_a_page_and_no_preview(kind):
    data = completed({PLOTLY: figure({"type": kind}, {"y": [1]})})
    assert "text/html" in data
    assert html_displays.PREVIEW_MIME not in data


def test_a_preview_leaves_the_figures_of_user_code_alone():
    plots = importlib.import_module("matplotlib.pyplot")
    before = plots.get_fignums()
    display_previews.draw_plotly(figure({"y": [1, 2]}))
    assert plots.get_fignums() == before


def test_very_many_points_are_thinned_out():
    along, up = plotly_drawing.read_points(
        {"x": list(range(500_000)), "y": list(range(500_000))}, "x", "y"
    )
    assert len(along) == len(up) <= 20_000


@pytest.mark.parametrize(
    "data",
    [
        {PLOTLY: None},
        {PLOTLY: []},
        {PLOTLY: {"data": 3}},
        {PLOTLY: {"data": [{"y": object()}]}},
        {"application/vnd.vegalite.v6+json": "x"},
        {"text/latex": "$\\nonsense{$"},
        {"text/latex": 3},
        {"image/svg+xml": "<svg"},
    ],
)
def test_whatever_a_display_holds_user_code_goes_on(data):
    completed(data)


def test_a_formula_is_drawn():
    data = completed({"text/latex": "$\\displaystyle \\frac{x}{\\sqrt{2}}$", "text/plain": "x"})
    assert preview(data).startswith(PNG)


@pytest.mark.parametrize(
    "data",
    [
        {"text/latex": "\\begin{tabular}{l}a\\end{tabular}"},
        {"text/latex": "$x$", "text/html": "<table></table>"},
        {"text/latex": "$x$", "image/png": "iVBO"},
        {"text/plain": "x"},
    ],
)
def test_what_needs_no_picture_or_can_have_none_is_left_as_it_is(data):
    assert completed(dict(data)) == data


def test_a_chart_whose_library_is_missing_stays_something_to_be_read(monkeypatch, capsys):
    versions = types.SimpleNamespace(VEGA_VERSION="6", VEGALITE_VERSION="6", VEGAEMBED_VERSION="7")
    made = types.SimpleNamespace(spec_to_html=lambda spec, **_: json.dumps(spec))
    monkeypatch.setitem(sys.modules, "altair", versions)
    monkeypatch.setitem(sys.modules, "altair.utils.html", made)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(html_displays, "_printed_sentences", set())
    for _ in range(2):
        data = completed({"application/vnd.vegalite.v6+json": {"title": "T", "mark": "bar"}})
        assert data["text/html"] == '{"title": "T", "mark": "bar"}'
        assert data[html_displays.TITLE_MIME] == "T"
    assert capsys.readouterr().err.count("network connection") == 1


def test_links_of_a_map_are_written_out():
    library = {"https://x.example/a.js": "a('</script>')", "https://x.example/a.css": "p {}"}
    page = (
        '<script src="https://x.example/a.js"></script>'
        '<link rel="stylesheet" href="https://x.example/a.css"/>'
        '<script src="https://x.example/other.js"></script>'
    )
    assert html_displays.inline_links(library, page) == (
        "<script>a('<\\/script>')</script><style>p {}</style>"
        '<script src="https://x.example/other.js"></script>'
    )


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module that nobody has imported yet."""
    (tmp_path / "met_later.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    yield "met_later"
    sys.modules.pop("met_later", None)


def test_a_hook_runs_once_when_its_module_was_imported(module):
    seen = []
    preloads.after_import({module: lambda found: seen.append(found.value)})
    assert seen == []
    importlib.import_module(module)
    assert seen == [1]
    importlib.reload(sys.modules[module])
    assert seen == [1]


def test_two_hooks_that_wait_for_one_module_both_run(module):
    seen = []
    preloads.after_import({module: lambda found: seen.append("first")})
    preloads.after_import({module: lambda found: seen.append("second")})
    importlib.import_module(module)
    assert sorted(seen) == ["first", "second"]


def test_a_hook_waits_for_the_import_though_somebody_looked_for_the_module(module):
    seen = []
    preloads.after_import({module: lambda found: seen.append(found.value)})
    assert importlib.util.find_spec(module) is not None
    assert importlib.util.find_spec(module) is not None
    importlib.import_module(module)
    assert seen == [1]


def test_a_hook_that_fails_does_not_keep_its_module_from_being_imported(module):
    preloads.after_import({module: lambda found: found.no_such_thing})
    assert importlib.import_module(module).value == 1


def test_a_hook_for_a_module_that_is_there_runs_at_once():
    seen = []
    preloads.after_import({"json": seen.append})
    assert seen == [json]
