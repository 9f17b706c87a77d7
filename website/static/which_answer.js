/* The chooser's answer: everstepAnswer(data, versions, backend) returns {notes, found: [{api, cell, differences}]}.
   website/browser_check.py walks every combination that the page offers, and compares the answers with the cells. */
(function () {
  "use strict";
  // The versions that decide whether a cell is the same, beside Python's and those of the module's own package.
  var TITLES = {python: "Python", tensorflow: "TensorFlow", keras: "Keras", tf_keras: "tf_keras", torch: "PyTorch", optax: "optax"};

  var parsed = {};

  function numbers(version) {
    return parsed[version] || (parsed[version] = (version.match(/^\d+(\.\d+)*/) || ["0"])[0].split(".").map(Number));
  }

  function minor(version) { return numbers(version).slice(0, 2).join("."); }

  function compare(one, other) {
    var a = numbers(one), b = numbers(other);
    for (var index = 0; index < Math.max(a.length, b.length); index++) {
      var difference = (a[index] || 0) - (b[index] || 0);
      if (difference) { return difference; }
    }
    return 0;
  }

  function deciding(api, backend) {
    if (api.package === "numpy") { return ["python"]; }
    var onTensorFlow = api.package === "tf_keras" || api.package === "keras" && (api.target !== "keras3" || backend === "tensorflow");
    return ["python", api.package].concat(onTensorFlow ? ["tensorflow"] : []);
  }

  function backendOf(cell) {
    return cell.versions.tensorflow ? "tensorflow" : cell.versions.torch ? "torch" : "jax";
  }

  function apart(one, other) {
    var a = numbers(one), b = numbers(other);
    return Math.abs(a[0] - b[0]) * 100 + Math.abs((a[1] || 0) - (b[1] || 0));
  }

  function nearest(data, api, versions, backend) {
    var names = deciding(api, backend), best = null, least = Infinity;
    data.cells.forEach(function (cell) {
      if (cell.modules[api.module] !== api.target || api.target === "keras3" && backendOf(cell) !== backend) { return; }
      // The module's own package counts most, Python least. Of equal cells, one with the same TensorFlow is taken.
      var far = 0;
      names.forEach(function (name) {
        var weight = name === api.package ? 1e8 : name === "python" ? 1e2 : 1e5;
        far += weight * (versions[name] && cell.versions[name] ? apart(versions[name], cell.versions[name]) : 999);
      });
      far += minor(cell.versions.tensorflow || "0") === minor(versions.tensorflow || "0") ? 0 : 1;
      if (far < least) { least = far; best = cell; }
    });
    if (best === null) { return {api: api, cell: null, differences: []}; }
    return {api: api, cell: best, differences: names.filter(function (name) {
      return versions[name] && minor(versions[name]) !== minor(best.versions[name] || "0");
    }).map(function (name) {
      return TITLES[name] + " " + minor(best.versions[name] || "0") + " in place of " + minor(versions[name]);
    })};
  }

  function wheels(data, versions) {   // the Pythons that a TensorFlow has wheels for, if the chosen one is none of them
    var rows = data.pythons.filter(function (row) {
      return versions.tensorflow && compare(minor(versions.tensorflow), row.first) >= 0 && compare(minor(versions.tensorflow), row.last) <= 0;
    });
    return rows.length && versions.python && rows[0].pythons.indexOf(minor(versions.python)) < 0 ? rows[0].pythons : null;
  }

  window.everstepAnswer = function (data, versions, backend) {
    var notes = [], missing = [], major = versions.keras ? numbers(versions.keras)[0] : 0;
    var pythons = wheels(data, versions);
    if (pythons) {
      notes.push("TensorFlow " + minor(versions.tensorflow) + " cannot be installed on Python " + minor(versions.python) +
        ". It needs Python " + pythons.join(", ") + ".");
      missing.push("tensorflow", "tf_keras");
    }
    var hasTensorFlow = versions.tensorflow && !pythons;
    if (!versions.tensorflow && versions.tf_keras) { notes.push("tf_keras needs TensorFlow."); missing.push("tf_keras"); }
    if (major && (major < 3 || backend === "tensorflow") && !hasTensorFlow) {
      if (!pythons) { notes.push("Keras " + (major < 3 ? "2" : "3 on TensorFlow") + " needs TensorFlow."); }
      missing.push("keras");
    }
    if (major >= 3 && hasTensorFlow && compare(versions.tensorflow, "2.16") < 0) {
      notes.push("Keras 3 beside TensorFlow before 2.16 turns tf.keras into Keras 3: see what everstep doctor prints.");
    }
    var found = data.apis.filter(function (api) {
      var version = versions[api.package];
      // Keras 2.4 and 2.5 have no optimizers of their own. A minor version, 2.0, means its newest release.
      var low = version && numbers(version).length < 3 ? version + ".99" : version;
      return api.package === "numpy" || version && missing.indexOf(api.package) < 0 &&
        compare(low, api.first) >= 0 && compare(version, api.end) < 0;
    });
    return {notes: notes, found: found.map(function (api) { return nearest(data, api, versions, backend); })};
  };
  window.everstepAnswer.compare = compare;
  window.everstepAnswer.minor = minor;
  window.everstepAnswer.deciding = deciding;
}());
