"""Tables and text are escaped."""

from __future__ import annotations

import pytest

from tests.support.report import check_tex

pytest.importorskip("matplotlib")
from hadamard.report.pages.tables import Table, escape_tex


def test_tables_and_text_are_escaped() -> None:
    assert escape_tex("\\{}&%$#_~^<>") == (
        r"\textbackslash{}\{\}\&\%\$\#\_\textasciitilde{}\textasciicircum{}"
        r"\textless{}\textgreater{}"
    )
    table = Table(
        "odd", "50 % & more", {"a_b": ["<1 · 2 – 3×"]}, {"a": [float("nan")], "b": ["x,y"]}
    )
    check_tex(table.tex())
    assert table.csv() == 'a,b\n,"x,y"\n'
    assert "&lt;1" in table.html()
