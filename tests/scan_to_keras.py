"""Compares each line that `everstep scan --to keras --write` writes with the optimizer that was there.

    python tests/scan_to_keras.py edit FOLDER places.json                 in a cell with the parser, such as py313-numpy
    python tests/scan_to_keras.py originals places.json old.json          in a cell of TF 1.15, which has Keras 2.3 too
    python tests/scan_to_keras.py compare places.json old.json            in a cell of Keras 3

The first command takes each call out of the old file, and each line out of the new file. The second makes the original
by its call and trains a network of two layers on its own API; its definition is what from_native says there. The third
does the same on Keras 3 with the line, and with that definition. Names that a call takes from its program are 0.125, or
as SET says. docs/scan.md has the results.
"""
from __future__ import absolute_import, division, print_function

import ast
import importlib
import io
import json
import os
import shutil
import sys
import tempfile
from collections import OrderedDict

import numpy as np

STEPS = 24
ON = {"Keras": "2.3", "TF": "1.15"}
SET = {"name": "given", "learning_rate_power": -0.5, "use_locking": False, "use_nesterov": True, "nesterov": True}


# Of files, where the parser is

def edit(folder, path):
    """Writes [{place, what, original, line, imports}] of all packages in a folder."""
    from everstep.scan import edits
    from everstep.scan.scanner import scan

    copy, found = tempfile.mkdtemp(), []
    for package in sorted(os.listdir(folder)):
        new = os.path.join(copy, package)
        shutil.copytree(os.path.join(folder, package), new)
        for done in edits.rewritten(scan([new], ON, "keras"))[0]:
            edits.write(done)
            with io.open(done.path, "rb") as file:
                lines, imports = binds(file.read())
            ordered = sorted(done.edits, key=lambda each: each.node.start_byte)
            assert len(lines) == len(ordered), done.path
            for each, line in zip(ordered, lines):
                finding = each.finding
                found.append(dict(
                    place="{}:{}".format(os.path.relpath(finding.file, copy), finding.line), imports=imports, line=line,
                    what=finding.what, original=" ".join(each.node.text.decode("utf-8").split())))
    shutil.rmtree(copy)
    saved(found, path)


