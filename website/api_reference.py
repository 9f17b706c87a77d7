"""Writes docs/api.md, the reference of everstep's public names, from docstrings: python website/api_reference.py"""
import inspect
import os
import re

import docstrings_as_markdown

import everstep
from everstep.show import function_of

PAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs", "api.md")
WIDTH = 100  # of a signature; a longer one has a line for each argument
HEAD = """# API reference

Every public name of the package `everstep`: signature, arguments, errors and an example. The optimizers in
`everstep.optimizers` have [a table](optimizers.md) here and a page each on the documentation site. `everstep --help`
prints the commands. [publish.md](publish.md#4-read-what-it-finds) describes `everstep.testing`.
`website/api_reference.py` makes this page from the docstrings.

"""
GROUPS = [
    ("Find, move and port optimizers", "get names from_native port patched NativeOptimizer"),
    ("Wrappers", "accumulate cautious centralize clip decoupled_weight_decay gradient_noise grokfast l2_penalty "
     "learning_rate_multipliers lookahead loss_scale master_copies moving_average multistage partition rate_decay "
     "sharpness_aware stochastic_weight_averaging"),
    ("Schedules", "CosineDecay CosineDecayRestarts Cyclical ExponentialDecay Hold InverseSquareRoot InverseTimeDecay "
     "Noam OneCycle PiecewiseConstantDecay PolynomialDecay Warmup WarmupStableDecay Schedule AsSchedule"),
    ("Train", "current_rate log_training log_hook averaged assign_averages average_checkpoint scale_loss "
     "enable_multistage disable_multistage lazy_embeddings IndexedSlices"),
    ("Save, load and continue", "capture restore State read_checkpoint write_checkpoint custom_objects register "
     "warm_start WarmStart StateWarning"),
    ("Write an optimizer", "Definition hyper option slot scalar VARIABLE Variable kernel assign total refresh "
     "random_normal random_uniform Wrapper child HyperValue"),
]
# What has no docstring of its own.
PLAIN = {
    "VARIABLE": "The first value of a slot that starts as a copy of its variable.",
    "Variable": """What a rule knows of a variable: the argument of functions that choose variables.

Attributes:
    name: its name, without `:0`.
    shape: a tuple of ints.
    dtype: such as "float32".
    index: its index among the variables that are trained.
    collections: the names of its collections in a TF 1 graph.
    native: the framework's variable.""",
    "HyperValue": "For type checkers: what a hyper takes. A float, an array or tensor, a function without arguments, "
                  "or a schedule.",
}
# Examples for which the source has no room. tests/test_website.py runs them.
EXAMPLES = {
    "VARIABLE": """
>>> import everstep
>>> class Slow(everstep.optimizers.SGD):
...     anchor = everstep.slot(init=everstep.VARIABLE)""",
    "Variable": """
>>> import everstep, numpy
>>> factors = {lambda variable: len(variable.shape) == 1: 0.5}
>>> optimizer = everstep.learning_rate_multipliers(everstep.optimizers.SGD(1.0), factors).bind(numpy)
>>> bias = numpy.zeros(2)
>>> optimizer.apply_gradients([(numpy.ones(2), bias)])
>>> print(bias)
[-0.5 -0.5]""",
    "HyperValue": """
>>> import everstep
>>> everstep.optimizers.SGD(everstep.CosineDecay(0.1, 1000)).learning_rate.decay_steps
1000.0""",
    "assign": """
>>> import numpy, everstep
>>> class Jump(everstep.Definition):
...     def update(self, ops, grad, var, slots, hyper, t):
...         return everstep.assign(-grad), {}
>>> weights = numpy.ones(1)
>>> Jump().bind(numpy).apply_gradients([(numpy.full(1, 3.0), weights)])
>>> print(weights)
[-3.]""",
    "total": """
>>> import numpy, everstep
>>> class Normalized(everstep.Definition):
...     locality = "variable"
...     def measure(self, ops, grad, var, slots, hyper):
...         return {"square": everstep.total(ops.sum(grad * grad))}
...     def update(self, ops, grad, var, slots, hyper, t):
...         return grad / ops.sqrt(hyper.square), {}
>>> first, second = numpy.zeros(1), numpy.zeros(1)
>>> Normalized().bind(numpy).apply_gradients([(numpy.full(1, 3.0), first), (numpy.full(1, 4.0), second)])
>>> print(first, second)
[-0.6] [-0.8]""",
    "child": """
>>> import everstep
>>> everstep.clip(everstep.optimizers.Adam(), norm=1.0).inner.beta_1    # a Wrapper has `inner = child()`
0.9""",
}


