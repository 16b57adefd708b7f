// Fills every <div class="widget" data-widget="NAME"> with a widget that runs the package's own kernels (chapter 89).
// Scripts are loaded beside this one; nothing is fetched, so pages opened from a folder work, too.
globalThis.schedLab ??= (() => {
  const here = globalThis.document?.currentScript?.src.replace(/[^/]*$/, "") ?? "";
  const stores = {}, fronts = {}, loaded = {};
  const ARRAYS = { int64: BigInt64Array, int32: Int32Array, float64: Float64Array, bool: Uint8Array };
  const product = (shape) => shape.reduce((all, size) => all * size, 1);
  const shapeOf = (value) => Array.isArray(value) ? [value.length, ...(Array.isArray(value[0]) ? shapeOf(value[0]) : [])] : [];
  const nested = (flat, shape) => shape.length < 2 ? flat
    : Array.from({ length: shape[0] }, (_, row) => {
      const size = product(shape.slice(1));
      return nested(flat.slice(row * size, (row + 1) * size), shape.slice(1));
    });

  // Kernels of a widget as functions: call("weigh", { "world.state.cpu_left_milli": [...] }) takes what is not given from
  // the example, and returns the answer by field; after(path) reads an array that the kernel has changed.
  const open = async (name) => {
    const { wasm, kernels, data } = stores[name];
    const bytes = Uint8Array.from(atob(wasm), (letter) => letter.charCodeAt(0));
    const module = await WebAssembly.compile(bytes);
    const env = Object.fromEntries(WebAssembly.Module.imports(module).map((each) => [each.name, Math[each.name]]));
    const instance = await WebAssembly.instantiate(module, { env });
    const { memory, free_all: freeAll, __heap_base: heap } = instance.exports;
    const view = (type, at, count) => new ARRAYS[type](memory.buffer, at, count);
    const read = (type, at, shape) => nested(Array.from(view(type, at, product(shape)), Number), shape);
    const call = (kernel, given = {}) => {
      const { slots, takes, gives } = kernels[kernel];
      const table = Math.ceil(heap.value / 16) * 16;
      const ints = view("int64", table, slots), floats = view("float64", table, slots);
      const unknown = Object.keys(given).find((path) => !takes.some((take) => take.path === path));
      if (unknown) throw new Error(`${kernel} takes no ${unknown}`);
      let top = table + 8 * slots;
      for (const { path, slot, type, shape, value } of takes) {
        const now = given[path] ?? value;
        if (!shape) {
          if (type === "float64") floats[slot] = now; else ints[slot] = BigInt(now);
          continue;
        }
        const size = Array.isArray(now) && path in given ? shapeOf(now) : shape;
        if (size.length !== shape.length) throw new Error(`${path} has ${size.length} dimensions, not ${shape.length}`);
        top = Math.ceil(top / 16) * 16;
        const into = view(type, top, product(size));
        if (Array.isArray(now)) into.set(type === "int64" ? now.flat(9).map(BigInt) : now.flat(9));
        else into.fill(type === "int64" ? BigInt(now) : now);
        [top, ...size].forEach((number, k) => { ints[slot + k] = BigInt(number); });
        top += into.byteLength;
      }
      freeAll(Math.ceil(top / 16) * 16);
      instance.exports[kernel](table, table);
      const array = ({ slot, type, ndim }) =>
        read(type, Number(ints[slot]), Array.from(ints.slice(slot + 1, slot + 1 + ndim), Number));
      const answer = {};
      for (const give of gives)
        answer[give.path || "value"] = give.ndim ? array(give) : give.type === "float64" ? floats[give.slot] : Number(ints[give.slot]);
      const after = (path) => {
        const take = takes.find((each) => each.path === path);
        return array({ ...take, ndim: take.shape.length });
      };
      return { ...answer, after };
    };
    return { call, data, example: (kernel, path) => kernels[kernel].takes.find((take) => take.path === path)?.value };
  };

  // One element: h("button", { class: "go", onclick: f }, "Go"); names with a colon before them are SVG: h(":rect", ...).
  const h = (tag, attributes = {}, ...children) => {
    const node = tag.startsWith(":") ? document.createElementNS("http://www.w3.org/2000/svg", tag.slice(1)) : document.createElement(tag);
    for (const [key, value] of Object.entries(attributes))
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (value === true) node.setAttribute(key, "");
      else if (value !== false && value != null) node.setAttribute(key, value);
    node.append(...children.flat(9).filter((child) => child != null));
    return node;
  };
  // A labelled slider that says its value in words.
  const slider = (label, { min, max, step, value, say, change }) => {
    const out = h("output", {}, say(value));
    const input = h("input", { type: "range", min, max, step, value, "aria-label": label, "aria-valuetext": say(value) });
    const show = (now) => { out.textContent = say(now); input.setAttribute("aria-valuetext", say(now)); };
    input.addEventListener("input", () => { show(+input.value); change(+input.value); });
    return { node: h("label", { class: "slider" }, h("span", {}, label), input, out), set: (now) => { input.value = now; show(now); } };
  };
  const table = (caption, head, rows) => h("div", { class: "scrolled", tabindex: 0, role: "region", "aria-label": caption },
    h("table", {}, h("caption", {}, caption), h("thead", {}, h("tr", {}, head.map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, rows.map(({ of, cells, mark }) => h("tr", { "data-row": of, class: mark },
        cells.map((text, k) => k ? h("td", {}, text) : h("th", { scope: "row" }, text)))))));

  const script = (file) => loaded[file] ??= new Promise((done, failed) => {
    document.head.append(h("script", { src: here + file, onload: done, onerror: () => failed(new Error(`cannot load ${file}`)) }));
  });
  // Who works by keyboard stays in the widget when the button that was pressed is gone, or out of use.
  const keepFocus = ({ detail, currentTarget: root }) => {
    if (detail || root.contains(document.activeElement) && !document.activeElement.disabled) return;
    (root.querySelector("button.primary:not(:disabled)") ?? root.querySelector("button:not(:disabled)"))?.focus();
  };
  const fill = async (place) => {
    const name = place.dataset.widget;
    try {
      if (!stores[name]) await script(`${name}.kernels.js`);
      if (!fronts[name]) await script(`${name}.js`);
      const lab = { ...(await open(name)), h, slider, table };
      const root = h("section", { "aria-label": fronts[name].title });
      place.replaceChildren(root);
      root.addEventListener("click", keepFocus);
      fronts[name].show(root, lab);
      place.dataset.state = "ready";
    } catch (error) {
      place.dataset.state = "failed";
      place.replaceChildren(h("p", { role: "alert" }, `This widget could not start: ${error.message}`));
      console.error("widget:", error);
    }
  };
  const fillAll = () => {
    const places = [...document.querySelectorAll(".widget[data-widget]")];
    if (places.length) document.head.append(h("link", { rel: "stylesheet", href: `${here}widgets.css` }));
    places.forEach(fill);
  };
  if (here) {
    if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", fillAll); else fillAll();
  }
  return { store: (name, kept) => { stores[name] = kept; }, add: (name, title, show) => { fronts[name] = { title, show }; }, open, fill };
})();
