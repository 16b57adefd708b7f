// Cut this GPU: a few tasks with run times to move, FAR's family, its plan before and after phase 3, and the bound.
schedLab.add("cut", "Cut this GPU", (root, { call, data, h, slider, table }) => {
  const LETTERS = "ABCDE", MOST = 5, LEAST = 3, ROW = 22, LEFT = 34;
  const COLOURS = ["#3f77b5", "#b2560b", "#2e7d50", "#8a4fa3", "#a03048"];
  let model = "A100";
  const tasks = [[34, 0.3], [32, 0.9], [34, 1], [40, 1]].map(([alone, scaling]) => ({ alone, scaling }));
  const timesOf = ({ alone, scaling }, sizes) => sizes.map((size) => Math.round(10 * alone / size ** scaling) / 10);
  const seconds = (value) => `${value.toFixed(2)} s`;

  const chart = (found, phase, times, gpu, longest) => {
    const WIDTH = Math.max(280, Math.min(640, root.clientWidth || 640));      // text keeps its size on a phone
    const part = (name) => found[`${phase}.${name}`], tree = (name) => gpu[`gpu.tree.${name}`];
    const sizes = gpu["gpu.sizes"], slices = sizes.at(-1), x = (s) => LEFT + (WIDTH - LEFT - 8) * s / longest;
    const box = (instance, from, until, attributes) => h(":rect", { x: x(from), width: Math.max(x(until) - x(from), 1), y: ROW * tree("first_slice")[instance] + 2,
      height: ROW * tree("size")[instance] - 4, ...attributes });
    const bars = part("instance").map((instance, task) => {
      const from = part("start_s")[task], until = from + times[task][tree("size_index")[instance]];
      return [box(instance, from, until, { fill: COLOURS[task], rx: 3 }),
        h(":text", { x: x(from) + 5, y: ROW * (tree("first_slice")[instance] + tree("size")[instance] / 2) + 4, style: "fill:#fff;font-weight:600" }, LETTERS[task])];
    });
    const cuts = tree("gpu").flatMap((_, i) => [
      Number.isFinite(part("created_s")[i]) && box(i, part("created_s")[i] - tree("create_s")[i], part("created_s")[i], { class: "cutting" }),
      Number.isFinite(part("closing_s")[i]) && box(i, part("closing_s")[i], part("closing_s")[i] + tree("destroy_s")[i], { class: "cutting" })]).filter(Boolean);
    const rows = Array.from({ length: slices }, (_, s) => h(":text", { x: 2, y: ROW * s + 15 }, `S${s}`));
    const bound = x(found.bound_s), height = ROW * slices;
    const words = part("instance").map((instance, task) => `${LETTERS[task]} on ${tree("size")[instance]} slices from ${seconds(part("start_s")[task])}`);
    return h(":svg", { viewBox: `0 0 ${WIDTH} ${height + 18}`, role: "img", "aria-label": words.join(", ") }, rows, bars, cuts,
      h(":line", { x1: bound, x2: bound, y1: 0, y2: height, class: "bound" }), h(":text", { x: Math.min(bound, WIDTH - 90), y: height + 13 }, "no sooner"));
  };
  const phase = (found, name, title, note, times, gpu, longest) => {
    const end = found[`${name}.makespan_s`];
    return [h("h4", {}, title), h("p", { "data-phase": name }, `${note} It ends at ${seconds(end)}, ${(end / found.bound_s).toFixed(3)} times the bound.`),
      chart(found, name, times, gpu, longest)];
  };
  const out = h("div"), dials = h("div", { class: "dials" }), said = h("p", { role: "status", "aria-live": "polite" });
  const draw = () => {
    const gpu = data.gpus[model], sizes = gpu["gpu.sizes"], times = tasks.map((task) => timesOf(task, sizes));
    const found = call("cut", { ...gpu, times_s: times });
    const last = found.is_kept ? "refined" : "placed", [, moves, swaps] = found.made;
    const longest = 1.04 * Math.max(found["placed.makespan_s"], found["refined.makespan_s"]);
    const done = moves + swaps === 0 ? "There is nothing to move." : `${moves} moved, ${swaps} swapped; ${found.is_kept ? "this plan is kept." : "it does not end sooner, so phase 2 stays."}`;
    said.textContent = `FAR ends at ${seconds(found[`${last}.makespan_s`])}; no schedule ends before ${seconds(found.bound_s)}.`;
    out.replaceChildren(
      h("h4", {}, "Phase 1: how many slices for each task?"),
      table("The family of allocations: slices of each task, and the makespan that phase 2 makes of it",
        ["member", ...tasks.map((_, k) => LETTERS[k]), "makespan"],
        found.members.map((member, k) => ({ of: k, mark: k === found.member && "you",
          cells: [k === found.member ? `${k} (best)` : `${k}`, ...member.map((size) => `${sizes[size]}`), seconds(found.makespans_s[k])] }))),
      ...phase(found, "placed", "Phase 2: down the tree, longest task first", `Member ${found.member} is the best of ${found.members.length}.`, times, gpu, longest),
      ...phase(found, "refined", "Phase 3: move or swap what ends last", done, times, gpu, longest));
  };
  const layDials = () => dials.replaceChildren(...tasks.map((task, k) => h("fieldset", {}, h("legend", {}, `Task ${LETTERS[k]}`),
    slider(`Time of ${LETTERS[k]} on one slice`, { min: 2, max: 60, step: 1, value: task.alone, say: (value) => `${value} s`, change: (value) => { task.alone = value; draw(); } }).node,
    slider(`How well ${LETTERS[k]} scales`, { min: 0, max: 1, step: 0.1, value: task.scaling, say: (value) => value.toFixed(1), change: (value) => { task.scaling = value; draw(); } }).node)));
  const more = h("button", { type: "button", onclick: () => { tasks.push({ alone: 20, scaling: 0.5 }); change(); } }, "Add a task");
  const fewer = h("button", { type: "button", onclick: () => { tasks.pop(); change(); } }, "Take the last task away");
  const change = () => { more.disabled = tasks.length >= MOST; fewer.disabled = tasks.length <= LEAST; layDials(); draw(); };
  const choice = h("select", { onchange: (event) => { model = event.target.value; draw(); } }, Object.keys(data.gpus).map((name) => h("option", { selected: name === model }, name)));
  root.append(h("h3", {}, "How is one GPU cut for a batch of tasks?"),
    h("div", { class: "row" }, h("label", {}, "GPU ", choice), more, fewer), dials, said, out,
    h("p", { class: "note" }, "A task that scales with 0 gains nothing from more slices, one with 1 halves its time on twice as many. Dark edges are creations and destructions of instances."));
  addEventListener("resize", draw);
  change();
});