def page():
    """Returns the text of docs/api.md."""
    parts = [HEAD + "\n".join("* [{}](#{}): {}".format(title, anchor(title), " · ".join(
        "[{0}](#{1})".format(name, anchor("everstep." + name)) for name in names.split())) for title, names in GROUPS)
        + "\n* [Errors](#errors)\n"]
    for title, names in GROUPS:
        parts += ["## " + title] + [entry(name) for name in names.split()]
    parts += ["## Errors", "`everstep.errors` has them; each is an `EverstepError`, so `except "
              "everstep.errors.EverstepError` catches all."]
    for name, value in sorted(vars(everstep.errors).items()):
        if inspect.isclass(value) and value.__module__ == everstep.errors.__name__ and name not in everstep.__all__:
            bases = ", ".join(base.__name__ for base in value.__bases__)
            parts.append("### {}\n\nA kind of `{}`.\n\n{}".format(
                name, bases.replace(", ", "` and `"), docstrings_as_markdown.markdown(inspect.getdoc(value), None)))
    return re.sub(r"\n{3,}", "\n\n", claimed("\n\n".join(part.strip() for part in parts)))


def anchor(heading):
    """Returns the anchor that GitHub and the site give a heading. `Variable` comes after `VARIABLE`."""
    text = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
    return text + "-1" if heading == "everstep.Variable" else text


def names():
    """Returns all names that have a place on the page."""
    return " ".join(some for _, some in GROUPS).split()


def entry(name):
    """Returns what the page has of a name."""
    value = getattr(everstep, name)
    text = docstring(name)
    parts = ["### everstep." + name]
    if callable(value) and name not in PLAIN:
        parts.append("```python\n{}\n```".format(signature("everstep." + name, value)))
    parts.append(docstrings_as_markdown.markdown(text, None))
    for member, function in sorted(vars(value).items()) if inspect.isclass(value) and name not in PLAIN else []:
        function = getattr(function, "__func__", function)
        if inspect.isfunction(function) and not member.startswith("_") and function.__doc__:  # not one of a base
            parts += ["#### {}.{}".format(name, member), "```python\n{}\n```".format(signature(member, function)),
                      docstrings_as_markdown.markdown(inspect.getdoc(function), None)]
    return "\n\n".join(parts)


def docstring(name):
    """Returns the docstring of a public name, with the example of its class if it is a function that makes one."""
    value = getattr(everstep, name)
    text = PLAIN.get(name) or inspect.getdoc(value)
    text += "\n" + EXAMPLES[name] if name in EXAMPLES else ""
    made = [each for each in map(everstep.optimizers.__dict__.get, everstep.optimizers.__all__)
            if function_of(each) is value]
    if made and ">>>" not in text:
        text += "\n\n>>>" + inspect.getdoc(made[0]).partition("\n>>>")[2]
    return text


def signature(name, function):
    """Returns a signature without addresses of objects, on several lines if it is long."""
    try:
        found = inspect.signature(function)
    except ValueError:
        return name + "(...)"
    parameters = [str(each) for each in found.parameters.values() if each.name not in ("self", "cls")]
    if "*" in str(found) and any(each.kind == each.KEYWORD_ONLY for each in found.parameters.values()) and not any(
            each.kind == each.VAR_POSITIONAL for each in found.parameters.values()):
        first = [each for each in found.parameters.values() if each.name not in ("self", "cls")]
        parameters.insert([each.kind for each in first].index(inspect.Parameter.KEYWORD_ONLY), "*")
    parameters = [re.sub(r"<(?:[\w.]+ )?object(?: [^>]*)? at 0x[0-9a-f]+>", "...", each) for each in parameters]
    short = "{}({})".format(name, ", ".join(parameters))
    return short if len(short) <= WIDTH else "{}(\n    {},\n)".format(name, ",\n    ".join(parameters))


def claimed(text):
    """Returns the page with a comment above each block that says where it runs; matrix/blocks.py reads them."""
    return re.sub(r"^( *)```(python|pycon)$", lambda match: "{}<!-- not run: {} -->\n{}".format(
        match.group(1), "tests/test_doctests.py runs the docstring" if match.group(2) == "pycon"
        else "a signature, or a part of a docstring", match.group()), text, flags=re.M) + "\n"


if __name__ == "__main__":
    with open(PAGE, "w", encoding="utf-8") as file:
        file.write(page())
