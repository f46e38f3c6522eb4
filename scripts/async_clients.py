"""Writes the asyncio clients from the blocking ones.

    python -m scripts.async_clients

rewrites the modules of `penstock/client/application/aio` that say so at their top. Each has a class with the methods of
the blocking class: the same signatures and texts, examples that wait, and bodies that have the blocking client do the
work. What asyncio does differently is in a base class, which is written by hand. A test keeps the modules in step.
"""

from __future__ import annotations

import ast
import doctest
import io
import subprocess
import sys
import textwrap
import tokenize
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
PACKAGE = "penstock.client.application"
NOTE = "Generated from {module} by scripts/async_clients.py; edit that instead."
# Clients do not wait for these: they only look at what is there.
IMMEDIATE = {"acknowledge", "assignment", "ended"}
# Methods that return or take librdkafka's own objects, and those that asyncio does not need.
BLOCKING_ONLY = {"group_metadata", "librdkafka", "positions", "send_offsets", "serve_reports"}
# The records of a call that is canceled stay for the next one: what is fetched is not yet handed out.
HANDED_OUT = {"poll": ("self._sync.poll(0)", "None"), "poll_many": ("self._sync.poll_many(max_records, 0)", "[]")}
# What texts of the blocking clients contain that is not true of the others.
OTHER_WORDS = {"The functions are called from `poll`.": "The functions are called in another thread."}


@dataclass(frozen=True, slots=True)
class Client:
    """A client class: its module, the base class with what is written by hand, and modules of inherited methods."""

    name: str
    module: str
    base: str
    inherited: tuple[str, ...] = ()
    generic: str = ""

    @property
    def path(self) -> Path:
        """The generated module."""
        return SOURCE.joinpath(*PACKAGE.split("."), "aio", f"{self.module}.py")


CLIENTS = (
    Client("Admin", "admin", "AsyncAdmin", ("access",)),
    Client("Consumer", "consumer", "Polling", generic="V"),
    Client("Producer", "producer", "Sending"),
    Client("ShareConsumer", "share", "Polling", generic="V"),
)
CLASS_NAMES = {client.name for client in CLIENTS}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Function = ast.FunctionDef | ast.AsyncFunctionDef


def main() -> None:
    """Rewrite the modules."""
    for client in CLIENTS:
        client.path.write_text(generated(client))


def generated(client: Client) -> str:
    """The text of a client's module."""
    return _formatted(_Writer(client).module())


def _parsed(module: str) -> ast.Module:
    return ast.parse(SOURCE.joinpath(*PACKAGE.split("."), *f"{module}.py".split("/")).read_text())


def _class_of(tree: ast.Module, name: str | None = None) -> ast.ClassDef:
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return next(node for node in classes if node.name == name) if name is not None else classes[-1]


