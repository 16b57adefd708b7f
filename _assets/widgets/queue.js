// ANDREAS' queue: due dates to move, whom each policy lets run, and what both objectives say about it.
schedLab.add("queue", "A queue with due dates", (root, { call, data, example, h, slider, table }) => {
  const { jobs, nodes, configurations, policies } = data, KERNEL = "decide_all";
  const of = (path, count) => { const value = example(KERNEL, path); return Array.isArray(value) ? value : Array(count).fill(value); };
  const count = jobs.length, times = of("jobs.times_s", count * configurations.length), weight = of("jobs.weight_eur_per_s", count);
  const timeOf = (job, configuration) => times[job * configurations.length + configuration];
  const first = of("jobs.due_s", count).map((due) => due / 60), nowMin = example(KERNEL, "now_s") / 60;
  let due = first.slice();
  const out = h("div"), said = h("p", { role: "status", "aria-live": "polite" });
  const euros = (value) => Number.isFinite(value) ? `${value.toFixed(3)} EUR` : "nobody runs";
  const cell = (node, configuration, job) => {
    if (node < 0) return h("span", { class: "waits" }, "waits");
    const end = nowMin + timeOf(job, configuration) / 60, late = end - due[job];
    const [type, gpus] = configurations[configuration].split(",");
    return h("span", {}, `${nodes[node]}: ${gpus} ${type}`, h("br"), h("small", { class: late > 0 && "late" }, late > 0 ? `${late.toFixed(0)} min late` : `in time, ${end.toFixed(0)} min`));
  };
  const draw = () => {
    const found = call(KERNEL, { "jobs.due_s": due.map((minutes) => minutes * 60) });
    const least = Math.min(...found.paper_eur), best = policies.filter((_, k) => found.paper_eur[k] === least);
    said.textContent = `Least by Eq. 1 is ${euros(least)}, by ${best.join(", ")}.`;
    out.replaceChildren(table(`Whom each policy lets run at minute ${nowMin}`, ["policy", ...jobs, "Eq. 1", "as coded"],
      policies.map((name, k) => ({ of: name, mark: best.includes(name) && "you",
        cells: [name, ...jobs.map((_, job) => cell(found.node[k][job], found.configuration[k][job], job)), euros(found.paper_eur[k]), euros(found.code_eur[k])] }))));
  };
  const dials = jobs.map((name, job) => slider(`Due date of ${name}`, { min: 0, max: 180, step: 5, value: due[job], say: (value) => `minute ${value}`,
    change: (value) => { due[job] = value; draw(); } }));
  const reset = h("button", { type: "button", onclick: () => { due = first.slice(); dials.forEach((dial, job) => dial.set(due[job])); draw(); } }, "As in the toy");
  root.append(h("h3", {}, "Who runs now, and who may be late?"), ...dials.map((dial) => dial.node), h("div", { class: "buttons" }, reset), said, out,
    table("Run times in minutes, and what a minute of delay costs", ["job", ...configurations.map((name) => name.replace(",", " \u00d7 ")), "EUR per minute late"],
      jobs.map((name, job) => ({ of: `times ${name}`, cells: [name, ...configurations.map((_, c) => `${timeOf(job, c) / 60}`), (60 * weight[job]).toFixed(2)] }))),
    h("p", { class: "note" }, "Bold is least by Eq. 1. rg plays 200 random rounds. Eq. 1 charges a waiting job as if it began after five minutes on its slowest configuration, times 100."));
  draw();
});
