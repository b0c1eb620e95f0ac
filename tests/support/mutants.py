"""Mutants of a file: copies with one small fault, that tests should notice."""

from __future__ import annotations

import ast
import copy
import itertools
import random
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

GROUPS = {
    "returns": ("learning/returns.py",),
    "replay": ("learning/replay",),
    "checkpoint": ("core/checkpoint.py",),
    "health": ("health",),
    "statistics": ("report/statistics",),
}
"""What is mutated: files and folders of the package by the name of their group."""

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
NOT_CODE = ("annotation", "returns", "decorator_list", "type_params")
"""Fields of the syntax tree in which a fault changes nothing or ends the import."""


@dataclass(frozen=True)
class Mutant:
    """One fault: the text between two places of a file is replaced."""

    group: str
    path: str
    """The file, from the root of the repository."""
    line: int
    statement: tuple[int, int]
    """The first and the last line of the statement it is in, without the statements inside."""
    start: int
    """Bytes from the beginning of the file."""
    end: int
    before: str
    after: str

    @property
    def name(self) -> str:
        """The fault in one line, the same whenever the file is the same."""
        before, after = (" ".join(text.split()) for text in (self.before, self.after))
        return f"{self.path}:{self.line}: {before} -> {after} (byte {self.start})"

    def applied(self, source: bytes) -> bytes:
        """Return the file with the fault."""
        return source[: self.start] + self.after.encode() + source[self.end :]


def sample(root: Path, count: int, seed: int) -> list[Mutant]:
    """Draw mutants, as many of each group as of any other, and all of a smaller group."""
    generator = random.Random(seed)
    groups = sorted((group_mutants(root, name) for name in GROUPS), key=len)
    chosen: list[Mutant] = []
    for i, mutants in enumerate(groups):
        share = (count - len(chosen)) // (len(groups) - i)
        chosen += generator.sample(mutants, min(share, len(mutants)))
    generator.shuffle(chosen)
    return chosen


def group_mutants(root: Path, group: str) -> list[Mutant]:
    """All mutants of a group."""
    mutants = []
    for place in GROUPS[group]:
        start = root / "src" / "hadamard" / place
        for path in [start] if start.is_file() else sorted(start.rglob("*.py")):
            mutants += file_mutants(group, str(path.relative_to(root)), path.read_bytes())
    return mutants


def file_mutants(group: str, path: str, source: bytes) -> list[Mutant]:
    """All mutants of a file."""
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    mutants = {}
    for node, changed, statement in _changes(ast.parse(source), (1, 1)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        before, after = source[start:end].decode(), ast.unparse(changed)
        if isinstance(node, ast.expr):
            after = f"({after})"
        mutant = Mutant(group, path, node.lineno, statement, start, end, before, after)
        mutants[mutant.name] = mutant
    return list(mutants.values())


def _changes(
    node: ast.AST, statement: tuple[int, int]
) -> Iterator[tuple[Any, ast.AST, tuple[int, int]]]:
    """Every node that a fault replaces, with what it becomes and the lines of its statement."""
    if isinstance(node, ast.JoinedStr):
        return  # places inside it are not those of the file
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    if isinstance(node, ast.stmt):
        body = getattr(node, "body", None)
        statement = node.lineno, body[0].lineno - 1 if body else node.end_lineno or node.lineno
    for fault in _faults(node):
        yield node, fault, statement
    for name, value in ast.iter_fields(node):
        if name in NOT_CODE:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _changes(child, statement)


def _with(node: Any, **fields: Any) -> Any:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _negated(test: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), test)


def _faults(node: ast.AST) -> Iterator[ast.AST]:
    """What a node may become, by its kind."""
    if isinstance(node, ast.expr):
        yield from _expression_faults(node)
    elif isinstance(node, ast.Return):
        if node.value is not None and ast.unparse(node.value) != "None":
            yield ast.Return(ast.Constant(None))
    elif (
        isinstance(node, ast.AugAssign | ast.Raise | ast.Break | ast.Continue | ast.Delete)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
        or (isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name | ast.Tuple))
    ):
        yield ast.Pass()


def _expression_faults(node: ast.expr) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(ops=[operator]):
            for other in COMPARISONS[type(operator)]:
                yield _with(node, ops=[other()])
        case ast.BinOp() if type(node.op) in OPERATORS and not _is_text(node):
            yield _with(node, op=OPERATORS[type(node.op)]())
        case ast.BoolOp():
            yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
        case ast.UnaryOp():
            yield node.operand
        case ast.IfExp():
            yield _with(node, test=_negated(node.test))
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            yield ast.Constant(node.value + 1)
            yield ast.Constant(node.value - 1)
        case ast.Subscript(slice=ast.Slice() as bounds):
            if bounds.lower is not None:
                yield _with(node, slice=_with(bounds, lower=None))
            if bounds.upper is not None:
                yield _with(node, slice=_with(bounds, upper=None))
        case ast.Call():
            # A keyword left out, so that its default holds.
            for keyword in node.keywords:
                yield _with(node, keywords=[other for other in node.keywords if other != keyword])


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(
        isinstance(side, ast.JoinedStr)
        or (isinstance(side, ast.Constant) and isinstance(side.value, str))
        for side in sides
    )


def relevant_tests(mutant: Mutant, known: Mapping[str, Any]) -> set[str]:
    """The tests that run the changed lines.

    Lines that run on import may matter to all tests of the file, and to those of its namesake.
    """
    lines = known["covering"].get(mutant.path, {})
    first, last = mutant.statement
    found = {test for line in range(first, last + 1) for test in lines.get(str(line), [])}
    if not found or "" in found:
        found = {test for tests in lines.values() for test in tests}
        namesake = mutant.path.removeprefix("src/hadamard/").removesuffix(".py")
        folder, _, name = namesake.removesuffix("/__init__").rpartition("/")
        start = f"tests/{folder}/test_{name}"
        found |= {test for test in known["seconds"] if test.startswith(start)}
    return found & known["seconds"].keys()


def in_order(tests: Collection[str], known: Mapping[str, Any], longest: float) -> list[str]:
    """Order tests, fastest first, as many as take at most these seconds.

    The tests of a file that share a slow setup stay together.
    """
    seconds = known["seconds"]
    tests = [name for name in seconds if name in tests]  # in the order in which they were run
    files = Counter[str]()
    for name in tests:
        files[name.partition("::")[0]] += seconds[name]
    costs = {}
    for name in tests:
        file = name.partition("::")[0]
        costs[name] = files[file] if file in known["slow_setups"] else seconds[name]
    order = sorted(tests, key=lambda name: costs[name])
    ends = itertools.accumulate(seconds[name] for name in order)
    return [name for name, end in zip(order, ends, strict=True) if end <= longest]
