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
  const draw = async () => {
    const charts = [...document.querySelectorAll(".vega-chart")];
    if (!charts.length) return;
    for (const name of ["vega", "vega-lite", "vega-embed"]) await load(name);
    for (const chart of charts) {
      try {
        const spec = JSON.parse(chart.querySelector(".vega-spec").textContent);
        await vegaEmbed(chart.querySelector(".vega-view"), spec, { renderer: "svg", actions: false });
        chart.dataset.drawn = "live";
      } catch (error) { fail(chart, error); }
    }
  };
  draw().catch((error) => document.querySelectorAll(".vega-chart").forEach((chart) => fail(chart, error)));
})();