def binds(content):
    """Returns (the source of each `everstep....bind(...)`, the imports of keras and everstep) in a file."""
    text = content.decode("utf-8")
    nodes = sorted((node for node in ast.walk(ast.parse(text)) if isinstance(node, (ast.Call, ast.Import))),
                   key=lambda node: (node.lineno, node.col_offset))
    calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and
             node.func.attr == "bind" and ast.unparse(node).startswith("everstep.")]
    imported = [alias for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    imports = ["import {} as {}".format(root, alias.asname or root) for alias in imported
               for root in [alias.name.partition(".")[0]] if root in ("everstep", "keras") and
               (alias.asname is None or alias.name == root)]
    return [ast.unparse(node) for node in calls], sorted(set(imports))


# Of calls

def made(text, names, function=None):
    """Returns the value of a call, whose function may be given. Names that are not known are 0.125, or as SET says."""
    class Known(ast.NodeTransformer):
        def generic_visit(self, node):
            root = node
            while isinstance(root, (ast.Attribute, ast.Subscript)):
                root = root.value
            if isinstance(node, ast.keyword) and node.arg in SET:
                return ast.keyword(node.arg, constant(SET[node.arg]))
            if isinstance(root, ast.Name) and root.id not in names:
                return constant(SET.get(getattr(node, "attr", root.id), 0.125))
            return super(Known, self).generic_visit(node)

    tree = ast.parse(text, mode="eval")
    if function is not None:
        tree.body.func = ast.parse("function_of_the_call", mode="eval").body
        names = dict(names, function_of_the_call=function)
    return eval(compile(ast.fix_missing_locations(Known().visit(tree)), text, "eval"), dict(names))


def constant(value):
    return ast.parse(repr(value), mode="eval").body


def named(what):
    """Returns the class of a dotted name, such as tf.python.keras.optimizers.Adam."""
    import tensorflow as tf

    root, _, rest = what.partition(".")
    value = tf if root == "tf" else importlib.import_module(root)
    path = "tensorflow" if root == "tf" else root
    for name in rest.split(".") if rest else ():
        path += "." + name
        value = getattr(value, name) if hasattr(value, name) else importlib.import_module(path)
    return value


def original(place):
    """Returns the optimizer that a place made."""
    text, _, what = place["what"].rpartition(": ")
    if text:  # compile('adam')
        return named(what.rpartition(".")[0]).get(ast.literal_eval(place["original"]))
    return made(place["original"], {"tf": named("tf")}, named(what))


# Of training

def network():
    """Returns (start, a function of the weights that returns (loss, gradients)) of a network of two layers."""
    rng = np.random.RandomState(0)
    x = rng.normal(size=(64, 4)).astype(np.float32)
    y = np.eye(2, dtype=np.float32)[(x.sum(axis=1) > 0).astype(int)]
    start = [(rng.normal(size=shape) / 2).astype(np.float32) for shape in ((4, 8), (8,), (8, 2), (2,))]

    def slopes(weights):
        w1, b1, w2, b2 = weights
        hidden = np.tanh(x.dot(w1) + b1)
        scores = np.exp(hidden.dot(w2) + b2)
        p = scores / scores.sum(axis=1, keepdims=True)
        back = (p - y) / len(x)
        inner = back.dot(w2.T) * (1 - hidden * hidden)
        grads = [x.T.dot(inner), inner.sum(axis=0), hidden.T.dot(back), back.sum(axis=0)]
        return float(-np.log((p * y).sum(axis=1)).mean()), grads

    return start, slopes


def trained_before(make):
    """Returns (losses, weights, the configuration of its definition) of an optimizer in a graph of TF 1."""
    import keras
    import tensorflow as tf

    import everstep

    start, slopes = network()
    with tf.Graph().as_default(), tf.Session() as session:
        for module in (keras, tf.keras):
            module.backend.set_session(session)
        optimizer = make()
        config = everstep.from_native(optimizer).get_config()
        of_keras = isinstance(optimizer, keras.optimizers.Optimizer)
        variables = [keras.backend.variable(each) if of_keras else tf.Variable(each, use_resource=True)
                     for each in start]
        fed = [tf.placeholder(tf.float32, each.shape) for each in start]
        loss = tf.add_n([tf.reduce_sum(v * g) for v, g in zip(variables, fed)])  # its gradients are what is fed
        step = (optimizer.minimize(loss, var_list=variables) if isinstance(optimizer, tf.train.Optimizer) else
                optimizer.get_updates(loss=loss, params=variables))
        session.run(tf.global_variables_initializer())
        losses = []
        for _ in range(STEPS):
            value, grads = slopes(session.run(variables))
            losses.append(value)
            # Keras reads its counter before or after it moves, at random. Here it always moves last.
            for part in (step[1:], step[:1]) if of_keras else (step,):
                session.run(part, dict(zip(fed, grads)))
        return losses, [each.tolist() for each in session.run(variables)], config


def trained(optimizer):
    """Returns (losses, weights) on Keras 3."""
    import keras

    start, slopes = network()
    variables, losses = [keras.Variable(each) for each in start], []
    for _ in range(STEPS):
        value, grads = slopes([keras.ops.convert_to_numpy(each) for each in variables])
        losses.append(value)
        optimizer.apply_gradients(zip([keras.ops.convert_to_tensor(each) for each in grads], variables))
    return losses, [keras.ops.convert_to_numpy(each) for each in variables]


def originals(path, old):
    with io.open(path, encoding="utf-8") as file:
        places = json.load(file)
    saved([trained_before(lambda place=place: original(place)) for place in places], old)


def compare(path, old):
    import keras

    import everstep

    with io.open(path, encoding="utf-8") as file, io.open(old, encoding="utf-8") as other:
        both = zip(json.load(file), json.load(other))
    packages = OrderedDict()
    for place, (losses, weights, config) in both:
        names = {}
        for line in place["imports"]:
            exec(line, names)
        line = made(place["line"], names)
        stock = everstep.Definition.from_config(config)
        if line.definition.replace(dense_ok=False) != stock.replace(dense_ok=False):
            print("another definition: {}: {!r}: {!r}".format(place["place"], line.definition, stock))
        here = trained(line), trained(stock.replace(dense_ok=True).bind(keras))
        row = packages.setdefault(place["place"].partition("/")[0], [])
        row.append((differ(here[0], here[1]), differ(here[0], (losses, weights))))
        print("{0:.1e} {1:.1e} {place}: {original} -> {line}".format(*row[-1], **place))
    print("| package | places | from from_native | from the original on its API |")
    for name, rows in packages.items():
        print("| {} | {} | {:.1e} | {:.1e} |".format(name, len(rows), *np.max(rows, axis=0)))


def differ(ours, theirs):
    """Returns the largest difference, of losses as a share of the first, of weights as a share of the largest."""
    losses = np.abs(np.subtract(ours[0], theirs[0])).max() / abs(theirs[0][0])
    return max([losses] + [np.abs(np.subtract(a, b)).max() / np.abs(b).max() for a, b in zip(ours[1], theirs[1])])


def saved(value, path):
    with io.open(path, "w", encoding="utf-8") as file:
        file.write(u"" + json.dumps(value, indent=1))


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
