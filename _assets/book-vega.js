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
  const LEAST = 150;
  const lines = (text, chars) => [text].flat().flatMap((line) => String(line).split(" ").reduce((out, word) => {
    const longer = out.length ? out[out.length - 1] + " " + word : word;
    return longer.length > chars || !out.length ? [...out, word] : [...out.slice(0, -1), longer];
  }, []));
  const each = (part, change) => {
    if (!part || typeof part !== "object") return;
    for (const [key, inner] of Object.entries(part)) if (!/^(data|datasets|config)$/.test(key)) each(inner, change);
    if (!Array.isArray(part)) change(part);
  };
  const isView = (part) => ("mark" in part || "layer" in part) && !("facet" in part);
  const narrow = (spec, room) => {
    const columns = Math.max(1, Math.floor(room / 170));
    spec.padding = 4;
    const layout = { bottom: { direction: "vertical", anchor: "start", margin: 8 } };    // one legend below the other
    spec.config.legend = { ...spec.config.legend, orient: "bottom", columns, layout };
    spec.config.title = { ...spec.config.title, frame: "bounds" };
    each(spec, (part) => {
      if (part.hconcat) { part.vconcat = part.hconcat; delete part.hconcat; }
      if (part.facet?.column) part.facet = { ...part.facet.column };
      if (part.encoding?.column) { part.encoding.facet = { ...part.encoding.column, columns: 1 }; delete part.encoding.column; }
      if (part.facet && part.spec) part.columns = 1;
      if (part.x?.value === spec.config.view.continuousWidth) part.x.value = "width";    // the right edge
      if (part.orient === "right" && !("mark" in part)) { part.orient = "bottom"; part.columns = columns; }
      if (part.encoding || part.layer || part.vconcat || part.spec) part.title = titled(part.title, room);
    });
    return spec;
  };
  const titled = (title, room) => {
    if (title === undefined || title === null) return title;
    const { text, subtitle, ...rest } = typeof title === "object" && !Array.isArray(title) ? title : { text: title };
    const whole = { ...rest, text: lines(text, room / 8.5) };
    return subtitle ? { ...whole, subtitle: lines(subtitle, room / 7) } : whole;
  };
  const tighten = (spec, missing) => {
    const views = [];
    const collect = (part) => {
      if (isView(part)) { views.push(part); return; }
      for (const inner of part.vconcat || part.concat || (part.spec ? [part.spec] : [])) collect(inner);
    };
    collect(spec);
    const wide = (view) => (typeof view.width === "number" ? view.width : spec.config.view.continuousWidth);
    const most = Math.max(LEAST, Math.max(...views.map(wide)) - missing);
    for (const view of views) view.width = Math.min(wide(view), most);
  };
  const show = async (view, spec) => {
    view.shown?.finalize();
    view.shown = await vegaEmbed(view, spec, { renderer: "svg", actions: false });
    return view.querySelector("svg").viewBox.baseVal.width;
  };
  const fit = async (chart) => {
    const room = chart.clientWidth;
    const spec = JSON.parse(chart.querySelector(".vega-spec").textContent);
    const view = chart.querySelector(".vega-view");
    let width = await show(view, spec);
    const slim = width > room ? narrow(spec, room) : spec;
    for (let tries = 0; width > room && tries < 3; tries++) {
      if (tries) tighten(slim, width - room);
      width = await show(view, slim);
    }
    chart.dataset.room = room;
    chart.dataset.drawn = "live";
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
