"""Names every public function of a module that lacks an annotation; exit 0 when there is none.

The module is named with dots: a file that a criterion names could not be changed by the agent."""

import ast
import sys
from pathlib import Path


def lacking(function):
    """What is not annotated: parameters by name, and "return"."""
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    missing = [one.arg for one in every if one.annotation is None and one.arg != "self"]
    return missing + ([] if function.returns else ["return"])


path, found = Path(*sys.argv[1].split(".")).with_suffix(".py"), []
for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
        if missing := lacking(node):
            found.append(f"{path}:{node.lineno}: {node.name} lacks {', '.join(missing)}")
print("\n".join(found))
sys.exit(bool(found))
