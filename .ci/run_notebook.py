"""Run a notebook's cells one after the other in this process, without Jupyter.

python .ci/run_notebook.py examples/quickstart.ipynb STEPS=8192

Words such as STEPS=8192 replace the value that a cell gives to that name, which must be there.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path


def cells(notebook: Path, values: dict[str, str]) -> list[str]:
    """Return the code of the cells, with other values of some names."""
    text = json.loads(notebook.read_text(encoding="utf-8"))
    code = ["".join(cell["source"]) for cell in text["cells"] if cell["cell_type"] == "code"]
    for name, value in values.items():
        pattern = re.compile(rf"^{re.escape(name)} = .*$", re.MULTILINE)
        if not any(pattern.search(cell) for cell in code):
            raise SystemExit(f"{notebook} gives no value to {name}")
        code = [pattern.sub(f"{name} = {value}", cell) for cell in code]
    return code


def main() -> None:
    """Run the notebook in the present folder."""
    notebook, *words = sys.argv[1:]
    names: dict[str, object] = {"__name__": "__main__"}
    for number, code in enumerate(cells(Path(notebook), dict(w.split("=") for w in words)), 1):
        exec(compile(code, f"{notebook}, code cell {number}", "exec"), names)


if __name__ == "__main__":
    main()
