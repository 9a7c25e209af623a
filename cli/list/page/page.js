// page.js: what the page of `inspect --html` does. The data is what `inspect --json` prints. Its
// text is hostile: it enters the page as text only (textContent, fillText), made printable first.
"use strict";

const kDeepest = 32;  // parts of a name that become layers, as in `inspect --tree`
const kColours = ["#7fb2e5", "#f2b36b", "#8fcf9a", "#e58f8f", "#b9a3e3", "#d9c36a", "#83cfcf",
                  "#e3a0c8", "#b7bec6", "#c9a88a"];
const kRamp = ["#d5dee8", "#a9c6e6", "#7fb2e5", "#5b93cf", "#3f74b3"];  // from little to much
const kShares = [0.001, 0.01, 0.05, 0.2], kSavings = [0.05, 0.2, 0.4, 0.6];
const kUnits = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const kStatistics = ["min", "max", "mean", "std", "zeros", "nan", "inf"];

const $ = (id) => document.getElementById(id);
const listing = JSON.parse($("data").textContent);

// ---- text -------------------------------------------------------------------------------------

// Control characters, line breaks, marks of direction and what else is not seen as escapes.
function printable(text) {
  return text.replace(/(?! )[\p{Cc}\p{Cf}\p{Z}\p{DI}\u2800]/gu, (c) => {
    const hex = c.codePointAt(0).toString(16);
    return c.length === 1 ? "\\u" + hex.padStart(4, "0") : "\\U" + hex.padStart(8, "0");
  });
}

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function bytesText(bytes) {
  let unit = 0;
  for (; bytes >= 1024 && unit < 6; ++unit) bytes /= 1024;
  return (unit === 0 ? bytes : bytes.toFixed(2)) + " " + kUnits[unit];
}

const counted = (count, noun) => count.toLocaleString("en") + " " + noun + (count === 1 ? "" : "s");
const product = (numbers) => numbers.reduce((a, b) => a * b, 1);
const percent = (part, whole) => (whole > 0 ? (100 * part / whole).toFixed(1) : "0.0") + " %";

// Cut in the middle: the end of a tensor's name tells most.
function shortened(text, columns) {
  if (text.length <= columns || columns < 5) return text;
  const head = Math.floor((columns - 1) / 3);
  return text.slice(0, head) + "…" + text.slice(text.length - (columns - 1 - head));
}

function numberText(value) {
  if (value === undefined || value === null) return "";
  if (Number.isNaN(Number(value))) return value;  // "nan", "inf", "-inf"
  value = Number(value);  // an integer beyond 2^53 is a text
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return value.toLocaleString("en");
  if (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6) return value.toExponential(2);
  return String(Number(value.toPrecision(4)));
}

// A value; a long one is folded.
function valueElement(value) {
  const text = typeof value === "string" ? value : JSON.stringify(value), made = element("dd");
  if (text.length <= 120) return element("dd", printable(text));
  const folded = element("details");
  folded.append(element("summary", printable(text.slice(0, 60)) + "… (" +
                        counted(text.length, "character") + ")"));
  folded.append(element("div", printable(text.slice(0, 20000)) + (text.length > 20000 ? "…" : "")));
  made.append(folded);
  return made;
}

// Where a part of a whole lies between limits: "1 to 5 %".
function stepOf(part, whole, limits) {
  const share = whole > 0 ? part / whole : 0, step = limits.filter((limit) => share >= limit).length;
  const text = (limit) => String(Number((100 * limit).toPrecision(2)));
  return step === 0 ? "under " + text(limits[0]) + " %"
    : step === limits.length ? "over " + text(limits[step - 1]) + " %"
      : text(limits[step - 1]) + " to " + text(limits[step]) + " %";
}

// ---- the tensors ------------------------------------------------------------------------------

