"""What libraries draw in a real kernel, as it arrives."""

import json
import pathlib
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.kernel

COMMAND = pathlib.Path(sys.executable).with_name("interpreter-bot")


@pytest.fixture
def shown(tmp_path, short_path):
    """Run cells; returns what each showed, in order, without the ends."""

    def run(*cells, statuses=None):
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "INTERPRETER_BOT_PATHS__DATA": str(tmp_path / "data"),
            "INTERPRETER_BOT_PATHS__RUNTIME": str(short_path),
            # Each imports one library of the stack; it starts sooner without the others.
            "INTERPRETER_BOT_KERNELS__PRELOAD": "[]",
        }
        done = subprocess.run(
            [COMMAND, "exec", "--json", *(f"--cell={cell}" for cell in cells)],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        ends = [line["status"] for line in lines if line["type"] == "finished"]
        assert ends == list(statuses or ["ok"] * len(cells)), done.stderr
        return [
            [one for one in lines if one["cell"] == cell and one["type"] != "finished"]
            for cell in range(len(cells))
        ]

    return run


@pytest.mark.gate
def test_all_figures_of_a_cell_are_shown_in_order_with_its_text(shown):
    (found, after) = shown(
        "import matplotlib.pyplot as plt\n"
        "print('one'); plt.plot([1]); plt.show(); print('two')\n"
        "plt.figure(); plt.plot([2]); plt.figure(); plt.plot([3]); print('three')",
        "print('no figure is left')",
    )
    # On a busy machine, text that was printed together may come in pieces.
    lines = "".join(one["text"] if one["type"] == "stdout" else f"[{one['text']}]" for one in found)
    picture = "[<Figure size 768x576 with 1 Axes>]"
    assert lines == f"one\n{picture}two\nthree\n{picture}{picture}"
    assert [one["type"] for one in after] == ["stdout"]


def test_code_that_fails_shows_what_it_drew_but_no_empty_frame(shown):
    drawn, empty, after, said, current = shown(
        "import matplotlib.pyplot as plt\nplt.plot([1]); plt.figure(); plt.title('b'); 1 / 0",
        "plt.scatter([1, 2], ['a', 'b'], c=['a', 'b'])",
        "plt.title('meant'); plt.show()",
        "plt.gca().text(0.5, 0.5, 'KPI 42'); 1 / 0",
        "first, second = plt.figure(1), plt.figure(2); plt.figure(1)\n"
        "try: 1 / 0\n"
        "except ZeroDivisionError: get_ipython().showtraceback()\n"
        "assert plt.gcf() is first; plt.close(second); plt.plot([1]); plt.show()",
        statuses=("error", "error", "ok", "error", "ok"),
    )
    assert [one["type"] for one in drawn] == ["error", "image"]
    assert [one["type"] for one in empty] == ["error"]
    assert [(one["type"], one["text"]) for one in after] == [("image", "Figure: meant")]
    assert [one["type"] for one in said] == ["error", "image"]
    assert [one["type"] for one in current] == ["error", "image"]


def test_a_plotly_figure_is_one_page_that_opens_offline(shown):
    found = shown(
        "import plotly.express as px; px.line(x=[1, 2], y=[3, 4], title='Lines')",
        "px.bar(x=['a'], y=[1]).show()",
    )
    for outputs in found:
        (page,) = outputs
        assert page["type"] == "html"
        assert "Plotly.newPlot" in page["html"]
        assert not re.findall(r"""(?:src|href)\s*=\s*["']?https?:""", page["html"])
        assert len(page["html"]) < 3_000_000
    assert "<title>Lines</title>" in found[0][0]["html"]


def test_a_formula_and_a_drawing_arrive_as_what_they_are(shown):
    formula, drawing = shown(
        "import sympy; sympy.sqrt(sympy.Symbol('x'))",
        "from IPython.display import SVG; SVG('<svg xmlns=\"http://www.w3.org/2000/svg\"/>')",
    )
    assert [(one["type"], one["latex"]) for one in formula] == [
        ("latex", "$\\displaystyle \\sqrt{x}$")
    ]
    assert [one["mime"] for one in drawing] == ["image/svg+xml"]


def test_a_library_that_cannot_draw_a_display_breaks_nothing(shown):
    (found,) = shown(
        "from IPython.display import display\n"
        "display({'application/vnd.plotly.v1+json': 3, 'text/plain': 'words'}, raw=True)"
    )
    assert [one["text"] for one in found] == ["words"]
