"""Directives for what the code itself knows: the parts of the manual that need not be kept up to date."""

from __future__ import annotations

import ast
import os
import re
import runpy
import sys
from collections.abc import Collection, Iterator
from contextlib import redirect_stdout, suppress
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from limpyd_jobs import Worker
from limpyd_jobs.commandline import parameters

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "limpyd_jobs"
MODULES_OF_COMMANDS = {"limpyd-jobs": "jobs", "limpyd-jobs-worker": "worker"}


class Verbs(SphinxDirective):
    """The table of the verbs, from the headers of the scripts."""

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(runpy.run_path(str(ROOT / "scripts" / "states.py"))["table"]())


class Help(SphinxDirective):
    """What a command answers to ``--help``."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        text = f"$ {self.arguments[0]} --help\n{help_of(*self.arguments[0].split())}"
        return [nodes.literal_block(text, text, language="none")]


def help_of(command: str, *arguments: str) -> str:
    """Have the command answer in this process: to start one for each would be a third of building the manual."""
    main = import_module(f"limpyd_jobs.scripts.{MODULES_OF_COMMANDS[command]}").main
    with (
        patch.object(sys, "argv", [command, *arguments, "--help"]),
        patch.dict(os.environ, COLUMNS="80"),
        redirect_stdout(StringIO()) as output,
        suppress(SystemExit),
    ):
        main()
    return output.getvalue()


class Parameters(SphinxDirective):
    """The parameters of a worker, with their defaults and options, in the groups that the help shows."""

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes("\n".join(lines_of_parameters()))


def lines_of_parameters() -> Iterator[str]:
    for group in parameters.GROUPS:
        yield from ("", f"**{group}**", "")
        for name, row in Worker._rows.items():
            if row.group == group:
                yield f"``{name}`` = ``{shown(row.default)}``"
                yield f"    {row.about} {options_of(name, row)}"


def shown(default: Any) -> str:
    return default.__name__ if isinstance(default, type) else repr(default).replace("'", '"')


def options_of(name: str, row: parameters.Row) -> str:
    flags = [flag for make in row.options for flag in make(name, row)._long_opts]
    return f"On the command line: {', '.join(f'``{flag}``' for flag in flags)}."


class Metrics(SphinxDirective):
    """The metrics for Prometheus, from their catalogue."""

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes("\n".join(lines_of_metrics()))


def lines_of_metrics() -> Iterator[str]:
    rows = runpy.run_path(str(PACKAGE / "contrib" / "prometheus" / "catalogue.py"))["ROWS"]
    yield from (".. list-table::", "   :header-rows: 1", "   :widths: 35 10 20 35", "")
    yield from _row("metric", "type", "labels", "what it is")
    for row in rows:
        labels = ", ".join(f"``{label}``" for label in row.labels)
        yield from _row(f"``{row.full_name}``", row.kind, labels, row.about)


def _row(first: str, *others: str) -> Iterator[str]:
    yield f"   * - {first}"
    for each in others:
        yield f"     - {each}"


class Modules(SphinxDirective):
    """The modules of some folders of the package, or of all ``but`` some, each with the first paragraph of its
    docstring."""

    optional_arguments, final_argument_whitespace = 1, True
    option_spec: ClassVar = {"but": str.split}

    def run(self) -> list[nodes.Node]:
        folders = [PACKAGE / name for name in self.arguments[0].split()] if self.arguments else [PACKAGE]
        lines = (line for folder in folders for line in lines_of(folder, self.options.get("but", ())))
        return self.parse_text_to_nodes("\n".join(lines))


def lines_of(directory: Path, but: Collection[str] = ()) -> Iterator[str]:
    """Describe a package in reStructuredText: its own docstring, then its modules, then the packages in it."""
    modules = sorted(directory.glob("*.py"), key=lambda path: (path.name != "__init__.py", path.name))
    yield from (".. list-table::", "   :widths: 30 70", "")
    for path in modules:
        text = summary(path)
        if text:
            name = path.parent if path.name == "__init__.py" else path
            yield f"   * - ``{name.relative_to(ROOT)}{'/' if name.is_dir() else ''}``"
            yield f"     - {text}"
    yield ""
    for package in sorted(path.parent for path in directory.glob("*/__init__.py") if path.parent.name not in but):
        yield from lines_of(package)


def summary(path: Path) -> str:
    paragraph = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition("\n\n")[0]
    return as_literals(" ".join(paragraph.split()))


def as_literals(text: str) -> str:
    """Turn the `names` of docstrings into literals of reStructuredText."""
    return re.sub("`+", "``", text)


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("verbs", Verbs)
    app.add_directive("help", Help)
    app.add_directive("metrics", Metrics)
    app.add_directive("modules", Modules)
    app.add_directive("parameters", Parameters)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