// What the page needs of an object. Bytes that an earlier object has, too (`shares`), count there.
function rowOf(object, index) {
  const row = {index, object, name: printable(object.name), dtype: printable(object.kind),
               shape: object.shape.join(" × ") || "scalar", bytes: 0, stored: 0, own: 0,
               ownStored: 0, encoding: "raw", tied: object.components.length > 0};
  for (const part of object.components) {
    const bytes = part.uncompressed_length ?? part.length;
    row.bytes += bytes;
    row.stored += part.length;
    if (part.encoding && part.encoding !== "raw")
      row.encoding = printable(part.encoding).replace(/^ztstream\.(.*)\/1$/, "$1");
    if (part.shares !== undefined) continue;
    row.tied = false;
    row.own += bytes;
    row.ownStored += part.length;
  }
  return row;
}

const rows = listing.objects.map(rowOf);

// Sums of the rows by what `key` says of them, the largest first.
function kindsBy(key) {
  const kinds = new Map();
  for (const row of rows) {
    let kind = kinds.get(row[key]);
    if (!kind) {
      kind = {name: row[key], tensors: 0, parameters: 0, bytes: 0, stored: 0};
      kinds.set(kind.name, kind);
    }
    ++kind.tensors;
    kind.parameters += row.tied ? 0 : row.object.parameters;
    kind.bytes += row.own;
    kind.stored += row.ownStored;
  }
  const sorted = [...kinds.values()].sort((a, b) => b.bytes - a.bytes);
  sorted.forEach((kind, i) => { kind.colour = kColours[Math.min(i, kColours.length - 1)]; });
  return new Map(sorted.map((kind) => [kind.name, kind]));
}

// The same by steps, of which more is darker.
function stepsBy(key, limits) {
  const kinds = kindsBy(key), steps = [0, ...limits].map((limit) => stepOf(limit, 1, limits));
  for (const kind of kinds.values()) kind.colour = kRamp[steps.indexOf(kind.name)];
  return kinds;
}

const kinds = {dtype: kindsBy("dtype"), encoding: kindsBy("encoding")};
const total = {tensors: rows.length, parameters: 0, bytes: 0, stored: 0};
for (const kind of kinds.encoding.values())
  for (const field of ["parameters", "bytes", "stored"]) total[field] += kind[field];
for (const row of rows) {
  row.share = stepOf(row.own, total.bytes, kShares);
  row.saved = stepOf(row.bytes - row.stored, row.bytes, kSavings);
}
kinds.share = stepsBy("share", kShares);
kinds.saved = stepsBy("saved", kSavings);
// Where all tensors are of one type, its colour would tell nothing.
let colourBy = ["dtype", "encoding", "saved", "share"].find((key) => kinds[key].size > 1) ?? "dtype";

// ---- the head of the page ---------------------------------------------------------------------

function drawHead() {
  const file = printable(listing.file);
  document.title = file + " - ztstream inspect";
  $("file").textContent = file;
  const format = listing.format === "zt" ? "zTensor " + (listing.version ?? "") : listing.format;
  const parts = [printable(format.trim()), counted(total.tensors, "tensor"),
                 counted(total.parameters, "parameter"), bytesText(total.stored) + " stored"];
  if (listing.files) parts.push(counted(listing.files.length, "file"));
  if (listing.shard_files) parts.push(counted(listing.shard_files.length, "shard"));
  $("summary").textContent = parts.join(" · ");
  if (total.stored < total.bytes) {
    const saved = total.bytes - total.stored;
    $("layers").textContent += " before compression";
    $("bar").hidden = false;
    $("stored").style.width = percent(total.stored, total.bytes).replace(" ", "");
    $("saved").textContent = bytesText(total.stored) + " of " + bytesText(total.bytes) +
      ": compression saved " + bytesText(saved) + " (" + percent(saved, total.bytes) + ")";
  }
  for (const warning of listing.warnings ?? []) {
    $("warnings").hidden = false;
    $("warnings").append(element("li", printable(warning)));
  }
}

function fillTable(table, titles, lines, foot) {
  const line = (cells, tag) => {
    const row = element("tr");
    row.append(...cells.map((cell) => cell instanceof Node ? cell : element(tag, cell)));
    return row;
  };
  const head = element("thead"), body = element("tbody"), last = element("tfoot");
  head.append(line(titles, "th"));
  body.append(...lines.map((cells) => line(cells, "td")));
  if (foot) last.append(line(foot, "td"));
  table.replaceChildren(head, body, last);
}

