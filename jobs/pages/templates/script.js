// Search and order of the samples, filter of arms, the arm that is drawn query by query, order and CSV of the tables: the page is
// whole without it.
(() => {
  const plain = (text) => text.normalize("NFKC").toLowerCase();

  const samples = () => {
    const box = document.querySelector(".search");
    if (!box) return;
    const field = document.getElementById("find");
    const order = document.getElementById("order");
    const count = document.getElementById("count");
    const list = document.getElementById("list");
    const all = [...list.children];
    let texts = null;
    const search = () => {
      const parts = "bdi, code, dt, .err";
      texts ||= all.map((one) => plain([...one.querySelectorAll(parts)].map((part) => part.textContent).join("\n")));
      const words = plain(field.value).split(/\s+/).filter(Boolean);
      let found = 0;
      all.forEach((one, place) => {
        const hit = words.every((word) => texts[place].includes(word));
        one.hidden = !hit;
        found += hit;
      });
      count.textContent = words.length ? `${found} of ${all.length}` : "";
    };
    const value = (one, name) => (name in one.dataset ? Number(one.dataset[name]) : null);
    const sort = () => {
      const [name, sign] = { gain: ["gain", -1], loss: ["gain", 1], asked: ["asked", -1] }[order.value];
      list.append(...sorted(all, (one) => value(one, name), sign));
    };
    field.addEventListener("input", search);
    field.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      field.value = "";
      search();
    });
    order.addEventListener("change", sort);
    box.hidden = false;
  };

  // Stable; what has no value comes last, whichever way.
  const sorted = (items, value, sign) => {
    const keyed = items.map((item) => [value(item), item]);
    const compare = ([a], [b]) => {
      if (a === null || b === null) return (a === null) - (b === null);
      return sign * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
    };
    return keyed.sort(compare).map(([, item]) => item);
  };

  const NOTHING = new Set(["", "–", "not yet"]);
  const words = (cell) => cell.textContent.trim().replace(/\s+/g, " ");
  // The value of a cell: of a rounded figure the figure itself.
  const value = (cell) => {
    if (!cell) return null;
    if ("v" in cell.dataset) return Number(cell.dataset.v);
    const text = words(cell).replace(/^[=+] /, ""); // of a head: + idle
    if (NOTHING.has(text)) return null;
    const digits = text.replace("−", "-").replace("$", "").replaceAll(",", "");
    return /^[+-]?\d*\.?\d+$/.test(digits) ? Number(digits) : text;
  };

  const sortable = (table) => {
    const body = table.tBodies[0];
    // a line and the lines that are parts of it stay together
    const groups = [];
    for (const row of body.rows) row.className === "part" ? groups.at(-1).push(row) : groups.push([row]);
    if (groups.length < 2 || table.className === "heat") return;
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const numbers = groups.some(([row]) => typeof value(row.cells[column]) === "number");
        const turns = numbers ? ["descending", "ascending", null] : ["ascending", "descending", null];
        const next = turns[(turns.indexOf(head.getAttribute("aria-sort")) + 1) % 3];
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        if (next) head.setAttribute("aria-sort", next);
        const sign = next === "ascending" ? 1 : -1;
        const now = next ? sorted(groups, ([row]) => value(row.cells[column]), sign) : groups;
        body.append(...now.flat());
      });
    });
  };

  const quoted = (found) => {
    if (found === null) return "";
    if (typeof found === "number") return String(found);
    const safe = /^[=+@-](?![\d.]+ to )/.test(found) ? `'${found}` : found; // no formula for a spreadsheet
    return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  // One line of CSV: an interval is two fields, a part is named after the line that it is a part of.
  const line = (row, whole) =>
    [...row.cells].flatMap((cell, column) => {
      if ("parts" in cell.dataset) return cell.dataset.parts.split(",");
      const unit = "unit" in cell.dataset ? ` (${cell.dataset.unit})` : "";
      const found = value(cell);
      return quoted(column === 0 && row.className === "part" ? `${whole}: ${found}` : unit ? found + unit : found);
    });
  const csv = (table) => {
    let whole = "";
    const lines = [...table.rows].map((row) => {
      if (row.className !== "part") whole = words(row.cells[0]);
      return line(row, whole).join(",");
    });
    return lines.join("\r\n") + "\r\n";
  };
  const downloadable = (table) => {
    const button = document.createElement("button");
    button.className = "csv";
    button.textContent = "CSV";
    button.title = "download this table as CSV";
    button.addEventListener("click", () => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([csv(table)], { type: "text/csv" }));
      link.download = `${document.body.dataset.run}-${table.dataset.csv || table.closest("section").id}.csv`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
    (table.caption || table.createCaption()).append(" ", button);
  };

  const filter = () => {
    const family = document.getElementById("family");
    const name = document.getElementById("arm");
    if (!family) return;
    const others = document.getElementById("other-arms");
    const rows = [...document.querySelectorAll("#arm-table tbody tr, #other-arms tbody tr")];
    const names = new Map(rows.map((row) => [row, plain(row.cells[0].textContent)]));
    const apply = () => {
      const words = plain(name.value).split(/\s+/).filter(Boolean);
      let found = 0;
      for (const row of rows) {
        const hit = (!family.value || row.dataset.family === family.value) && words.every((word) => names.get(row).includes(word));
        row.hidden = !hit;
        found += hit;
      }
      const asked = family.value || words.length;
      if (asked && others) others.open = true;
      document.getElementById("arm-count").textContent = asked ? `${found} of ${rows.length}` : "";
    };
    family.addEventListener("change", apply);
    name.addEventListener("input", apply);
    name.closest(".filter").hidden = false;
  };

  const scatter = () => {
    const source = document.getElementById("scatter-data");
    if (!source) return;
    const data = JSON.parse(source.textContent);
    const select = document.getElementById("scatter-arm");
    const group = document.getElementById("scatter-circles");
    const place = ([low, high, start, end], value) => start + ((end - start) * (value / data.scale - low)) / (high - low);
    const circle = ([before, after, count, label]) => {
      const one = document.createElementNS("http://www.w3.org/2000/svg", "circle");
      const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
      title.textContent = `${count === 1 ? label : `${count} queries`}: ${(before / data.scale).toFixed(4)} → ${(after / data.scale).toFixed(4)}`;
      one.setAttribute("class", after > before ? "gain" : after < before ? "loss" : "even");
      one.setAttribute("cx", place(data.axis, before).toFixed(1));
      one.setAttribute("cy", place(data.up, after).toFixed(1));
      one.setAttribute("r", Math.min(data.radius[1], data.radius[0] * Math.sqrt(count)).toFixed(1));
      one.append(title);
      return one;
    };
    const area = (moved, sign) => {
      const [left, right] = data.ranks;
      const step = (right - left) / moved.length;
      const zero = place(data.gains, 0).toFixed(1);
      const shown = moved.map((value, rank) => [rank, value]).filter(([, value]) => value * sign > 0);
      if (!shown.length) return "";
      const steps = shown.map(([rank, value]) => `V${place(data.gains, value).toFixed(1)}H${(left + (rank + 1) * step).toFixed(1)}`);
      return `M${(left + shown[0][0] * step).toFixed(1)} ${zero}${steps.join("")}V${zero}Z`;
    };
    // At most so many of the sorted differences, evenly spread.
    const spread = (items, most) =>
      items.length <= most ? items : Array.from({ length: most }, (_, n) => items[Math.floor(((2 * n + 1) * items.length) / (2 * most))]);
    const draw = () => {
      const { moved, values } = data.arms[select.value];
      const found = new Map();
      values.forEach((after, key) => {
        const pair = `${data.base[key]} ${after}`;
        const known = found.get(pair);
        if (known) known[2] += 1;
        else found.set(pair, [data.base[key], after, 1, data.labels[key]]);
      });
      group.replaceChildren(...[...found.values()].sort((one, other) => other[2] - one[2]).map(circle));
      const sorted = spread(values.map((after, key) => after - data.base[key]).sort((one, other) => other - one), data.ranks[2]);
      document.getElementById("ranked-gain").setAttribute("d", area(sorted, 1));
      document.getElementById("ranked-loss").setAttribute("d", area(sorted, -1));
      const name = select.selectedOptions[0].textContent;
      document.getElementById("scatter-name").textContent = name;
      document.getElementById("scatter-up").textContent = name.slice(0, 60);
      const [gained, lost, even] = moved.map((count) => count.toLocaleString("en"));
      document.getElementById("scatter-moved").textContent = `${gained} queries gained, ${lost} lost, ${even} did neither`;
    };
    select.addEventListener("change", draw);
    select.closest(".filter").hidden = false;
  };

  samples();
  filter();
  scatter();
  for (const table of document.querySelectorAll("main table")) {
    sortable(table);
    downloadable(table);
  }
})();
