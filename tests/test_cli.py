"""The command line, on whatever is installed; in a separate process where that makes a difference."""
from __future__ import absolute_import, division, print_function

import json
import os
import subprocess
import sys
from collections import OrderedDict

import pytest

import everstep
from everstep import cli, completion, terminal
from everstep.cli import slot_patterns
from everstep.recipes import recipes
from harness import find, known_modules


def run(*arguments, **options):
    """Returns (exit code, stdout, stderr)."""
    environment = dict(os.environ, **options.get("environment", {}))  # conftest.py takes COLUMNS out
    process = subprocess.Popen([sys.executable, "-m", "everstep"] + list(arguments), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env=environment)
    output, complaint = process.communicate()
    return process.returncode, output.decode(), complaint.decode()


def table(output, first):
    """Returns the rows of the table whose header starts with `first`, each split at its columns."""
    lines = iter(output.splitlines())
    header = next(line for line in lines if line.startswith(first))
    starts = [
        place for place in range(len(header)) if header[place] != " " and (place == 0 or header[place - 1] == " ")]
    rows = []
    for line in lines:
        if not line:
            break
        rows.append([line[start:end].strip() for start, end in zip(starts, starts[1:] + [None])])
    return rows


def test_doctor_says_what_is_installed_and_what_it_speaks():
    code, output, complaint = run("doctor", "--verbose")
    assert code == 0, complaint
    assert "matrix pins" not in output
    installed = dict(table(output, "INSTALLED"))
    assert installed["everstep"] == everstep.__version__
    assert installed["python"] == "{}.{}.{}".format(*sys.version_info[:3])
    for name in ("numpy", "tensorflow", "jax", "torch", "keras", "tf_keras"):
        try:
            assert installed[name] == __import__(name).__version__
        except ImportError:
            assert installed[name] == "not installed"
    assert installed.get("keras runs on") == (
        None if installed["keras"] == "not installed" else __import__("keras").backend.backend())
    rows = {module: (target, why) for module, target, why in table(output, "MODULE")}
    assert rows["numpy"][0] == "arrays"
    here = {name: module for name, module in known_modules() if module is not None}
    assert set(rows) == set(here)
    for name, (target, why) in rows.items():
        try:
            api = find(here[name])
        except everstep.errors.TargetError:
            assert target == "none" and why
        else:
            assert target == api.target.name
            assert why.startswith("{}.{}: ".format(api.base.__module__, api.base.__name__)), why
    assert "What works: " in output and "tf.compat.v1.train" in output
    strategies, kernels = dict(table(output, "STRATEGY")), table(output, "DEFINITION")
    if installed["tensorflow"] == "not installed":
        assert list(strategies) == ["plain"] and kernels == [["none", "", "", ""]]
    else:
        assert set(strategies) == {"kernel", "flattened", "compiled", "chunks", "in_place"}
        assert strategies["kernel"] == "yes"
        assert ["SGD", "apply_momentum", "resource, ref", "resource, ref"] in kernels
        keras_momentum = [row[2:] for row in kernels if row[:2] == ["SGD", "apply_keras_momentum"]]
        assert keras_momentum in ([["resource", "resource"]], [["none", "none"]])  # none in old versions


