/* The chooser: from versions to the module to bind to. window.EVERSTEP_APIS has the rules of matrix/spoken_apis.py. */
(function () {
  "use strict";
  var data = window.EVERSTEP_APIS;
  var root = document.getElementById("which-api");
  var form = root.querySelector("form"), paste = root.querySelector("textarea"), answer = root.querySelector(".answer");
  var NONE = "not installed";

  function numbers(version) { return (version.match(/^\d+(\.\d+)*/) || ["0"])[0].split(".").map(Number); }

  function compare(one, other) {
    var a = numbers(one), b = numbers(other);
    for (var place = 0; place < Math.max(a.length, b.length); place++) {
      var difference = (a[place] || 0) - (b[place] || 0);
      if (difference) { return difference; }
    }
    return 0;
  }

  function element(name, text, attributes) {
    var made = document.createElement(name);
    if (text !== null && text !== undefined) { made.textContent = text; }
    Object.keys(attributes || {}).forEach(function (key) { made.setAttribute(key, attributes[key]); });
    return made;
  }

  function minor(version) { return numbers(version).slice(0, 2).join("."); }

  function known(name) {   // the versions of a package in any cell, newest first
    var versions = {};
    data.cells.forEach(function (cell) { if (cell.versions[name]) { versions[minor(cell.versions[name])] = true; } });
    return Object.keys(versions).sort(compare).reverse();
  }

  function fill(name, values, first) {
    values.forEach(function (value) {
      form.elements[name].appendChild(element("option", value, value === first ? {selected: ""} : {}));
    });
  }

  function given() {
    var versions = {numpy: "1.18"};
    ["python", "tensorflow", "keras", "tf_keras", "optax"].forEach(function (name) {
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

  function spoken(versions) {
    return data.apis.filter(function (api) {
      var version = versions[api.package];
      // Keras 2.4 and 2.5 have no optimizers of their own. A minor version, 2.0, means its newest release.
      var low = version && numbers(version).length < 3 ? version + ".99" : version;
      return version && compare(low, api.first) >= 0 && compare(version, api.end) < 0;
    });
  }

  function distance(one, other) {
    if (!one || !other) { return one || other ? 50 : 0; }
    var a = numbers(one), b = numbers(other);
    return Math.abs(a[0] - b[0]) * 30 + Math.abs((a[1] || 0) - (b[1] || 0));
  }

  function proof(api, versions, backend) {   // the nearest cell in which the module spoke the same API
    var best = null, least = Infinity;
    data.cells.forEach(function (cell) {
      if (cell.modules[api.module] !== api.target) { return; }
      var far = distance(cell.versions[api.package], versions[api.package]) * 10 +
        distance(cell.versions.tensorflow, versions.tensorflow) + distance(cell.versions.python, versions.python) / 10;
      if (api.target === "keras3") {
        var runs = cell.versions.tensorflow ? "tensorflow" : cell.versions.jax ? "jax" : "torch";
        far += runs === backend ? 0 : 1000;
      }
      if (far < least) { least = far; best = cell; }
    });
    return best;
  }

  function section(api, versions, backend) {
    var made = element("section"), target = data.targets[api.target], cell = proof(api, versions, backend);
    made.appendChild(element("h3", api.module + " speaks " + api.target));
    made.appendChild(element("pre", api.line, {tabindex: "0"}));
    made.appendChild(element("p", "It does not support: " + target.unsupported.join(", ") +
      ". Each is an error that says what to do instead."));
    var text = element("p");
    if (cell) {
      text.appendChild(document.createTextNode("Tested in "));
      text.appendChild(element("code", cell.name));
      text.appendChild(document.createTextNode(" (" + cell.holds + "): " + Object.keys(cell.versions).map(function (name) {
        return name + " " + cell.versions[name];
      }).join(", ") + ". " + cell.passed + " tests passed and " + cell.failed + " failed on " + cell.when + " UTC."));
    } else {
      text.textContent = "No cell of the matrix has it.";
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
    var apis = spoken(facts.versions);
    answer.replaceChildren.apply(answer, apis.map(function (api) {
      return section(api, facts.versions, facts.backend);
    }));
    if (facts.versions.keras && numbers(facts.versions.keras)[0] >= 3 && facts.versions.tensorflow &&
        compare(facts.versions.tensorflow, "2.16") < 0) {
      answer.prepend(element("p", "Keras 3 beside TensorFlow before 2.16 turns tf.keras into Keras 3: see what everstep doctor prints."));
    }
  }

  fill("python", known("python"), "3.11");
  fill("tensorflow", [NONE].concat(known("tensorflow")), "2.15");
  fill("keras", [NONE].concat(known("keras")), NONE);
  fill("tf_keras", [NONE].concat(known("tf_keras")), NONE);
  fill("optax", [NONE].concat(known("optax")), NONE);
  form.addEventListener("change", function () { paste.value = ""; show(); });
  form.addEventListener("submit", function (event) { event.preventDefault(); });
  paste.addEventListener("input", show);
  show();
}());