@dataclass(slots=True)
class _Writer:
    client: Client
    used: set[str] = field(default_factory=set)

    def module(self) -> str:
        client = self.client
        trees = {module: _parsed(module) for module in (client.module, *client.inherited)}
        blocking = _class_of(trees[client.module], client.name)
        methods = [node for node in blocking.body if isinstance(node, FUNCTIONS)]
        for module in client.inherited:
            methods += [node for node in _class_of(trees[module]).body if isinstance(node, FUNCTIONS)]
        by_hand = _methods_by_hand(client.base)
        body = [self._docstring(blocking, _short(client, ast.get_docstring(blocking) or ""), methods)]
        body += self._constructor(methods)
        for method in methods:
            is_left_out = method.name in by_hand | BLOCKING_ONLY
            if not is_left_out and (not method.name.startswith("_") or method.name == "__iter__"):
                body.append(self._method(method, methods))
        generic = f", Generic[{client.generic}]" if client.generic else ""
        text = f"class {client.name}({client.base}{generic}):\n" + textwrap.indent("\n\n".join(body), "    ")
        header = f'"""`{client.name}` for asyncio.\n\n{NOTE.format(module=f"{PACKAGE}.{client.module}")}\n"""\n\n'
        future = "from __future__ import annotations\n\n"
        variable = f'\n{client.generic} = TypeVar("{client.generic}")\n\n' if client.generic else ""
        return header + future + self._imports(text + variable, trees) + variable + "\n\n" + text + "\n"

    def _imports(self, text: str, trees: dict[str, ast.Module]) -> str:
        names = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
        found = [f"from {PACKAGE}.aio.{_BASES[self.client.base]} import {self.client.base}"]
        found += ["from typing import Generic, TypeVar"] if self.client.generic else []
        blocking = f"Sync{self.client.name}"
        if blocking in names:
            found.append(f"from {PACKAGE}.{self.client.module} import {self.client.name} as {blocking}")
        if "AsyncIterator" in names:
            found.append("from collections.abc import AsyncIterator")
        for module, tree in trees.items():
            for node in tree.body:
                if isinstance(node, ast.ImportFrom) and node.module != "__future__":
                    wanted = [alias for alias in node.names if (alias.asname or alias.name) in names]
                    found += [f"from {node.module} import {ast.unparse(alias)}" for alias in wanted]
                else:
                    for name in _defined(node) & names - CLASS_NAMES - {self.client.generic}:
                        found.append(f"from {PACKAGE}.{module} import {name}")
        return "\n".join(dict.fromkeys(found)) + "\n"

    def _constructor(self, methods: list[Function]) -> list[str]:
        if self.client.base == "Sending":
            # Its blocking producer has other settings.
            return []
        client = self.client
        written = [ast.unparse(each) for each in methods if each.name == "__init__" and _is_overload(each)]
        last = [method for method in methods if method.name == "__init__"][-1]
        kind = f"Sync{client.name}" + (f"[{client.generic}]" if client.generic else "")
        public = [
            node.targets[0].attr
            for node in last.body
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Attribute)
            and not node.targets[0].attr.startswith("_")
        ]
        if written:
            signature, arguments = (
                "self, connection: Connection | str | None = None, **options: Any",
                "connection, **options",
            )
        else:
            signature, arguments = ast.unparse(last.args), _passed(last)
        lines = [f"def __init__({signature}) -> None:"]
        lines += [f"    self._sync: {kind} = Sync{client.name}({arguments})", "    super().__init__(self._sync)"]
        lines += [f"    self.{name} = self._sync.{name}" for name in public]
        return [*written, "\n".join(lines)]

    def _method(self, method: Function, methods: list[Function]) -> str:
        text = ast.get_docstring(method) or ""
        name = method.name
        returns = ast.unparse(method.returns) if method.returns is not None else "None"
        if name == "__iter__":
            head = f"async def __aiter__(self) -> {returns.replace('Iterator', 'AsyncIterator')}:"
            body = [ast.unparse(_waiting(node, {"self"}, methods)) for node in method.body[1:]]
        elif any(isinstance(each, ast.Name) and each.id == "property" for each in method.decorator_list):
            head = f"@property\ndef {name}(self) -> {returns}:"
            body = [f"return self._sync.{name}"]
        else:
            is_immediate = name in IMMEDIATE
            prefix = "" if is_immediate else "async "
            head = f"{prefix}def {name}({ast.unparse(method.args)}) -> {returns}:"
            give = "" if returns == "None" else "return "
            if name in HANDED_OUT:
                records, nothing = HANDED_OUT[name]
                body = ["await self._fill(timeout_s)", f"return {records} if self._sync.has_buffered else {nothing}"]
            elif name == "close":
                body = ["await self._close()"]
            elif is_immediate:
                body = [f"{give}self._sync.{name}({_passed(method)})"]
            else:
                passed = _passed(method)
                body = [f"{give}await self._run(self._sync.{name}{', ' if passed else ''}{passed})"]
        lines = [head, textwrap.indent(self._docstring(method, text, methods), "    ")]
        return "\n".join([*lines, *(textwrap.indent(each, "    ") for each in body)])

    def _docstring(self, node: ast.AST, text: str, methods: list[Function]) -> str:
        del node
        for words, others in OTHER_WORDS.items():
            text = text.replace(words, others)
        prose, example = _waiting_example(text, methods)
        if not example:
            return f'"""{prose}"""'
        return f'"""{prose}\n\n{example}\n"""'


_BASES = {"AsyncAdmin": "base", "Polling": "base", "Sending": "sending"}


def _methods_by_hand(base: str) -> set[str]:
    """The methods of a base class."""
    tree = _parsed(f"aio/{_BASES[base]}")
    return {node.name for node in _class_of(tree, base).body if isinstance(node, FUNCTIONS)}


def _defined(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Assign):
        return {target.id for target in node.targets if isinstance(target, ast.Name)}
    return {node.target.id} if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else set()


def _is_overload(method: Function) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "overload" for each in method.decorator_list)


def _passed(method: Function) -> str:
    """The arguments with which a method passes on its own."""
    args = method.args
    passed = [each.arg for each in args.args if each.arg != "self"]
    passed += [f"*{args.vararg.arg}"] if args.vararg is not None else []
    return ", ".join([*passed, *(f"{each.arg}={each.arg}" for each in args.kwonlyargs)])


def _short(client: Client, text: str) -> str:
    """The first sentence of a class's text, and its example."""
    sentence = text.partition(".")[0]
    example = text[text.index(">>>") :]
    return f"{sentence}.\n\nSee `penstock.{client.name}`, whose options it takes.\n\n{example}"


def _returns_none(method: Function) -> bool:
    return method.returns is None or ast.unparse(method.returns) == "None"


