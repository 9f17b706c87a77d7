/* The parity map: a table of coloured squares, made from window.EVERSTEP_MAP. */
(function () {
  "use strict";
  var data = window.EVERSTEP_MAP;
  var root = document.getElementById("parity-map");
  var form = root.querySelector("form"), scroll = root.querySelector(".scroll"), details = root.querySelector(".details");
  var squares = [];   // rows of the shown table, each a list of cells
  var chosen = null;

  function element(name, text, attributes) {
    var made = document.createElement(name);
    if (text !== null && text !== undefined) { made.textContent = text; }
    Object.keys(attributes || {}).forEach(function (key) { made.setAttribute(key, attributes[key]); });
    return made;
  }

  function unique(values) { return values.filter(function (value, place) { return values.indexOf(value) === place; }); }

  function fill(name, values) {
    values.forEach(function (value) { form.elements[name].appendChild(element("option", value, {value: value})); });
  }

  function share(figures, kind) {   // the largest share of its bound, or null
    var most = null;
    data.kinds.forEach(function (name, place) {
      if (!figures || figures[place] === null || (kind && kind !== name)) { return; }
      var part = figures[place] / data.bounds[place];
      if (most === null || part > most) { most = part; }
    });
    return most;
  }

  function colour(part) {
    if (part === null) { return data.unknown; }
    for (var place = 0; place < data.levels.length; place++) {
      if (part <= data.levels[place][0]) { return data.levels[place][1]; }
    }
    return data.beyond;
  }

  function percent(part) { return Number((100 * part).toPrecision(2)) + " %"; }

  function said(part) { return part === null ? "not measured" : percent(part) + " of its bound"; }

  function draw() {
    var api = form.elements.api.value, family = form.elements.family.value;
    var rows = form.elements.rows.value, kind = form.elements.kind.value;
    var across = data.cells.map(function (cell, place) { return place; }).filter(function (place) {
      var cell = data.cells[place];
      return (!api || cell.apis.indexOf(api) >= 0) && (!family || cell.family === family);
    });
    var table = element("table", null, {role: "grid", "aria-label": "Largest difference by definition and cell"});
    var head = table.appendChild(element("thead")).appendChild(element("tr", null, {role: "row"}));
    head.appendChild(element("th", "definition", {scope: "col", role: "columnheader"}));
    across.forEach(function (place) {
      head.appendChild(element("th", null, {scope: "col", role: "columnheader"}))
        .appendChild(element("span", data.cells[place].name));
    });
    var body = table.appendChild(element("tbody"));
    squares = [];
    data.rows.forEach(function (row, number) {
      if (rows && row.family !== rows) { return; }
      var line = body.appendChild(element("tr", null, {role: "row"}));
      line.appendChild(element("th", row.name, {scope: "row", role: "rowheader"}));
      squares.push(across.map(function (place) {
        var part = share(row.figures[place], kind);
        var cell = line.appendChild(element("td", null, {
          role: "gridcell", tabindex: "-1", "data-row": number, "data-cell": place,
          "aria-label": row.name + " in " + data.cells[place].name + ": " + said(part)}));
        cell.style.backgroundColor = colour(part);
        return cell;
      }));
    });
    scroll.replaceChildren(table);
    if (squares.length && squares[0].length) { squares[0][0].tabIndex = 0; }
    chosen = null;
  }

  function show(cell) {
    if (chosen) { chosen.classList.remove("chosen"); }
    chosen = cell;
    cell.classList.add("chosen");
    var row = data.rows[cell.dataset.row], column = data.cells[cell.dataset.cell];
    var figures = row.figures[cell.dataset.cell];
    var title = element("p");
    title.appendChild(element("a", row.name, {href: "definitions/" + row.name.toLowerCase() + ".html"}));
    title.appendChild(document.createTextNode(" in " + column.name + ": " + said(share(figures, ""))));
    var list = element("dl");
    data.kinds.forEach(function (kind, place) {
      if (!figures || figures[place] === null) { return; }
      list.appendChild(element("dt", kind));
      list.appendChild(element("dd", figures[place].toExponential(1) + " of " + data.bounds[place].toExponential(0)));
    });
    var versions = Object.keys(column.versions).map(function (name) { return name + " " + column.versions[name]; });
    var facts = element("p", versions.join(", ") + ". APIs: " + column.apis.join(", ") + ". Run " + column.when +
      " UTC at commit " + column.commit.slice(0, 9) + ": " + column.passed + " tests passed, " + column.failed +
      " failed.");
    var test = element("p");
    test.appendChild(element("a", "The test", {href: "tests.html"}));
    test.appendChild(document.createTextNode(", and how to run it:"));
    details.replaceChildren(title, list, facts, test, element("pre",
      "python3 matrix/run.py --cell " + column.name + " -- tests/test_battery.py -k " + row.name, {tabindex: "0"}));
  }

  function move(cell, down, right) {
    squares.forEach(function (line, row) {
      var column = line.indexOf(cell);
      if (column < 0) { return; }
      var next = (squares[row + down] || [])[column + right];
      if (next) {
        cell.tabIndex = -1;
        next.tabIndex = 0;
        next.focus();
      }
    });
  }

  scroll.addEventListener("mouseover", function (event) { if (event.target.dataset.cell) { show(event.target); } });
  scroll.addEventListener("click", function (event) { if (event.target.dataset.cell) { show(event.target); } });
  scroll.addEventListener("focusin", function (event) { if (event.target.dataset.cell) { show(event.target); } });
  scroll.addEventListener("keydown", function (event) {
    var step = {ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1]}[event.key];
    if (step && event.target.dataset.cell) {
      event.preventDefault();
      move(event.target, step[0], step[1]);
    }
  });

  fill("api", unique([].concat.apply([], data.cells.map(function (cell) { return cell.apis; }))).sort());
  fill("family", data.families);
  fill("rows", unique(data.rows.map(function (row) { return row.family; })).sort());
  fill("kind", data.kinds);
  form.addEventListener("change", draw);
  form.addEventListener("submit", function (event) { event.preventDefault(); });
  var legend = root.querySelector(".legend");
  data.levels.map(function (level) { return ["up to " + percent(level[0]), level[1]]; })
    .concat([["beyond the bound", data.beyond], ["not measured", data.unknown]]).forEach(function (entry) {
      var item = legend.appendChild(element("span"));
      item.appendChild(element("i")).style.backgroundColor = entry[1];
      item.appendChild(document.createTextNode(entry[0]));
    });
  draw();
}());
