// Draw the book's Vega-Lite charts with the vendored scripts; pages without a chart load nothing more.
(() => {
  const here = document.currentScript.src.replace(/[^/]*$/, "");
  const load = (name) => new Promise((ok, no) => {
    const s = document.createElement("script");
    s.src = here + "vendor/vega/" + name + ".min.js";
    s.onload = ok; s.onerror = () => no(new Error("cannot load " + s.src));
    document.head.append(s);
  });
  const fail = (chart, error) => {
    chart.dataset.drawn = "failed";
    console.error("chart:", error.message);
  };
  // A chart that is wider than its column is laid out anew, because text scaled down with it could not be read: one
  // panel per row, legends below, titles in lines, and plots that give up the width that is missing.
  const LEAST = [150, 150, 100, 60, 40];    // of a plot: less from try to try
  const ruler = document.createElement("canvas").getContext("2d");
  const lines = (text, room, font) => [text].flat().flatMap((line) => String(line).split(" ").reduce((out, word) => {
    const longer = out.length ? out[out.length - 1] + " " + word : word;
    ruler.font = font;
    const fits = out.length && ruler.measureText(longer).width <= room;
    return fits ? [...out.slice(0, -1), longer] : [...out, word];
  }, []));
  const each = (part, change) => {
    if (!part || typeof part !== "object") return;
    for (const [key, inner] of Object.entries(part)) if (!/^(data|datasets|config)$/.test(key)) each(inner, change);
    if (!Array.isArray(part)) change(part);
  };
  const isView = (part) => ("mark" in part || "layer" in part) && !("facet" in part);
  const narrow = (spec, room) => {
    const columns = Math.max(1, Math.floor(room / 170));
    spec.padding = { left: 4, top: 4, bottom: 4, right: 10 };
    const layout = { bottom: { direction: "vertical", anchor: "start", margin: 8 } };    // one legend below the other
    spec.config.legend = { ...spec.config.legend, orient: "bottom", columns, layout };
    spec.config.title = { ...spec.config.title, frame: "bounds" };
    each(spec, (part) => {
      if (part.hconcat) { part.vconcat = part.hconcat; delete part.hconcat; }
      if (part.facet?.column) part.facet = { ...part.facet.column };
      if (part.encoding?.column) { part.encoding.facet = { ...part.encoding.column, columns: 1 }; delete part.encoding.column; }
      if (part.facet && part.spec) part.columns = 1;
      if (part.x?.value === spec.config.view.continuousWidth) part.x.value = "width";    // the right edge
      for (const { legend } of Object.values(part.encoding || {}))
        if (/right|top/.test(legend?.orient)) { legend.orient = "bottom"; legend.columns = columns; }
      const x = part.encoding?.x, axis = `${spec.config.axis.titleFontSize}px ${spec.config.font}`;
      for (const named of [x, x?.axis, part.facet])
        if (named?.title) named.title = lines(named.title, room - 80, axis);
      if (part.encoding || part.layer || part.vconcat || part.spec) part.title = titled(part.title, room, spec.config);
    });
    return spec;
  };
  const LEAST_PX = 11.5;    // of all text, at any width
  const legible = (spec) => {
    const sizes = { labelFontSize: 12, titleFontSize: 12 };
    spec.config.header = { ...sizes, ...spec.config.header };
    each({ ...spec, config: null }, (part) => {
      for (const key of ["fontSize", "labelFontSize", "titleFontSize", "subtitleFontSize"])
        if (part[key] < LEAST_PX) part[key] = LEAST_PX;
      if (part.type === "text" && part.size < LEAST_PX) part.size = LEAST_PX;
    });
    return spec;
  };
  const titled = (title, room, { font, title: { fontSize, fontWeight, subtitleFontSize } }) => {
    if (title === undefined || title === null) return title;
    const { text, subtitle, ...rest } = typeof title === "object" && !Array.isArray(title) ? title : { text: title };
    const inside = room - 15;    // the padding of `narrow`
    const whole = { ...rest, text: lines(text, inside, `${fontWeight} ${fontSize}px ${font}`) };
    return subtitle ? { ...whole, subtitle: lines(subtitle, inside, `${subtitleFontSize}px ${font}`) } : whole;
  };
  const oneColumn = (spec) => {
    spec.config.legend.columns = 1;
    each(spec, (part) => {
      for (const { legend } of Object.values(part.encoding || {})) if (legend?.columns) legend.columns = 1;
    });
  };
  const tighten = (spec, missing, least) => {
    const views = [];
    const collect = (part) => {
      if (isView(part)) { views.push(part); return; }
      for (const inner of part.vconcat || part.concat || (part.spec ? [part.spec] : [])) collect(inner);
    };
    collect(spec);
    const wide = (view) => (typeof view.width === "number" ? view.width : spec.config.view.continuousWidth);
    const most = Math.max(least, Math.max(...views.map(wide)) - missing);
    for (const view of views) view.width = Math.min(wide(view), most);
  };
  const show = async (view, spec) => {
    view.shown?.finalize();
    view.shown = await vegaEmbed(view, spec, { renderer: "svg", actions: false });
    const svg = view.querySelector("svg");
    svg.setAttribute("role", "img");    // one picture with one description, not a thousand marks
    svg.setAttribute("aria-label", spec.description);
    for (const marks of svg.children) marks.setAttribute("aria-hidden", "true");
    view.removeAttribute("role");
    view.removeAttribute("aria-label");
    return svg.viewBox.baseVal.width;
  };
  const fit = async (chart) => {
    const room = chart.clientWidth;
    const spec = legible(JSON.parse(chart.querySelector(".vega-spec").textContent));
    const view = chart.querySelector(".vega-view");
    let width = await show(view, spec);
    const slim = width > room ? narrow(spec, room) : spec;
    for (let tries = 0; width > room && tries < 7; tries++) {
      if (tries === 1) oneColumn(slim);
      if (tries > 1) tighten(slim, width - room, LEAST[tries - 2]);
      width = await show(view, slim);
    }
    offer(chart, spec);
    chart.dataset.room = room;
    chart.dataset.drawn = "live";
  };
  // The values of a chart as a table, made when it is opened: what the boxes at the mouse say, row by row; without
  // such boxes, what the marks show.
  const MOST_ROWS = 500;
  const fieldsOf = (spec) => {
    const tips = new Map(), shown = new Map(), facets = new Map();
    const note = (fields, channel, axis) => {
      if (!channel?.field) return;
      const inner = { ...channel.axis, ...channel.legend };
      const title = [channel.title ?? inner.title ?? channel.field].flat().join(" ").trim() || channel.field;
      const format = channel.format ?? inner.format;
      if (!fields.has(channel.field)) fields.set(channel.field, { title, format, axis });
    };
    each(spec, (part) => {
      for (const channel of [part.facet].flatMap((f) => [f, f?.row, f?.column])) note(facets, channel);
      for (const [name, channel] of Object.entries(part.encoding || {})) {
        if (/^(row|column|facet)$/.test(name)) note(facets, channel);
        else for (const one of [channel].flat()) note(name === "tooltip" ? tips : shown, one, name);
      }
    });
    for (const one of [tips, shown]) for (const [field, how] of facets) if (!one.has(field)) one.set(field, how);
    return { tips, shown };
  };
  const written = (value, format) => {
    if (value === undefined || value === null || value === "") return "–";
    if (typeof value !== "number") return String(value);
    try { return format ? vega.defaultLocale().format(format)(value) : String(+value.toPrecision(6)); } catch { return String(value); }
  };
  const tablesOf = (chart, spec) => {
    const { tips, shown } = fieldsOf(spec);
    const lanes = Object.values(spec.datasets || {}).flat().filter((row) => "middle" in row && "name" in row);
    const tables = new Map();
    const visit = (item) => {
      if (item.marktype && item.marktype !== "group") {
        if (item.role !== "mark" || /voronoi/.test(item.name)) return;
        for (const { datum } of item.items) {
          const row = datum?.datum ?? datum;
          if (!row) continue;
          const known = tips.size ? tips : shown;
          const columns = [...known].filter(([field]) => field in row);
          if (!columns.length) continue;
          const lane = "top" in row && lanes.find((one) => Math.abs(one.middle - row.top - 0.46) < 0.1);
          const key = JSON.stringify(columns.map(([field]) => field));
          if (!tables.has(key)) tables.set(key, { columns, rows: new Map(), lane: false });
          const cells = columns.map(([field, how]) => written(row[field], how.format));
          if (lane) tables.get(key).lane = cells.push(lane.name) > 0;
          tables.get(key).rows.set(JSON.stringify(cells), cells);
        }
        return;
      }
      for (const inner of item.items || []) visit(inner);
    };
    visit(chart.querySelector(".vega-view").shown.view.scenegraph().root);
    const all = [...tables.values()];    // what says less than another says it again
    const within = (one, other) => one !== other && one.columns.every(([field]) => other.columns.some(([its]) => its === field));
    return all.filter((one) => !all.some((other) => within(one, other)));
  };
  const cell = (kind, text) => Object.assign(document.createElement(kind), { textContent: text });
  const tableOf = ({ columns, rows, lane }) => {
    const table = document.createElement("table");
    const step = Math.ceil(rows.size / MOST_ROWS);
    const kept = [...rows.values()].filter((_, number) => number % step === 0);
    if (step > 1) table.append(cell("caption", `One row of ${step}, of ${rows.size}`));
    const head = table.createTHead().insertRow();
    for (const title of [...columns.map(([, how]) => how.title), ...(lane ? ["lane"] : [])]) {
      head.append(Object.assign(cell("th", title), { scope: "col" }));
    }
    const body = table.createTBody();
    for (const cells of kept) {
      const row = body.insertRow();
      for (const text of cells) row.append(cell("td", text));
    }
    return table;
  };
  const offer = (chart, spec) => {
    const values = chart.querySelector(".vega-values");
    if (!values || values.ontoggle) return;
    const fill = () => {
      if (!values.open || values.querySelector(".vega-rows")) return;
      const box = Object.assign(document.createElement("div"), { className: "vega-rows", tabIndex: 0 });
      box.setAttribute("role", "region");
      box.setAttribute("aria-label", "Values of the chart");
      box.append(...tablesOf(chart, spec).map(tableOf));
      values.append(box);
    };
    values.ontoggle = fill;
    fill();
    if ((spec.params || []).some((param) => param.bind === "scales")) {
      const hint = "Ctrl and the wheel enlarge, dragging moves, a double click resets.";
      values.before(Object.assign(cell("p", hint), { className: "vega-hint" }));
    }
    for (const bound of chart.querySelectorAll(".vega-bindings :is(select, input)"))
      bound.addEventListener("change", () => { values.querySelector(".vega-rows")?.remove(); setTimeout(fill, 200); });
  };
  const draw = async () => {
    const charts = [...document.querySelectorAll(".vega-chart")].filter((chart) => chart.dataset.room != chart.clientWidth);
    if (charts.length && !window.vegaEmbed) for (const name of ["vega", "vega-lite", "vega-embed"]) await load(name);
    for (const chart of charts) await fit(chart).catch((error) => fail(chart, error));
  };
  const all = () => draw().catch((error) => document.querySelectorAll(".vega-chart").forEach((chart) => fail(chart, error)));
  let last = all();
  let pause;
  window.addEventListener("resize", () => {
    clearTimeout(pause);
    pause = setTimeout(() => { last = last.then(all); }, 150);
  });
})();