class _Wait(ast.NodeTransformer):
    """Awaits the methods of clients, and what is managed or iterated."""

    def __init__(self, clients: set[str], methods: list[Function]) -> None:
        self._clients = clients
        self._awaited = {
            method.name
            for method in methods
            if method.name not in IMMEDIATE
            and not any(isinstance(each, ast.Name) and each.id == "property" for each in method.decorator_list)
        }

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        function = node.func
        if isinstance(function, ast.Name) and function.id in CLASS_NAMES:
            node.func = ast.parse(f"penstock.aio.{function.id}", mode="eval").body
        elif isinstance(function, ast.Attribute) and function.attr in self._awaited:
            owner = function.value
            if (isinstance(owner, ast.Name) and owner.id in self._clients) or isinstance(owner, ast.Call):
                return ast.Await(node)
        return node

    def visit_With(self, node: ast.With) -> ast.AST:
        for item in node.items:
            if isinstance(item.optional_vars, ast.Name):
                self._clients.add(item.optional_vars.id)
        self.generic_visit(node)
        for item in node.items:
            if isinstance(item.context_expr, ast.Await):
                item.context_expr = item.context_expr.value
        return ast.AsyncWith(node.items, node.body)

    def visit_For(self, node: ast.For) -> ast.AST:
        is_client = isinstance(node.iter, ast.Name) and node.iter.id in self._clients
        self.generic_visit(node)
        return ast.AsyncFor(node.target, node.iter, node.body, node.orelse) if is_client else node


def _waiting(node: ast.stmt, clients: set[str], methods: list[Function]) -> ast.stmt:
    found = _Wait(clients, methods).visit(deepcopy(node))
    assert isinstance(found, ast.stmt)
    return ast.fix_missing_locations(found)


def _waiting_example(text: str, methods: list[Function]) -> tuple[str, str]:
    """A docstring's prose, and its example as a coroutine that is run."""
    prose, _, _ = text.partition(">>>")
    examples = doctest.DocTestParser().get_examples(text)
    if not examples:
        return prose.strip(), ""
    module = ast.parse("".join(example.source for example in examples))
    wanted = "".join(example.want for example in examples)
    by_name = {method.name: method for method in methods}
    _rename_created(module)
    clients = {
        node.targets[0].id
        for node in ast.walk(module)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Name)
        and node.value.func.id in CLASS_NAMES
    }
    waits = _Wait(clients, methods)
    module = waits.visit(module)
    shown = [node for node in ast.walk(module) if isinstance(node, ast.Expr) and _has_value(node.value, by_name)]
    shown.sort(key=lambda node: node.lineno)
    if wanted and len(shown) == 1 and _ends(module.body[-1], shown[0]):
        _replace(module, shown[0], ast.Return(shown[0].value))
    elif wanted:
        for node in shown:
            node.value = ast.Call(ast.Name("print"), [node.value], [])
    body = _quoted(ast.unparse(ast.fix_missing_locations(module)))
    lines = [">>> async def main():", *(f"...     {line}" for line in body.splitlines()), ">>> asyncio.run(main())"]
    return prose.strip(), "\n".join([*lines, *wanted.splitlines()])


def _rename_created(module: ast.Module) -> None:
    """Topics that an example creates have names of their own: the blocking client's example has created those."""
    created = {
        node.args[0].value
        for node in ast.walk(module)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "create_topic"
        and isinstance(node.args[0], ast.Constant)
    }
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and node.value in created:
            node.value = f"async-{node.value}"


def _has_value(node: ast.expr, methods: dict[str, Function]) -> bool:
    call = node.value if isinstance(node, ast.Await) else node
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in methods:
        return not _returns_none(methods[call.func.attr])
    return True


def _ends(last: ast.stmt, wanted: ast.stmt) -> bool:
    """Whether a statement is the last that is executed."""
    while isinstance(last, ast.AsyncWith | ast.With):
        last = last.body[-1]
    return last is wanted


def _replace(module: ast.Module, old: ast.stmt, new: ast.stmt) -> None:
    for body in _bodies(module):
        if old in body:
            body[body.index(old)] = new


def _bodies(module: ast.Module) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(module):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            yield body


def _quoted(code: str) -> str:
    """Code with double quotes, as everywhere."""
    tokens = []
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        text = token.string
        if token.type == tokenize.STRING and text.startswith("'") and '"' not in text:
            text = f'"{text[1:-1]}"'
        tokens.append(token._replace(string=text))
    return tokenize.untokenize(tokens)


def _formatted(text: str) -> str:
    for words in (["check", "--quiet", "--fix", "--select", "I,F401"], ["format", "--quiet"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *words, "--stdin-filename", "src/penstock/client/application/aio/x.py", "-"],
            input=text,
            capture_output=True,
            text=True,
            cwd=SOURCE.parent,
            check=True,
        )
        text = done.stdout
    return text


if __name__ == "__main__":
    main()
