// Search of the samples, and nothing else: the page is whole without it.
(() => {
  const box = document.querySelector(".search");
  if (!box) return;
  const field = document.getElementById("find");
  const count = document.getElementById("count");
  const plain = (text) => text.normalize("NFKC").toLowerCase();
  let samples = null;
  const index = () =>
    [...document.querySelectorAll("details.sample")].map((element) => ({
      element,
      text: plain([...element.querySelectorAll("bdi, code, dt")].map((part) => part.textContent).join("\n")),
    }));
  const search = () => {
    samples = samples || index();
    const words = plain(field.value).split(/\s+/).filter(Boolean);
    let found = 0;
    for (const { element, text } of samples) {
      const hit = words.every((word) => text.includes(word));
      element.hidden = !hit;
      found += hit;
    }
    count.textContent = words.length ? `${found} of ${samples.length}` : "";
  };
  field.addEventListener("input", search);
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      field.value = "";
      search();
    }
  });
  box.hidden = false;
})();
