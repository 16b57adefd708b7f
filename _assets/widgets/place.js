// Place the next task: a small cluster, four policies, and whoever clicks. Every score and every watt is the package's.
schedLab.add("place", "Place the next task", (root, { call, data, example, h, slider, table }) => {
  const POLICIES = ["FGD", "PWR", "mix", "joint"], MIX = 2, STAGES = ["early", "middle", "late"];
  const { nodes, classes, arrivals, num_tasks: numTasks } = data;
  const STATE = ["cpu_left_milli", "memory_left_mib", "gpu_left_milli"].map((name) => `world.state.${name}`);
  const empty = {};
  for (const [k, path] of STATE.entries()) {
    const per = nodes.map(([, vcpu, gpus]) => [vcpu * 1000, vcpu * 4096, Array.from({ length: 4 }, (_, g) => g < gpus ? 1000 : 0)][k]);
    empty[path] = per;
  }
  let alpha = 0.1, past = [], now;
  const weights = () => [[1000, 0, 0], [0, 1000, 0], [1000 - Math.round(1000 * alpha), Math.round(1000 * alpha), 0], [0, 0, 1000]];
  const weigh = (state, task) => call("weigh", { ...state, task, "rules.weights": weights() });
  const put = (state, task, node, mask) => {
    const { value, after } = call("put", { ...state, task, node, gpu_mask: mask });
    return { state: Object.fromEntries(STATE.map((path) => [path, after(path)])), share: value };
  };
  const watts = (share) => share.reduce((all, [cpu, gpu]) => all + cpu + gpu, 0) / 1000;
  const lost = (share) => share.reduce((all, node) => all + node[2], 0) / numTasks / 1000;
  const start = () => ({ state: empty, share: put(empty, 0, -1, 0).share, step: 0, failed: 0, said: "The cluster is empty." });
  const places = (run, node, mask) => {
    const task = arrivals[run.step];
    const next = node < 0 ? { state: run.state, share: run.share } : put(run.state, task, node, mask);
    return { ...next, step: run.step + 1, failed: run.failed + (node < 0) };
  };
  const alone = (policy, steps) => {
    let run = start();
    while (run.step < steps) {
      const seen = weigh(run.state, arrivals[run.step]);
      run = places(run, seen.node[policy], seen.gpu_mask[policy]);
    }
    return run;
  };
  const gpusOf = (mask) => [0, 1, 2, 3].filter((gpu) => mask >> gpu & 1);
  const asks = ([cpu, milli, gpus]) => `${milli < 1000 ? `${milli / 1000} of a GPU` : gpus === 1 ? "1 GPU" : `${gpus} GPUs`} and ${cpu / 1000} vCPU`;

  const step = (node, mask, who) => {
    const task = now.step + 1, name = node < 0 ? null : nodes[node][0];
    past.push(now);
    now = places(now, node, mask);
    const on = gpusOf(mask).join(" and ");
    now.said = node < 0 ? `Task ${task} fits on no node: it has failed.`
      : `${who} put task ${task} on ${name}, GPU ${on}. The cluster draws ${watts(now.share).toFixed(1)} W.`;
    draw();
  };
  const cards = h("div", { class: "cards" }), next = h("p", { class: "next" }), said = h("p", { role: "status", "aria-live": "polite" });
  const side = h("div");
  const button = (text, act, primary) => h("button", { type: "button", class: primary && "primary", onclick: act }, text);
  const go = button("Let the mix choose", () => {
    const seen = weigh(now.state, arrivals[now.step]);
    step(seen.node[MIX], seen.gpu_mask[MIX], "The mix");
  }, true);
  const undo = button("Undo", () => { now = past.pop(); draw(); });
  const reset = button("Start again", () => { past = []; now = start(); draw(); });
  const dial = slider("Weight of power, alpha", { min: 0, max: 1, step: 0.05, value: alpha, say: (value) => value.toFixed(2),
    change: (value) => { alpha = value; draw(); } });

  const card = (seen, scores, masks, n) => {
    const [name, vcpu, gpus, model] = nodes[n];
    const left = now.state[STATE[2]][n], cpu = now.state[STATE[0]][n];
    const fits = seen && seen.after("memory.is_feasible")[0][n] === 1;
    const chosen = seen ? POLICIES.filter((_, p) => seen.node[p] === n) : [];
    const mix = fits && (1 - alpha) * seen.points[0][n] + alpha * seen.points[1][n];
    const [fgd, pwr, joint] = fits ? seen.points.map((row) => row[n]) : [];
    const part = (label, value) => h("span", { class: "part" }, h("b", {}, label), ` ${value}`);
    const mask = fits ? masks[alpha > 0.5 ? 1 : 0][0][n] : 0;
    return h("button", { type: "button", class: "card", "data-node": name, disabled: !fits, onclick: () => step(n, mask, "You") },
      h("span", { class: "name" }, `${name} `, h("small", {}, `${gpus} \u00d7 ${model}`)),
      h("span", { class: "gpus", role: "img", "aria-label": `GPUs free: ${left.slice(0, gpus).map((milli) => milli / 1000).join(", ")}` },
        left.slice(0, gpus).map((milli, g) => h("span", { class: mask >> g & 1 ? "gpu here" : "gpu" },
          h("span", { class: "used", style: `height:${100 - milli / 10}%` })))),
      h("small", {}, `${cpu / 1000} of ${vcpu} vCPU free`),
      fits ? h("span", { class: "parts" }, part("FGD", fgd), part("PWR", `${pwr} (${scores[1][0][n] <= 0 ? "+" : ""}${-scores[1][0][n] / 1000} W)`),
        part("mix", mix.toFixed(1)), part("joint", `${(joint / 1000).toFixed(0)} W`)) : h("span", { class: "parts" }, seen ? "does not fit" : ""),
      h("span", { class: "chosen" }, chosen.map((policy) => h("span", { class: "badge" }, policy))));
  };
  const draw = () => {
    const task = arrivals[now.step], isOver = task === undefined;
    const seen = isOver ? null : weigh(now.state, task);
    const scores = seen?.after("memory.score"), masks = seen?.after("memory.gpu_mask");
    const focused = document.activeElement?.dataset?.node;
    next.replaceChildren(...(isOver ? ["All tasks have arrived."] : [h("b", {}, `Task ${now.step + 1} of ${arrivals.length}`),
      ` asks for ${asks(classes[task])}. `, seen.node[0] < 0 ? "It fits on no node." : `Joint is at its ${STAGES[seen.stage]} prices.`]));
    cards.replaceChildren(...nodes.map((_, n) => card(seen, scores, masks, n)));
    cards.querySelector(`[data-node="${focused}"]`)?.focus();
    go.disabled = isOver;
    go.textContent = seen && seen.node[0] < 0 ? "Let it fail" : "Let the mix choose";
    undo.disabled = !past.length;
    said.textContent = now.said;
    const rows = [["you", now], ...POLICIES.map((name, p) => [name, alone(p, now.step)])];
    side.replaceChildren(table(`After ${now.step} tasks, had each placed all of them`, ["who", "power", "GPU that nobody can use", "failed"],
      rows.map(([name, run], k) => ({ of: name, mark: k ? null : "you",
        cells: [name === "mix" ? `mix, alpha ${alpha.toFixed(2)}` : name, `${watts(run.share).toFixed(1)} W`, lost(run.share).toFixed(3), `${run.failed}`] }))));
  };
  root.append(h("h3", {}, "Where does the next task go?"), next, dial.node, cards,
    h("p", { class: "buttons" }, go, undo, reset), said, side,
    h("p", { class: "note" }, "Click a node to put the task there. FGD counts from 0 to 100, 50 if nothing is lost; PWR from 0 to 100, 100 for fewest watts; ",
      "the mix is their weighted sum; joint is the rise of the node's worth in watts."));
  now = start();
  draw();
});