// The colours' legend, and what compression saved of each kind.
function drawKinds() {
  const cells = (kind) => [numberText(kind.tensors), kind.parameters.toLocaleString("en"),
                           bytesText(kind.bytes), bytesText(kind.stored),
                           percent(kind.bytes - kind.stored, kind.bytes)];
  const lines = [...kinds[colourBy].values()].slice(0, 100).map((kind) => {
    const name = element("td"), swatch = element("span", undefined, "swatch");
    swatch.style.background = kind.colour;
    name.append(swatch, kind.name);
    return [name, ...cells(kind)];
  });
  const titles = [colourBy === "share" ? "share of all" : colourBy, "tensors", "parameters", "content", "stored", "saved"];
  fillTable($("kinds"), titles, lines, lines.length > 1 ? ["all", ...cells(total)] : undefined);
}

function drawRest() {
  for (const [key, value] of Object.entries(listing.attributes ?? {})) {
    $("attributes").hidden = false;
    const list = $("attributes").querySelector("dl");
    list.append(element("dt", printable(key)), valueElement(value));
  }
  const show = (id, titles, list, cells) => {
    if (!list) return;
    $(id).hidden = false;
    fillTable($(id).querySelector("table"), titles, list.map(cells));
  };
  show("files", ["path", "bytes", "stored", "encoding"], listing.files, (file, i) => {
    const row = rowOf(file, i);
    const path = printable(String(file.attributes?.path ?? file.name));
    return [path, bytesText(row.bytes), bytesText(row.stored), row.encoding];
  });
  show("shards", ["name", "bytes", "digest"], listing.shard_files,
       (shard) => [printable(shard.path), bytesText(shard.bytes), printable(shard.digest)]);
}

// ---- the map: names folded by their dots and slashes, as in `inspect --tree` ------------------

function makeTree() {
  // `part` begins with what joins it to its parent's: a dot or a slash.
  const make = (part, parent) =>
    ({part, parent, children: new Map(), bytes: 0, stored: 0, tensors: 0, row: null});
  const root = make("", null);
  for (const row of rows) {
    let node = root, rest = row.name;
    for (let depth = 0; depth === 0 || rest !== ""; ++depth) {
      const joint = depth === 0 ? 0 : 1;
      const end = depth < kDeepest ? rest.slice(joint).search(/[./]/) : -1;
      const part = end < 0 ? rest : rest.slice(0, joint + end);
      let child = node.children.get(part);
      if (!child) node.children.set(part, child = make(part, node));
      node = child;
      rest = rest.slice(part.length);
    }
    node.row = row;
    for (; node; node = node.parent) {
      node.bytes += row.own;
      node.stored += row.ownStored;
      ++node.tensors;
    }
  }
  return root;
}

const numberOf = (node) => /^[./]?\d+$/.test(node.part) ? Number(node.part.replace(/^\D/, "")) : -1;

// The children by size, numbered layers by their numbers; of a chain of layers with one child each,
// the last.
function childrenOf(node) {
  if (node.sorted) return node.sorted;
  const children = [...node.children.values()].filter((child) => child.bytes > 0);
  node.numbered = children.length > 1 && children.every((child) => numberOf(child) >= 0);
  children.sort((a, b) => node.numbered ? numberOf(a) - numberOf(b) : b.bytes - a.bytes);
  node.sorted = children.map((child) => {
    while (!child.row && child.children.size === 1) child = child.children.values().next().value;
    return child;
  });
  return node.sorted;
}

// "layers.0", from `above` on.
function labelOf(node, above) {
  const parts = [];
  for (; node && node !== above; node = node.parent) parts.unshift(node.part);
  return parts.join("").slice(above && above.parent ? 1 : 0);
}

function colourOf(node) {
  while (childrenOf(node).length > 0) node = childrenOf(node)[0];
  return node.row ? kinds[colourBy].get(node.row[colourBy]).colour : kColours[0];
}

