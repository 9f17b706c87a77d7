/* The chooser: from versions to the module to bind to. window.EVERSTEP_APIS has the rules of matrix/spoken_apis.py. */
(function () {
  "use strict";
  var data = window.EVERSTEP_APIS, answerTo = window.everstepAnswer;
  var root = document.getElementById("which-api");
  var form = root.querySelector("form"), paste = root.querySelector("textarea"), answer = root.querySelector(".answer");
  var NONE = "not installed";

  function element(name, text, attributes) {
    var made = document.createElement(name);
    if (text !== null && text !== undefined) { made.textContent = text; }
    Object.keys(attributes || {}).forEach(function (key) { made.setAttribute(key, attributes[key]); });
    return made;
  }

  function known(name) {   // the versions of a package in any cell, newest first
    var versions = {};
    data.cells.forEach(function (cell) { if (cell.versions[name]) { versions[answerTo.minor(cell.versions[name])] = true; } });
    return Object.keys(versions).sort(answerTo.compare).reverse();
  }

  function fill(name, values, first) {
    values.forEach(function (value) {
      form.elements[name].appendChild(element("option", value, value === first ? {selected: ""} : {}));
    });
    form.elements[name].parentNode.hidden = values.length === 1;
  }

  function given() {
    var versions = {};
    ["python", "tensorflow", "keras", "tf_keras", "torch", "optax"].forEach(function (name) {
      if (form.elements[name].value !== NONE) { versions[name] = form.elements[name].value; }
    });
    return {versions: versions, backend: form.elements.backend.value};
  }

  function pasted(text) {
    var facts = JSON.parse(text), versions = {}, backend = "tensorflow";
    facts.packages.forEach(function (each) {
      if (each.name === "keras runs on") { backend = each.version; } else if (each.version) { versions[each.name] = each.version; }
    });
    return {versions: versions, backend: backend};
  }

  function section(each) {
    var made = element("section"), target = data.targets[each.api.target], cell = each.cell;
    made.appendChild(element("h3", each.api.module + ": " + target.title));
    made.appendChild(element("pre", each.api.line, {tabindex: "0"}));
    made.appendChild(element("p", "Not supported: " + target.unsupported.join(", ") +
      ". Each raises an error that says what to do instead."));
    var text = element("p", cell ? each.differences.length ? "These versions are not tested together. Nearest: " : "Tested in " :
      "No test has these versions.");
    if (cell) {
      text.appendChild(element("code", cell.name));
      text.appendChild(document.createTextNode((each.differences.length ? ", which has " + each.differences.join(" and ") : "") +
        " (" + cell.holds + "). " + cell.passed + " tests passed and " + cell.failed + " failed on " + cell.when + " UTC, with " +
        Object.keys(cell.versions).map(function (name) { return name + " " + cell.versions[name]; }).join(", ") + "."));
    }
    made.appendChild(text);
    return made;
  }

  function show() {
    var facts;
    try {
      facts = paste.value.trim() ? pasted(paste.value) : given();
    } catch (error) {
      answer.replaceChildren(element("p", "This is not what everstep doctor --json prints: " + error.message));
      return;
    }
    form.elements.backend.parentNode.hidden = !facts.versions.keras || answerTo.compare(facts.versions.keras, "3") < 0;
    var said = answerTo(data, facts.versions, facts.backend);
    answer.replaceChildren.apply(answer, said.notes.map(function (note) { return element("p", note, {class: "note"}); })
      .concat(said.found.map(section)));
  }

  fill("python", known("python"), "3.11");
  fill("tensorflow", [NONE].concat(known("tensorflow")), "2.15");
  ["keras", "tf_keras", "torch", "optax"].forEach(function (name) { fill(name, [NONE].concat(known(name)), NONE); });
  form.addEventListener("change", function () { paste.value = ""; show(); });
  form.addEventListener("submit", function (event) { event.preventDefault(); });
  paste.addEventListener("input", show);
  show();
}());
