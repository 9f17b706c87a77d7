"""Turns formulas of docstrings, `m := beta_1 * m + (1 - beta_1) * grad`, into MathML, which browsers typeset."""
import ast
import html
import re

GREEK = {"alpha": "α", "beta": "β", "gamma": "γ", "epsilon": "ε", "lambda": "λ", "mu": "μ", "nu": "ν", "rho": "ρ",
         "eta": "η", "xi": "ξ", "phi": "φ"}
OPERATORS = {ast.Add: "+", ast.Sub: "−", ast.Mult: "⋅", ast.Mod: "mod", ast.Gt: ">", ast.Lt: "<", ast.GtE: "≥",
             ast.LtE: "≤", ast.Eq: "="}
STRENGTH = {ast.Add: 1, ast.Sub: 1, ast.Mult: 2, ast.MatMult: 2, ast.Mod: 2, ast.Div: 3, ast.USub: 2, ast.Pow: 4}
BRACKETS = "<mo stretchy='false'>(</mo>{}<mo stretchy='false'>)</mo>"
INDEXED = re.compile(r"(\w+)_(\d|ij?|j)")  # g_1, weights_i, points_ij
PRIMED = re.compile(r"(\w)'")


def formula(line):
    """Returns the MathML of the formulas on a line, with text between them in HTML; None if there is no formula."""
    parts, has_math = [], False
    for piece in re.split(r";\s+", line.strip()):
        math, rest = _longest(piece)
        has_math = has_math or math is not None
        parts.append((math or "") + _words(rest))
    return '<span class="gap"></span>'.join(parts) if has_math else None


def _words(text):
    """Returns text between formulas as HTML, with `code` as such."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text))


def _longest(piece):
    """Returns (MathML, the text after it): the longest beginning that is a formula. (None, piece) if there is none."""
    match = re.match(r"(?:([^:=]*: +))?([\w', ()]+?) (:=|=) (.*)$", piece)
    if match is None or len(match.group(2).split()) > 1 and "," not in match.group(2):
        return None, piece
    before, left, sign, right = match.groups()
    for end in [len(right)] + [place.start() for place in re.finditer(r"[,.]? (?=[a-z])|,|\.", right)][::-1]:
        try:
            return _words(before or "") + _math(left, sign, right[:end]), right[end:]
        except SyntaxError:
            continue
    return None, piece


def _math(left, sign, right):
    sides = [_tree(side) for side in (left, right)]
    if isinstance(sides[1], ast.Tuple) and not isinstance(sides[0], ast.Tuple):
        raise SyntaxError("text after a comma")
    arrow = "≔" if sign == ":=" else "="
    return '<math displaystyle="true"><mrow>{}<mo>{}</mo>{}</mrow></math>'.format(
        _markup(sides[0]), arrow, _markup(sides[1]))


def _tree(text):
    return ast.parse(PRIMED.sub(r"\1_prime", text.strip()).replace("^", "**"), mode="eval").body


def _markup(node):
    """Returns the MathML of an expression. Raises SyntaxError for what no formula has."""
    if isinstance(node, ast.Name):
        return _name(node.id)
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        return _number(node.value)
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Div):
            return "<mfrac>{}{}</mfrac>".format(_row(node.left), _row(node.right))
        if isinstance(node.op, ast.Pow):
            return "<msup>{}{}</msup>".format(_inside(node.left, 4, False), _exponent(node.right))
        strength = STRENGTH.get(type(node.op))
        if strength:
            is_matrix = isinstance(node.op, ast.MatMult)  # mathematicians write no sign between matrices
            sign = "<mspace width='.35em'/>" if is_matrix else "<mo>{}</mo>".format(OPERATORS[type(node.op)])
            return _inside(node.left, strength, False) + sign + _inside(node.right, strength, True)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return "<mo>−</mo>" + _inside(node.operand, 2, False)
    if isinstance(node, ast.Tuple):
        return "<mo>,</mo>".join(map(_markup, node.elts))
    if isinstance(node, ast.List):
        return "<mo>[</mo>{}<mo>]</mo>".format("<mo>,</mo>".join(map(_markup, node.elts)))
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in OPERATORS:
        return "{}<mo>{}</mo>{}".format(_markup(node.left), OPERATORS[type(node.ops[0])], _markup(node.comparators[0]))
    if isinstance(node, ast.IfExp):
        parts = [_markup(part) for part in (node.body, node.test, node.orelse)]
        # Browsers trim ordinary spaces in <mtext>: https://www.w3.org/TR/mathml4/#fund_collapse
        return "{}<mtext>&#160;if&#160;</mtext>{}<mtext>, else&#160;</mtext>{}".format(*parts)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        inside = "<mo>,</mo>".join(map(_markup, node.args))
        if node.func.id == "sqrt":
            return "<msqrt>{}</msqrt>".format(inside)
        if node.func.id == "abs":
            return "<mo>|</mo>{}<mo>|</mo>".format(inside)
        return _name(node.func.id, function=True) + BRACKETS.format(inside)
    raise SyntaxError(ast.dump(node))


def _number(value):
    digits, e, exponent = str(value).partition("e-")
    if not e:
        return "<mn>{}</mn>".format(digits)
    power = "<msup><mn>10</mn><mrow><mo>−</mo><mn>{}</mn></mrow></msup>".format(int(exponent))
    return power if digits == "1" else "<mn>{}</mn><mo>⋅</mo>{}".format(digits, power)


def _exponent(node):
    """Returns an exponent as a row, with a fraction on one line, since it is small there."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return "<mrow>{}<mo>/</mo>{}</mrow>".format(_inside(node.left, 2, False), _inside(node.right, 4, True))
    return _row(node)


def _row(node):
    is_one = isinstance(node, ast.Constant) or isinstance(node, ast.Name) and "_prime" not in node.id
    return _markup(node) if is_one else "<mrow>{}</mrow>".format(_markup(node))


def _inside(node, strength, is_right):
    """Returns an operand as a row, in parentheses if it binds less than its operator."""
    own = STRENGTH.get(type(getattr(node, "op", None)), 9) if isinstance(node, (ast.BinOp, ast.UnaryOp)) else 9
    needs = own < strength or own == strength and is_right and own == 1 or strength == 4 and own < 9
    return "<mrow>{}</mrow>".format(BRACKETS.format(_markup(node))) if needs else _row(node)


def _name(name, function=False):
    """Returns a name with Greek letters, an index, a hat or a prime: beta_1, v_hat, m_prime."""
    if name.endswith("_hat"):
        return "<mover accent='true'>{}<mo>^</mo></mover>".format(_name(name[:-4]))
    if name.endswith("_prime"):
        return "<msup>{}<mo>′</mo></msup>".format(_name(name[:-6]))
    base, _, index = name.rpartition("_")
    if base in GREEK and index:
        return "<msub><mi>{}</mi><mi>{}</mi></msub>".format(GREEK[base], index)
    indexed = INDEXED.fullmatch(name)
    if indexed:
        return "<msub>{}<mrow>{}</mrow></msub>".format(_name(indexed.group(1)), "".join(
            "<m{0}>{1}</m{0}>".format("n" if sign.isdigit() else "i", sign) for sign in indexed.group(2)))
    text = GREEK.get(name, name)
    return "<mi{}>{}</mi>".format(' mathvariant="normal"' if function and len(text) == 1 else "", html.escape(text))
