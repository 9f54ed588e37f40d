// The dashboard: which view is shown, and how it is kept up to date while anybody looks.
"use strict";
{
  const { ctxpager } = globalThis;
  const main = document.getElementById("main");
  const title = document.getElementById("title");
  const state = document.getElementById("state");
  const AFTER_FAILURE = 4_000;
  const live = new ctxpager.Live(document.getElementById("warm"), tell);
  let view = null;
  let timer = 0;
  let shown = null;

  function tell(text, wrong = false) {
    if (state.textContent !== text) state.textContent = text;
    state.classList.toggle("db-wrong", wrong);
  }

  // An answer, or null where nothing is new.
  async function ask(what, asked) {
    const response = await fetch(`/ui/api/${what}?${new URLSearchParams(asked)}`, { cache: "no-store" });
    if (response.status === 204) return null;
    const told = await response.json();
    if (!response.ok) throw new Error(told.error);
    return told;
  }

  function route() {
    const session = /^#\/s\/(.+)$/.exec(location.hash)?.[1] ?? null;
    if (session === shown && view) return;
    view?.close();
    document.getElementById("facts").replaceChildren();
    tell("");
    for (const name of Object.keys(main.dataset)) delete main.dataset[name];
    main.replaceChildren();
    const root = document.createElement("div");
    main.append(root);
    const id = session && decodeURIComponent(session);
    const moved = view !== null;
    view = id ? new ctxpager.Session(root, id, ask, tell, live) : new ctxpager.List(root, ask, tell, live);
    shown = session;
    title.textContent = id ?? "Sessions";
    document.title = id ? `${id} – ctxpager` : "ctxpager";
    if (moved) title.focus();
    beat();
  }

  // Nothing is asked for while the tab is hidden.
  async function beat() {
    clearTimeout(timer);
    if (document.hidden) return;
    const current = view;
    let wait = AFTER_FAILURE;
    await live.poll();
    try {
      wait = await current.poll();
      main.dataset.ready ??= String(Math.round(performance.now()));
    } catch (error) {
      if (current === view) tell(error instanceof TypeError ? "The proxy does not answer; trying again." : error.message, true);
    }
    if (current === view && !document.hidden) {
      clearTimeout(timer);
      timer = setTimeout(beat, wait);
    }
  }

  addEventListener("hashchange", route);
  document.addEventListener("visibilitychange", beat);
  route();
}
