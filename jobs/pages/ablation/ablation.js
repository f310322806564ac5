// Filter of the arms, and the arm that is drawn query by query: the page is whole without it.
(() => {
  const plain = (text) => text.normalize("NFKC").toLowerCase();

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

  filter();
  scatter();
})();