def test_doctor_reports_a_broken_framework(tmp_path):
    broken = tmp_path / "tensorflow"
    broken.mkdir()
    (broken / "__init__.py").write_text(u"raise RuntimeError('libcuda is\\n\\tolder  than time')\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    code, output, _ = run("doctor", environment={"PYTHONPATH": path})
    assert code == 1
    assert dict(table(output, "INSTALLED"))["tensorflow"] == "RuntimeError: libcuda is older than time"
    assert "`everstep matrix pins tensorflow==2.10`" in output
    # the command went on after the error
    assert [row[1] for row in table(output, "MODULE") if row[0] == "numpy"] == ["arrays"]


def test_doctor_reports_a_keras_without_its_backend():
    keras, tensorflow = (dict(known_modules()).get(name) for name in ("keras", "tensorflow.keras"))
    if keras is None or tensorflow is not None:
        pytest.skip("Keras 3 without TensorFlow is not in this environment")
    code, output, _ = run("doctor", environment={"KERAS_BACKEND": "tensorflow"})
    assert code == 1
    installed = dict(table(output, "INSTALLED"))
    assert installed["keras"] == "ModuleNotFoundError: No module named 'tensorflow'"
    assert installed["tensorflow"] == "not installed" and "keras runs on" not in installed


def test_list_has_every_definition_with_its_slots(command):
    code, output, complaint = command("list")
    assert (code, complaint) == (0, "")
    rows = {name: slots for _, name, _, slots in table(output, "FAMILY")}
    schedules = {each.__name__ for each in everstep.Schedule.registered() if each.__module__.startswith("everstep.")}
    schedules.remove("Combined")  # which arithmetic makes
    assert set(rows) == set(everstep.optimizers.__all__) | schedules and "Warmup" in schedules
    families = [row[0] for row in table(output, "FAMILY")]
    last = ["wrappers", "schedules"]
    assert families == sorted(families, key=lambda name: (last.index(name) + 1 if name in last else 0, name.lower()))
    assert rows["Multistage"] == "start, [slope_*]"
    assert rows["Adam"] == "m, v, [v_hat]" and rows["SGD"] == "[velocity]"
    assert all(what for _, _, what, _ in table(output, "FAMILY"))


@pytest.mark.shared  # the same everywhere
@pytest.mark.parametrize("name", everstep.optimizers.__all__)
def test_show_tells_all_that_is_declared(name, command):
    code, output, complaint = command("show", name)
    assert (code, complaint) == (0, "")
    definition = getattr(everstep.optimizers, name)
    assert [row[0] for row in table(output, "ARGUMENT")] == definition.argument_names()
    for argument, kind, default, _ in table(output, "ARGUMENT"):
        declared = definition.declarations[argument]
        assert kind == declared.kind
        assert default == ("(must be given)" if kind == "child" else repr(declared.default))
    state = [slot for slot in definition.declared_order if definition.declarations[slot].kind in ("slot", "scalar")]
    assert [row[0] for row in table(output, "STATE")] == (state or ["none"])
    assert "Sparse gradients: " in output


def test_show_tells_the_formula_and_where_stock_differs(command):
    _, output, _ = run("show", "adam")
    assert output.startswith("Adam\n\nAdam (Kingma & Ba 2015")
    assert "v := beta_2 * v + (1 - beta_2) * grad^2" in output
    assert "stock default: epsilon=1e-08" in output
    assert ">>>" not in output and "Args:" not in output
    assert table(output, "ARGUMENT")[1] == ["beta_1", "hyper", "0.9", "0 to 1"]
    assert table(output, "STATE")[2] == ["v_hat", "slot", "0.0", "the variable's", "with amsgrad"]
    _, output, _ = command("show", "SGD")
    assert table(output, "STATE") == [["velocity", "slot", "0.0", "the variable's", "unless momentum is given as 0"]]


@pytest.mark.shared
def test_what_makes_no_sense_ends_with_2(capsys):
    code, output, complaint = run("show", "Adamant")
    assert (code, output) == (2, "")
    assert complaint.startswith("everstep: there is no definition called 'Adamant'; did you mean Adamax")
    for arguments in (["--cure"], ["show"], ["list", "Adam", "W"], ["completion", "tcsh"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(arguments)
        output, complaint = capsys.readouterr()
        assert (ended.value.code, output) == (2, "") and "usage: everstep" in complaint


@pytest.mark.shared
@pytest.mark.parametrize("name, expected", [
    ("Warmup", "everstep.Warmup\n\nGrows along a line"), ("polynomial_decay", "everstep.PolynomialDecay\n"),
    ("decoupled_weight_decay", "everstep.decoupled_weight_decay(definition, weight_decay=0.004"),
    ("AdamOptimizer", "AdamOptimizer of tf.train is everstep's Adam, with epsilon=1e-08, beta_1 for its beta1"),
    ("momentum", "rate_in_velocity=False, sparse='rows', nesterov for its use_nesterov.\n\nSGD\n"),
    ("recipes", "everstep show WORD"), ("BERT", "bias_correction=False"),
    ("adam_weight_decay", "everstep.get('adam_weight_decay', learning_rate=0.001")])
def test_show_finds_what_get_finds_and_more(name, expected, command, shipped_only):
    code, output, _ = command("show", name)
    assert code == 0 and expected in output


@pytest.mark.shared
def test_every_recipe_begins_with_a_sentence():
    titles = [recipe.title for recipe in recipes()]
    assert len(titles) > 12 and len(set(titles)) == len(titles)
    for recipe in recipes():
        assert 10 < len(recipe.first_sentence) < 130 and "|" not in recipe.first_sentence, recipe.title
        assert "    import" in recipe.text or "    >>> " in recipe.text, recipe.title
        assert "```" not in recipe.text and "<!--" not in recipe.text and "](" not in recipe.text, recipe.title


@pytest.mark.shared
def test_show_names_what_is_close(capsys, shipped_only):
    assert cli.main(["show", "polynomial"]) == 2
    assert "or the schedule PolynomialDecay?" in capsys.readouterr()[1]


@pytest.mark.shared
@pytest.mark.parametrize("arguments, said", [
    (["shwo", "adam"], "there is no command 'shwo'; did you mean `everstep show`?"),
    (["cure"], "there is no command 'cure'; `everstep help` lists them"),
    (["list", "no such word"], "no definition has 'no such word' in its name, family or description"),
    (["verify", "nofile"], "there is no file or checkpoint nofile"),
    (["inspect", "nofile"], "there is no file or checkpoint nofile"),
    (["inspect", "--optimizer", "Adm", "any"], "there is no definition called 'Adm'; did you mean Adam"),
    (["inspect", "--optimizer", "Adm(learning_rate=1.0)", "any"], "there is no definition called 'Adm'"),
    (["show", "Optimizer"], "there is no definition called 'Optimizer'"),
    (["show", "tf.train.AdamOptimzer"], "no definition called 'AdamOptimzer'; did you mean AdamOptimizer"),
    (["show", "tf.keras.optimizers.Admax"], "there is no definition called 'Admax'; did you mean Adamax"),
])
def test_a_wrong_word_gets_a_hint(arguments, said, capsys, shipped_only):
    assert cli.main(arguments) == 2
    output, complaint = capsys.readouterr()
    assert output == "" and said in complaint


@pytest.mark.shared
@pytest.mark.parametrize("name", ["tf.train.AdamOptimizer", "tf.compat.v1.train.AdamOptimizer", "AdamOptimizer"])
def test_show_takes_the_name_that_code_has(name, command):
    assert command("show", name)[1].startswith("AdamOptimizer of tf.train is everstep's Adam, with epsilon=1e-08")


@pytest.mark.shared
def test_names_of_keras_and_titles_of_recipes(command, shipped_only):
    assert command("show", "tf.keras.optimizers.Adam")[1].startswith("Adam\n")
    assert command("show", "GAN with two")[1].startswith("Train a GAN with two optimizers\n")


@pytest.mark.shared
def test_list_of_a_word(command):
    assert [row[1] for row in table(command("list", "adam-mini")[1], "FAMILY")] == ["AdamMini"]
    rows = table(command("list", "wrappers")[1], "FAMILY")
    assert len(rows) > 10 and all("wrappers" in row[0] for row in rows)
    assert [row["name"] for row in json.loads(command("list", "qhadam", "--json")[1])] == ["QHAdam"]


@pytest.mark.shared
def test_help_and_version_are_commands_too(command, capsys):
    for words, option in ((["help"], ["--help"]), (["help", "show"], ["show", "--help"]), (["version"], ["--version"])):
        said = []
        for arguments in (words, option):
            with pytest.raises(SystemExit) as ended:
                cli.main(arguments)
            assert not ended.value.code
            said.append(capsys.readouterr())
        assert said[0] == said[1] and "".join(said[0])


def test_every_command_is_known():
    actions = vars(cli.argument_parser()._subparsers)["_group_actions"]
    assert set(cli.COMMANDS) == set(actions[0].choices)


def test_version_and_help():
    code, output, complaint = run("--version")
    assert (code, output.strip(), complaint) == (0, "everstep " + everstep.__version__, "")
    code, output, _ = run("--help")
    assert code == 0 and all(each in output for each in ("doctor", "list", "show"))
    assert run() == (0, output, "")


def test_json_is_in_order_so_that_two_outputs_can_be_compared(capsys):
    terminal.print_json(OrderedDict([("second", [1]), ("first", None)]))
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]  # Python 2 has spaces at their ends
    assert lines == ["{", '  "first": null,', '  "second": [', "    1", "  ]", "}"]


@pytest.mark.shared
def test_json_for_programs(command):
    code, output, complaint = run("doctor", "--json", "--verbose")
    assert code == 0, complaint
    facts = json.loads(output)
    assert facts["everstep"] == everstep.__version__
    packages = {package["name"]: package for package in facts["packages"]}
    assert packages["python"]["version"] == "{}.{}.{}".format(*sys.version_info[:3])
    assert packages["numpy"]["version"] and packages["numpy"]["broken"] is None
    assert {row["module"]: row["target"] for row in facts["modules"]}["numpy"] == "arrays"
    assert {row["module"] for row in facts["modules"]} == {
        name for name, module in known_modules() if module is not None}
    assert (len(facts["kernels"]) > 0) == (packages["tensorflow"]["version"] is not None)
    names = [row["name"] for row in json.loads(command("list", "--json")[1])]
    assert set(everstep.optimizers.__all__) <= set(names) and len(names) == len(set(names))
    facts = json.loads(command("show", "adam", "--json")[1])
    assert (facts["name"], facts["family"], facts["kernel"]) == ("Adam", "Adam", "adam")
    assert facts["arguments"][1] == {
        "name": "beta_1", "kind": "hyper", "default": 0.9, "takes": "0 to 1", "required": False}
    assert [row["name"] for row in facts["state"]] == ["m", "v", "v_hat"] and "v := beta_2" in facts["explanation"]
    assert json.loads(command("show", "LazyAdamOptimizer", "--json")[1])["options"][0] == "epsilon=1e-08"
    assert json.loads(command("show", "Warmup", "--json")[1])["family"] == "schedules"
    facts = json.loads(command("show", "Lookahead", "--json")[1])
    assert facts["arguments"][0] == {"name": "inner", "kind": "child", "takes": "a definition", "required": True}


@pytest.mark.shared
@pytest.mark.parametrize("columns", [80, 100])
def test_tables_fit_the_terminal(columns, command, monkeypatch):
    for arguments, header in ((("list",), "FAMILY"), (("show", "Adam"), "ARGUMENT")):
        monkeypatch.setenv("COLUMNS", str(columns))
        narrow = command(*arguments)[1]
        monkeypatch.delenv("COLUMNS")
        narrow, wide = [text[text.index(header):].split("\n\n")[0] for text in (narrow, command(*arguments)[1])]
        assert max(map(len, narrow.splitlines())) <= columns
        assert sorted(narrow.split()) == sorted(wide.split())  # wrapped between words
    assert columns < max(map(len, command("list")[1].splitlines()))


@pytest.mark.shared
def test_no_word_is_broken_on_a_narrow_terminal(command, monkeypatch):
    """The terminal would break lines of more than 80 characters wherever they are full."""
    names = list(everstep.optimizers.__all__) + ["Warmup", "WarmupStableDecay"]
    for name in names:
        wide = command("show", name)[1]
        monkeypatch.setenv("COLUMNS", "80")
        narrow = command("show", name)[1]
        monkeypatch.delenv("COLUMNS")
        too_long = [line for line in narrow.splitlines() if len(line) > 80 and " " in line.strip()[:60]]
        assert not too_long, name
        words = [[word.strip("|:") for word in text.split() if set(word) - set("|-")] for text in (narrow, wide)]
        assert sorted(words[0]) == sorted(words[1]), name


def test_widths_that_fit():
    assert terminal.fitting([5, 100], None) == [5, 100]
    assert terminal.fitting([5, 100], 107) == [5, 100]
    assert terminal.fitting([5, 100], 106) == [5, 99]
    assert terminal.fitting([10, 20, 100], 64) == [10, 20, 30]
    assert terminal.fitting([10, 20, 20], 10) == [10, 12, 12]  # columns do not become narrower than that


@pytest.mark.shared
def test_a_closed_pipe_is_no_error():
    for arguments in (["list"], ["--help"], [], ["show", "Adam", "--json"]):
        reading, writing = os.pipe()
        os.close(reading)
        process = subprocess.Popen([sys.executable, "-m", "everstep"] + arguments, stdout=writing,
                                   stderr=subprocess.PIPE)
        os.close(writing)
        assert process.communicate()[1].decode() == "", arguments
        assert process.returncode == 0, arguments


def in_terminal(*arguments, **environment):
    """Returns what a command prints to a terminal."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    variables = dict(os.environ, TERM="xterm", **environment)
    process = subprocess.Popen([sys.executable, "-m", "everstep"] + list(arguments), stdout=theirs, stderr=theirs,
                               env=variables)
    os.close(theirs)
    output, part = b"", True
    while part:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # Linux: the other side is closed
            part = b""
        output += part
    os.close(ours)
    assert process.wait() == 0
    return output.decode()


@pytest.mark.shared
def test_colours_in_a_terminal_only():
    assert "\x1b[1mARGUMENT\x1b[0m" in in_terminal("show", "Adam")
    assert "\x1b" not in in_terminal("show", "Adam", NO_COLOR="1")
    assert "\x1b" not in run("show", "Adam")[1]


# The shells that are installed complete the line before each colon to the words after it.
LINES = {"everstep sh": {"show"}, "everstep show Adama": {"Adamax"},
         "everstep convert a b --to keras-": {"keras-h5", "keras-weights-h5"}, "everstep verify --j": {"--json"},
         "everstep completion z": {"zsh"}}
BASH = """
eval "$SCRIPT"
COMP_WORDS=($LINE)
COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
_everstep
printf '%s\\n' "${COMPREPLY[@]}"
"""
ZSH = """
compdef() { : }
_describe() { for each in $names; do [[ $each == ${words[CURRENT]}* ]] && print -- ${each%%:*}; done }
compadd() { shift; for each in $@; do [[ $each == ${words[CURRENT]}* ]] && print -- $each; done }
eval "$SCRIPT"
words=(${=LINE})
CURRENT=${#words}
_everstep
true
"""
FISH = """
echo "$SCRIPT" | source
complete -C "$LINE" | string replace -r '\\t.*' ''
"""


@pytest.mark.shared
@pytest.mark.parametrize("shell, program", [("bash", BASH), ("zsh", ZSH), ("fish", FISH)])
def test_completion(shell, program, command):
    code, script, complaint = command("completion", shell)
    assert (code, complaint) == (0, "")
    assert shell in completion.SHELLS
    for line, words in LINES.items():
        try:
            process = subprocess.Popen([shell, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       env=dict(os.environ, SCRIPT=script, LINE=line))
        except OSError:
            pytest.skip("{} is not installed".format(shell))
        output, complaint = process.communicate()
        assert (set(output.decode().split()), complaint.decode()) == (words, ""), line


def test_the_name_of_a_slot_may_have_an_equals_sign():
    assert slot_patterns(["m={var}/a=b", "v={var}/v"]) == {"m": "{var}/a=b", "v": "{var}/v"}
    assert slot_patterns([]) is None
