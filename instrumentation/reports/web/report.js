// Shows the story that stands in this very file.
"use strict";
{
  const { ctxpager } = globalThis;
  const story = JSON.parse(document.getElementById("story").textContent);
  const root = document.querySelector("main");
  const view = ctxpager.show(root, story);
  const { data } = view;
  const when = (at) => new Date(1000 * at).toISOString().slice(0, 16).replace("T", " ");
  const times = data.calls.map((call) => call.at).filter((at) => at > 0 && at < 1e11);
  const first = times.reduce((one, other) => Math.min(one, other), Infinity);
  const last = times.reduce((one, other) => Math.max(one, other), 0);
  const facts = [
    ["harness", data.harness],
    ["model", [...new Set(data.calls.map((call) => call.model))].filter(Boolean).join(", ")],
    ["policy", data.policy],
    ["time", times.length ? `${when(first)} to ${when(last)} UTC` : ""],
  ].filter(([, value]) => value);
  document
    .getElementById("facts")
    .replaceChildren(
      ...facts.map(([name, value]) =>
        ctxpager.make("div", {}, ctxpager.make("dt", {}, name), ctxpager.make("dd", {}, value)),
      ),
    );
  root.dataset.ready = String(Math.round(performance.now()));
}
