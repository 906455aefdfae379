"""Imports go down without circles, and importing a module does nothing."""

import ast
from graphlib import TopologicalSorter

from tests.processes import ROOT

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in (ROOT / "es").rglob("*.py")
}
ENTRY_POINTS = {"main", "train", "test", "model", "envs", "compare", "sweep"}
# What this package still does when it is imported.
EFFECTS = {"es.environments.preload"}


def imported(tree: ast.AST) -> set[str]:
    """Return the modules of the package that the nodes import when they are run."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (names & MODULES.keys()) or {node.module}
        else:
            found |= imported(node)
    return found


def test_imports_have_no_circle_and_use_no_entry_point():
    graph = {name: imported(ast.parse(path.read_text())) for name, path in MODULES.items()}
    for name, modules in graph.items():
        assert not modules & ENTRY_POINTS, name
    inside = {name: modules & MODULES.keys() - {name} for name, modules in graph.items()}
    list(TopologicalSorter(inside).static_order())  # raises CycleError


def test_no_module_does_anything_when_it_is_imported():
    found = set()
    for name, path in MODULES.items():
        for node in ast.parse(path.read_text()).body:
            is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            changes = isinstance(target, ast.Attribute | ast.Subscript)
            is_call = isinstance(node, ast.Expr | ast.For | ast.While | ast.With | ast.Try)
            if changes or (is_call and not is_docstring):
                found.add(name)
    assert found <= EFFECTS


def test_the_top_has_no_modules_but_the_entry_points():
    assert {path.stem for path in ROOT.glob("*.py")} == ENTRY_POINTS