// Squarified (Bruls, Huizing, van Wijk 2000): rows of children along the shorter side; a row grows
// as long as that makes its rectangles more square. `inLines`: as text runs, from the left to the
// right and from the top down, for the order to be seen (Bederson, Shneiderman, Wattenberg 2002).
function squarify(children, box, inLines, place) {
  let {x, y, w, h} = box, bytes = children.reduce((sum, child) => sum + child.bytes, 0);
  for (let first = 0; first < children.length && w > 0 && h > 0;) {
    const across = w >= h && !inLines;
    const side = inLines ? w : Math.min(w, h), scale = w * h / bytes;
    let end = first, sum = 0, worst = Infinity;
    for (; end < children.length; ++end) {
      const more = sum + children[end].bytes, thick = more * scale / side;
      const largest = children[first].bytes * scale / thick;
      const least = children[end].bytes * scale / thick;
      const next = Math.max(largest / thick, thick / least);
      if (next > worst) break;
      worst = next;
      sum = more;
    }
    const thick = sum * scale / side;
    let at = 0;
    for (; first < end; ++first) {
      const length = children[first].bytes / sum * side;
      place(children[first], {x: across ? x : x + at, y: across ? y + at : y,
                              w: across ? thick : length, h: across ? length : thick});
      at += length;
    }
    if (across) { x += thick; w -= thick; } else { y += thick; h -= thick; }
    bytes -= sum;
  }
}

const property = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);
const tree = makeTree();
let shown = tree, boxes = [];

function drawLabel(pen, text, box, colour) {
  const columns = Math.floor((box.w - 8) / pen.measureText("m").width);
  if (columns < Math.min(text.length, 3) || box.h < 13) return;
  pen.fillStyle = colour;
  const shown = text.length <= columns ? text : text.slice(0, columns - 1) + "…";
  pen.fillText(shown, box.x + 4, box.y + 11);
}

function fill(pen, box, colour) {
  const gap = Math.min(box.w, box.h) > 6 ? 1 : 0;
  pen.fillStyle = colour;
  pen.fillRect(box.x, box.y, box.w - gap, box.h - gap);
}

function drawNode(pen, node, box, above, style) {
  boxes.push({node, ...box});
  const children = childrenOf(node);
  if (children.length === 0 || box.w <= 40 || box.h <= 34) {  // no room for labels within
    fill(pen, box, colourOf(node));
    drawLabel(pen, labelOf(node, above), box, "#16191d");
    return;
  }
  const head = 15, edge = 2;
  fill(pen, box, style.line);
  drawLabel(pen, labelOf(node, above), box, style.front);
  const inner = {x: box.x + edge, y: box.y + head, w: box.w - 2 * edge, h: box.h - head - edge};
  squarify(children, inner, node.numbered, (child, place) => drawNode(pen, child, place, node, style));
}

function drawMap() {
  const canvas = $("map"), ratio = window.devicePixelRatio || 1;
  const w = canvas.clientWidth, h = canvas.clientHeight;
  canvas.width = Math.round(w * ratio);
  canvas.height = Math.round(h * ratio);
  const pen = canvas.getContext("2d");
  pen.scale(ratio, ratio);
  pen.font = "11px ui-monospace, 'DejaVu Sans Mono', monospace";
  const style = {line: property("--line"), front: property("--front")};
  boxes = [];
  const children = childrenOf(shown);
  squarify(children.length > 0 ? children : shown.bytes > 0 ? [shown] : [], {x: 0, y: 0, w, h},
           shown.numbered, (child, place) => drawNode(pen, child, place, shown, style));
}

function drawPath() {
  const steps = [];
  for (let node = shown; node; node = node.parent) steps.unshift(node);
  $("path").replaceChildren(...steps.map((node, i) => {
    const button = element("button", i === 0 ? "all" : node.part);
    if (node === shown) button.setAttribute("aria-current", "true");
    button.onclick = () => show(node);
    return button;
  }));
}

