"use strict";
// Without this the page reads the same: it only sorts, filters, copies and opens what is printed.
(() => {
  // A number as a cell has it: "1,000", "≥ 21.20", "10.74 .. 10.95", "(3/10)". Words are none.
  const NUMBER = /^\s*(?:≥\s*|ε\s*|\()?(-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)/;

  function key(cell, kind) {
    const text = cell ? cell.textContent.trim() : "";
    if (kind !== "number") return text === "" ? null : text;
    const found = NUMBER.exec(text);
    return found ? Number(found[1].replaceAll(",", "")) : null;
  }

  function sort(table, column, kind, direction) {
    const body = table.tBodies[0];
    const compare = kind === "number"
      ? (a, b) => a - b
      : new Intl.Collator("en", { numeric: true }).compare;
    const rows = Array.from(body.rows, (row) => [key(row.cells[column], kind), row]);
    rows.sort(([a], [b]) => {
      // What is missing comes last in both directions.
      if (a === null || b === null) return (a === null) - (b === null);
      return direction * compare(a, b);
    });
    body.replaceChildren(...rows.map(([, row]) => row));
  }

  function sortable(table) {
    const heads = Array.from(table.tHead.rows[0].cells);
    heads.forEach((head, column) => {
      const kind = head.dataset.sort;
      if (!kind) return;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        sort(table, column, kind, up ? 1 : -1);
      });
    });
  }

  function filterable(form) {
    const table = document.getElementById(form.dataset.filter);
    const count = document.querySelector(`[data-count="${form.dataset.filter}"]`);
    const rows = Array.from(table.tBodies[0].rows).filter((row) => row.cells.length > 1);
    const choices = Array.from(form.querySelectorAll("select"));
    // Names are searched, not numbers.
    const named = Array.from(table.tHead.rows[0].cells, (head) => head.dataset.sort === "text");
    const words = (row) => Array.from(row.cells).filter((_, n) => named[n]).map((c) => c.textContent);
    const seen = rows.map((row) => [row, words(row).join("\n").toLowerCase()]);
    const apply = () => {
      const wanted = form.elements.text.value.trim().toLowerCase();
      let shown = 0;
      for (const [row, names] of seen) {
        const fits = names.includes(wanted) && choices.every(({ value, dataset }) =>
          !value || row.cells[Number(dataset.column)].textContent === value);
        row.hidden = !fits;
        shown += fits;
      }
      const all = rows.length.toLocaleString("en");
      count.textContent = shown === rows.length
        ? `${all} rows`
        : `Showing ${shown.toLocaleString("en")} of ${all} rows`;
    };
    form.hidden = false;
    form.addEventListener("input", apply);
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => setTimeout(apply));
  }

  function copyable(code) {
    if (!navigator.clipboard) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy the command";
    const said = document.createElement("span");
    said.className = "note";
    said.setAttribute("role", "status");
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(code.textContent);
        said.textContent = " copied";
      } catch {
        getSelection().selectAllChildren(code);
        said.textContent = " selected: copy it with your keyboard";
      }
    });
    code.closest(".command").append(button, said);
  }

  // A link to a closed part, or into it, opens it.
  function openTarget() {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    const around = target && (target.closest("details") || target.querySelector(":scope > details"));
    if (around && !around.open) {
      around.open = true;
      target.scrollIntoView();
    }
  }

  document.querySelectorAll("table[data-sortable]").forEach(sortable);
  document.querySelectorAll("form[data-filter]").forEach(filterable);
  document.querySelectorAll(".command code").forEach(copyable);
  addEventListener("hashchange", openTarget);
  openTarget();
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = Array.from(document.querySelectorAll("details:not([open])"));
    closed.forEach((one) => { one.open = true; });
  });
  addEventListener("afterprint", () => closed.forEach((one) => { one.open = false; }));
})();
