"""Every handler says in its signature what it asks of its broker; there is nothing else that it gets."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from broker_embedded.server import apis
from broker_embedded.server.requests import services
from broker_embedded.server.requests.registry import TABLE, Api

FILES = Path(apis.__file__).parent
PIECES = {name for name in vars(services) if name.startswith("Has")}


def test_a_broker_has_every_piece_that_a_handler_may_name() -> None:
    assert {base.__name__ for base in services.Services.__bases__} - {"Protocol"} == PIECES


@pytest.mark.parametrize("served", TABLE.values(), ids=lambda api: api.key.name.lower())
def test_a_handler_names_what_it_needs_and_not_a_broker(served: Api) -> None:
    tree = ast.parse((FILES / f"{served.key.name.lower()}.py").read_text())
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    (handle,) = (node for node in functions if node.name == "handle")
    contexts = [
        ast.unparse(argument.annotation)
        for function in functions
        for argument in function.args.args
        if argument.arg == "ctx" and argument.annotation is not None
    ]
    assert handle.args.args[0].arg == "ctx"
    assert contexts
    assert all(context.startswith("RequestContext[") and "Services" not in context for context in contexts)