// Shows a layer in the map, and its tensors in the table.
function show(node) {
  shown = node;
  drawPath();
  drawMap();
  refilter();
}

function boxAt(event) {
  const x = event.offsetX, y = event.offsetY;
  const holds = (box) => x >= box.x && x < box.x + box.w && y >= box.y && y < box.y + box.h;
  return boxes.findLast(holds);
}

function describe(event) {
  const box = boxAt(event);
  if (!box) return void ($("under").textContent = "\u00a0");
  const {node} = box, row = node.row;
  const share = bytesText(node.bytes) + ", " + percent(node.bytes, total.bytes) +
    (total.stored < total.bytes ? ", stored " + bytesText(node.stored) : "");
  const what = row && node.children.size === 0 ? row.dtype + " " + row.shape + ", " + row.encoding
    : counted(node.tensors, "tensor");
  $("under").textContent = labelOf(node, tree) + ": " + what + ", " + share;
}

// One layer deeper; a tensor by itself tells all of it.
function enter(event) {
  const box = boxAt(event);
  if (!box) return;
  let node = box.node;
  if (node === shown) return node.row && showDetail(node.row);
  while (!childrenOf(shown).includes(node)) node = node.parent;
  if (node.children.size > 0) show(node);
  else if (node.row) showDetail(node.row);
}

// ---- the table --------------------------------------------------------------------------------

// On a small screen the name has lines of its own, and the rest runs as text.
const columns = [
  {title: "name", of: (row) => row.name, width: "minmax(180px, 1fr)", className: "name"},
  {title: "dtype", of: (row) => row.dtype, width: "64px"},
  {title: "shape", of: (row) => row.shape, width: "116px",
   by: (row) => product(row.object.shape)},
  {title: "bytes", of: (row) => bytesText(row.bytes), width: "84px",
   by: (row) => row.bytes},
  {title: "stored", of: (row) => bytesText(row.stored), width: "84px",
   by: (row) => row.stored, className: "stored"},
  {title: "encoding", of: (row) => row.encoding + (row.tied ? ", tied" : ""), width: "80px"},
];
if (rows.some((row) => row.object.stats)) {
  for (const field of kStatistics) {
    const value = (row) => row.object.stats?.[field];
    const width = rows.some(value) ? "72px" : "44px";  // all zero, as nan and inf mostly are
    columns.push({title: field, of: (row) => numberText(value(row)), width, className: "extra",
                  by: (row) => Number.isFinite(Number(value(row) ?? NaN)) ? Number(value(row)) : -Infinity});
  }
}

let listed = rows, sorting = null;
const visible = new Map();  // index into `listed`: its element

const isNarrow = () => window.matchMedia("(max-width: 640px)").matches;

function drawTableHead() {
  const narrow = isNarrow();
  const widths = columns.map((column) => column.width);
  const least = widths.reduce((sum, width) => sum + 12 + parseInt(width.match(/\d+/), 10), 24);
  $("table").style.setProperty("--columns", widths.join(" "));
  $("table").style.setProperty("--least", narrow ? "0" : least + "px");
  $("head").style.paddingRight = 12 + $("rows").offsetWidth - $("rows").clientWidth + "px";
  $("head").replaceChildren(...columns.map((column) => {
    const cell = element("div"), button = element("button", column.title);
    decorate(cell, column);
    cell.setAttribute("role", "columnheader");
    if (sorting?.column === column)
      cell.setAttribute("aria-sort", sorting.down ? "descending" : "ascending");
    button.onclick = () => sortBy(column);
    cell.append(button);
    return cell;
  }));
}

function decorate(cell, column) {
  if (column.className) cell.classList.add(column.className);
  if (column.by) cell.classList.add("number");
}

// The first click sorts numbers from the largest and text from A, the second the other way; the
// third returns to the order of the file.
function sortBy(column) {
  const first = Boolean(column.by);
  if (sorting?.column !== column) sorting = {column, down: first};
  else sorting = sorting.down === first ? {column, down: !first} : null;
  drawTableHead();
  refilter();
}

