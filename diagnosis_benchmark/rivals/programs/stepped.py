"""`stepped.py TOOL PROGRAM`: a program with each turn of its training loop made a step of a tool's.

This is what the tool's documentation asks a user to write into the loop; here it is put in as the program is read, so
that every program gets it and line numbers stay. The training loop is the innermost one that calls `.backward()`, or a
function of the program's that does.
"""

import ast
import sys
from contextlib import contextmanager
from pathlib import Path

import torch

LOOPS = (ast.For, ast.While)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
STEP = "_step_of_the_tool"


def children(node):
    """Of a node, without what functions that are defined in it do."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
            yield child


def trains(node, methods, functions):
    """Whether a call in it goes backward, outside of loops that are in it."""
    if isinstance(node, ast.Call):
        called = node.func
        if isinstance(called, ast.Attribute) and called.attr in methods:
            return True
        if isinstance(called, ast.Name) and called.id in functions:
            return True
    return any(trains(child, methods, functions) for child in children(node) if not isinstance(child, LOOPS))


def training_loops(tree):
    """The loops each turn of which is a step."""
    methods, functions = {"backward"}, set()
    defined = [(of, node) for of in ast.walk(tree) for node in ast.iter_child_nodes(of) if isinstance(node, FUNCTIONS)]
    updates = []
    for _ in range(len(defined)):
        for of, node in defined:
            if node not in updates and trains(ast.Module(node.body, []), methods, functions):
                updates.append(node)
                (methods if isinstance(of, ast.ClassDef) else functions).add(node.name)
    # A loop within such a function is a part of one step: over optimizers, say.
    within = {id(inner) for node in updates for inner in ast.walk(node)}
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, LOOPS) and id(node) not in within and trains(ast.Module(node.body, []), methods, functions)
    ]
    return [loop for loop in found if not any(other is not loop and other in ast.walk(loop) for other in found)]


def model_of(names):
    """The largest net that the loop's function, its `self` or the program knows by a name."""
    known = [*names.values(), *vars(names.get("self", object)).values(), *vars(sys.modules["__main__"]).values()]
    nets = [each for each in known if isinstance(each, torch.nn.Module)]
    return max(nets, key=lambda net: sum(each.numel() for each in net.parameters()), default=None)


def traceml_steps():
    import traceml_ai as traceml

    traceml.init(mode="auto")
    model = []

    @contextmanager
    def step(names):
        if not model:
            model.append(model_of(names))
        with traceml.trace_step(model[0]):
            yield

    return step, lambda: None


def gpu_idle_steps():
    profiler = torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=0, warmup=10, active=30, repeat=1),
    )
    profiler.start()
    trace = Path.cwd() / "trace.json"

    @contextmanager
    def step(_names):
        yield
        profiler.step()

    def end():
        profiler.stop()
        profiler.export_chrome_trace(str(trace))

    return step, end


def main():
    tool, program = sys.argv[1], Path(sys.argv[2])
    tree = ast.parse(program.read_text(), str(program))
    loops = training_loops(tree)
    if not loops:
        sys.exit(f"no training loop is found in {program}")
    for loop in loops:
        context = ast.parse(f"{STEP}(locals())", mode="eval").body
        loop.body = [ast.copy_location(ast.With([ast.withitem(context)], loop.body), loop)]
    step, end = {"traceml": traceml_steps, "gpu-idle": gpu_idle_steps}[tool]()
    sys.argv, sys.path[0] = [str(program)], str(program.parent)
    module = sys.modules["__main__"]
    module.__file__ = str(program)
    vars(module)[STEP] = step
    exec(compile(ast.fix_missing_locations(tree), str(program), "exec", dont_inherit=True), vars(module))
    end()


if __name__ == "__main__":
    main()
