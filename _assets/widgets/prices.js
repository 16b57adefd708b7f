// Hadar's prices: jobs ask for GPUs one by one; each finds its best place at the prices of the moment, and makes it dearer.
schedLab.add("prices", "Hadar's prices", (root, { call, data, example, h, slider, table }) => {
  const { jobs, nodes, types, queue, low_at_one: lowAtOne } = data;
  const gpus = example("node_prices", "terms.cluster.node_gpus"), workers = example("ask", "terms.jobs.workers");
  const high = example("ask", "terms.high"), usual = lowAtOne / example("ask", "terms.low");
  const each = (value, count) => Array.isArray(value) ? value : Array(count).fill(value);
  const kind = each(example("ask", "terms.cluster.node_type"), nodes.length), gang = each(workers, jobs.length), room = each(gpus, nodes.length);
  const WIDTH = 200, HEIGHT = 150, number = (value) => Number(value).toPrecision(3);
  let order = [], eta = usual;
  const limits = () => ({ "terms.low": lowAtOne / eta, "terms.high": high });
  const pricesAt = (free) => call("node_prices", { free, ...limits() }).value;
  const replay = () => {
    let free = room.slice(), price = pricesAt(free);
    const asked = order.map((job) => {
      const { payoff, node, gpus: taken, after } = call("ask", { job, free, node_price: price, ...limits() });
      const paid = node.reduce((all, n, k) => all + price[n] * taken[k], 0);
      [free, price] = [after("free"), after("node_price")];
      return { job, payoff, node, taken, paid, runs: payoff > 0 };
    });
    return { free, price, asked };
  };
  const whereOf = ({ node, taken }) => node.map((n, k) => `${taken[k]} on ${nodes[n]}`).join(", ");
  const ladder = (n, free) => {
    const low = lowAtOne / eta, steps = Array.from({ length: room[n] + 1 }, (_, k) => pricesAt(room.map((all, m) => m === n ? all - k : all))[n]);
    const x = (k) => 28 + (WIDTH - 44) * k / room[n], y = (price) => HEIGHT - 24 - (HEIGHT - 44) * Math.log(price / low) / Math.log(high / low);
    const used = room[n] - free[n];
    return h("figure", {}, h("figcaption", {}, h("b", {}, nodes[n]), ` ${room[n]} \u00d7 ${types[kind[n]]}`),
      h(":svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${used} of ${room[n]} GPUs of ${nodes[n]} in use, price ${number(steps[used])}` },
        h(":polyline", { points: steps.map((price, k) => `${x(k)},${y(price)}`).join(" "), class: "ladder" }),
        steps.map((price, k) => h(":circle", { cx: x(k), cy: y(price), r: k === used ? 7 : 3.5, class: k === used ? "now" : "rung" })),
        steps.map((_, k) => h(":text", { x: x(k) - 3, y: HEIGHT - 5 }, `${k}`)),
        h(":text", { x: Math.min(x(used) + 8, WIDTH - 70), y: Math.max(y(steps[used]) - 9, 12) }, number(steps[used]))));
  };
  const ladders = h("div", { class: "ladders" }), list = h("div"), said = h("p", { role: "status", "aria-live": "polite" });
  const buttons = h("div", { class: "buttons", role: "group", "aria-label": "Jobs that may arrive" });
  const add = (job) => { order.push(job); draw(); };
  const draw = () => {
    const { free, asked } = replay(), last = asked.at(-1);
    ladders.replaceChildren(...nodes.map((_, n) => ladder(n, free)));
    const focused = document.activeElement?.dataset?.job;
    buttons.replaceChildren(...jobs.map((name, job) => h("button", { type: "button", "data-job": name, disabled: order.includes(job), onclick: () => add(job) },
      `${name}, ${gang[job]} GPU${gang[job] > 1 ? "s" : ""}`)));
    (buttons.querySelector(`[data-job="${focused}"]:not(:disabled)`) ?? (focused && buttons.querySelector("button:not(:disabled)")) ?? null)?.focus?.();
    next.disabled = order.length === jobs.length;
    undo.disabled = !order.length;
    said.textContent = !last ? "Nobody has asked yet." : !last.node.length ? `${jobs[last.job]} fits nowhere any more.`
      : last.runs ? `${jobs[last.job]} takes ${whereOf(last)} and pays ${number(last.paid)}.`
        : `${jobs[last.job]} finds its best place, ${whereOf(last)}, too dear.`;
    list.replaceChildren(table("Who has asked, first come first", ["job", "best place", "price", "gain", "runs"], asked.map((one) => ({ of: jobs[one.job],
      cells: [jobs[one.job], whereOf(one) || "none", one.node.length ? number(one.paid) : "", one.node.length ? number(one.payoff) : "", one.runs ? "yes" : "no"] }))));
  };
  const next = h("button", { type: "button", class: "primary", onclick: () => add(queue.find((job) => !order.includes(job))) }, "Next of Hadar's queue");
  const undo = h("button", { type: "button", onclick: () => { order.pop(); draw(); } }, "Undo");
  const reset = h("button", { type: "button", onclick: () => { order = []; draw(); } }, "Start again");
  const most = Math.log10(usual);
  const dial = slider("Scaling factor eta", { min: 0, max: most.toFixed(4), step: (most / 20).toFixed(4), value: most, say: (value) => number(10 ** value),
    change: (value) => { eta = 10 ** value; draw(); } });
  root.append(h("h3", {}, "What does a GPU cost as its node fills?"), h("p", {}, "Each dot is the price of the next GPU when so many are in use, on a logarithmic scale; the large one is now."),
    ladders, h("div", { class: "buttons" }, next, undo, reset), h("p", {}, "Or let one of them ask:"), buttons, dial.node, said, list,
    h("p", { class: "note" }, "The smaller eta is, the dearer an empty node. At the right end is the smallest eta for which the repaired theorem holds."));
  draw();
});
