"""Which packages modules come from: a guess, since only an index knows the modules of packages.

It is offered and seldom acted upon: models invent names, and others register them. Pure.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from typing import Final

from packaging import utils

from interpreter_bot import errors

_KNOWN: Final = {
    "Bio": "biopython",
    "Crypto": "pycryptodome",
    "OpenSSL": "pyopenssl",
    "PIL": "pillow",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "fitz": "pymupdf",
    "git": "gitpython",
    "igraph": "python-igraph",
    "jose": "python-jose",
    "jwt": "pyjwt",
    "magic": "python-magic",
    "mpl_toolkits": "matplotlib",
    "pptx": "python-pptx",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "umap": "umap-learn",
    "yaml": "pyyaml",
}
# Their names tell nothing of whoever looks for them.
_WIDELY_USED: Final = """
altair anthropic arch astropy asyncpg bokeh boto3 catboost chardet click contextily cryptography
cvxpy dash dask datasets deltalake duckdb emcee faker fastapi fastparquet feedparser fiona flask
folium gensim geopandas geopy graphviz great-expectations hdbscan holidays html5lib httpx
hvplot hypothesis imageio imbalanced-learn ipywidgets jax jinja2 jsonschema kaleido keras
librosa lifelines lightgbm loguru lxml markdown matplotlib missingno mlxtend more-itertools
mplfinance mutagen networkx nltk numba numpyro openai openpyxl optuna orjson osmnx pandas
pandera patsy pdfplumber pendulum pingouin pint plotly plotnine polars praw prophet psycopg
pyarrow pycountry pydantic pymc pymongo pypdf pyproj pytest pyvis qrcode rapidfuzz rasterio
redis reportlab requests rich rtree scipy seaborn selenium sentence-transformers shap shapely
spacy sqlalchemy sqlglot squarify statsmodels streamlit sympy tabulate tensorflow textblob
textdistance tiktoken tokenizers torch torchvision tqdm transformers trimesh unidecode vaex
vega-datasets wordcloud xarray xgboost xlrd xlsxwriter xlwt yfinance zarr
"""
_MODULE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,60}")
# As pandsa and pandas are; geopandas and pandas, or numpyro and numpy, are not.
_LIKENESS: Final = 0.8
_MORE_LETTERS: Final = 1
_LIKE: Final = (
    "Nothing is offered for {module}: it is written much like {other}, which is installed. "
    "If it is meant: %pip install {package}"
)
_THERE: Final = "{package} {version} is installed, and has no module {module}."


def package_of(module: str, held: dict[str, str]) -> str:
    """Return the package that a missing module probably comes from, as indexes write it.

    Args:
        module: its first name; anybody's.
        held: versions of what is there, by name.

    Raises:
        PackagesError: none can be offered; the sentence says why.
    """
    if not _MODULE.fullmatch(module):
        raise errors.PackagesError("That is no name of a module.")
    package = utils.canonicalize_name(_KNOWN.get(module, module))
    if package in held:
        version = held[package]
        raise errors.PackagesError(_THERE.format(package=package, version=version, module=module))
    if module not in _KNOWN:
        near = [one for one in held if abs(len(one) - len(package)) <= _MORE_LETTERS]
        for other in difflib.get_close_matches(package, near, 1, _LIKENESS):
            raise errors.PackagesError(_LIKE.format(module=module, other=other, package=package))
    return package


def is_public(module: str, package: str, allowed: Collection[str]) -> bool:
    """Return whether an index may hear a name without a person's leave: all know it anyway.

    Args:
        module: that is missing.
        package: that it probably comes from.
        allowed: the operator's list, which may name it in full.
    """
    return package in _WIDELY_USED.split() or is_sure(module, package, allowed)


def is_sure(module: str, package: str, allowed: Collection[str]) -> bool:
    """Return whether the guess may be acted upon without a person.

    Args:
        module: that is missing.
        package: that it probably comes from.
        allowed: the operator's list, which may name it in full.
    """
    return module in _KNOWN or package in allowed
