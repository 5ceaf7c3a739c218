"""How Sphinx builds the manual: ``python -m sphinx -W -n docs docs/_build``."""

import sys
from importlib.metadata import version as version_of
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # generated.py

project = "redis-limpyd-jobs"
copyright = "the authors of redis-limpyd-jobs"
release = version = version_of(project)

extensions = ["sphinx.ext.autodoc", "sphinx.ext.autosectionlabel", "sphinx.ext.napoleon", "generated"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"{project} {release}"
highlight_language = "none"
# Titles of pages and of their sections must be unique, as :ref:`Title` finds them.
autosectionlabel_maxdepth = 2
# The types in docstrings are prose, `names` in them are literals.
nitpick_ignore_regex = [("py:.*", ".*")]
default_role = "literal"
autodoc_typehints = "none"