function refilter() {
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const prefix = labelOf(shown, tree);
  listed = rows.filter((row) => {
    if (prefix && !(row.name + ".").startsWith(prefix + ".") && !row.name.startsWith(prefix + "/"))
      return false;
    if (words.length === 0) return true;
    row.words ??= [row.name, row.dtype, row.shape, row.shape.replaceAll(" × ", ","), row.encoding]
      .join("\n").toLowerCase();
    return words.every((word) => row.words.includes(word));
  });
  if (sorting) {
    const {column, down} = sorting, key = column.by ?? column.of, sign = down ? -1 : 1;
    const keys = new Map(listed.map((row) => [row, key(row)]));
    listed.sort((a, b) => {
      const x = keys.get(a), y = keys.get(b);
      return x < y ? -sign : x > y ? sign : a.index - b.index;
    });
  }
  $("count").textContent = listed.length === rows.length ? counted(rows.length, "tensor")
    : listed.length.toLocaleString("en") + " of " + counted(rows.length, "tensor");
  $("rows").scrollTop = 0;
  clearRows();
  drawRows();
}

function clearRows() {
  for (const made of visible.values()) made.remove();
  visible.clear();
}

function makeRow(index, height) {
  const row = listed[index], made = element("div", undefined, "row");
  made.setAttribute("role", "row");
  made.style.top = index * height + "px";
  for (const column of columns) {
    const cell = element("div", column.of(row));
    decorate(cell, column);
    cell.setAttribute("role", "cell");
    made.append(cell);
  }
  const name = made.firstChild;
  name.title = row.name;
  made.onclick = () => showDetail(row);
  $("rows").append(made);
  const lines = isNarrow() ? 2 : 1;
  name.textContent = shortened(row.name, lines * Math.floor(name.clientWidth / letterWidth()));
  return made;
}

// Of the font that names have.
let letter = 0;
function letterWidth() {
  if (letter > 0) return letter;
  const probe = element("span", "m".repeat(100), "name");
  probe.style.position = "absolute";
  $("rows").append(probe);
  letter = probe.getBoundingClientRect().width / 100;
  probe.remove();
  return letter;
}

// Makes the rows in sight, and removes the others.
function drawRows() {
  const list = $("rows"), height = parseInt(property("--row"), 10);
  $("space").style.height = listed.length * height + "px";
  const first = Math.max(Math.floor(list.scrollTop / height) - 4, 0);
  const end = Math.min(Math.ceil((list.scrollTop + list.clientHeight) / height) + 4, listed.length);
  for (const [index, made] of visible) {
    if (index >= first && index < end) continue;
    made.remove();
    visible.delete(index);
  }
  for (let index = first; index < end; ++index)
    if (!visible.has(index)) visible.set(index, makeRow(index, height));
}

function showDetail(row) {
  const text = JSON.stringify(row.object, null, 2);
  $("detail").querySelector("h2").textContent = row.name;
  $("detail").querySelector("pre").textContent =
    printable(text.slice(0, 20000)).replaceAll("\\u000a", "\n") + (text.length > 20000 ? "…" : "");
  $("detail").showModal();
}

// ---- the beginning ----------------------------------------------------------------------------

function redraw() {
  drawMap();
  drawTableHead();
  clearRows();
  drawRows();
}

for (const input of $("colours").querySelectorAll("input")) {
  input.checked = input.value === colourBy;
  input.parentElement.hidden = input.value === "saved" && total.stored === total.bytes;
}
drawHead();
drawKinds();
drawRest();
drawTableHead();
show(tree);
$("map").onmousemove = describe;
$("map").onmouseleave = () => { $("under").textContent = "\u00a0"; };
$("map").onclick = enter;
$("filter").oninput = refilter;
$("rows").onscroll = drawRows;
$("colours").onchange = (event) => {
  colourBy = event.target.value;
  drawKinds();
  drawMap();
};
window.addEventListener("resize", redraw);
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawMap);
// Milliseconds since the page was opened.
document.documentElement.dataset.ready = Math.round(performance.now());
