// Search and order of the samples, order and CSV of the tables: the page is whole without it.
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

  samples();
  for (const table of document.querySelectorAll("main table")) {
    sortable(table);
    downloadable(table);
  }
})();
