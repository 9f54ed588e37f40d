// What is live: when each session's prompt leaves the provider's cache, and the switch that keeps prompts warm.
"use strict";
{
  const ctxpager = (globalThis.ctxpager ??= {});
  const { make } = ctxpager;

  const span = (seconds) =>
    seconds < 120 ? `${Math.round(seconds)} s` : seconds < 7_200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3_600)} h`;
  const cents = (value) => (value >= 0.01 ? `$${value.toFixed(2)}` : ctxpager.dollars(value));

  function more(one) {
    if (!one.costs_more) return "nothing more";
    return one.dollars_more === null ? `${ctxpager.compact(one.costs_more)} token-equivalents more` : `${cents(one.dollars_more)} more`;
  }

  class Live {
    constructor(root, tell) {
      Object.assign(this, { root, tell, sessions: new Map(), ahead: 0 });
      this.button = make(
        "button",
        { type: "button", class: "cx-button db-switch", role: "switch", "aria-checked": "false", onclick: () => this.turn() },
        "Keep warm",
      );
      this.facts = make("span", { role: "status" });
      root.replaceChildren(this.button, this.facts);
    }

    // Take what is new; where it can't be seen, nothing is shown of it.
    async poll() {
      try {
        const response = await fetch("/ctxpager/status", { cache: "no-store" });
        const told = response.ok ? await response.json() : null;
        this.root.hidden = !told;
        this.ahead = told ? told.now - Date.now() / 1000 : 0;
        this.sessions = new Map((told?.sessions ?? []).map((one) => [one.session, one]));
        if (told) this.draw(told.keep_warm);
      } catch {
        this.sessions = new Map(); // the view says that the proxy does not answer
      }
    }

    // What is to be said of a session's cache: in words, further words, and whether it will cost.
    cache(session) {
      const one = this.sessions.get(session);
      if (!one) return ["", "", ""];
      const left = one.cold_at === null ? 0 : one.cold_at - Date.now() / 1000 - this.ahead;
      const then = `then the next call costs ${more(one)}`;
      if (one.under_way) return ["a call is under way", "", ""];
      if (one.cold_at === null) return ["nothing is cached", "", ""];
      if (left <= 0) return [`cold now: the next call costs ${more(one)}`, "", one.costs_more ? "db-bad" : ""];
      if (one.kept_until !== null) {
        const until = new Date((one.kept_until - this.ahead) * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
        return [`kept warm until ${until}`, then, "db-good"];
      }
      return [`cold in ${span(left)}`, then, ""];
    }

    draw(state) {
      const { limits } = state;
      this.state = state;
      this.button.setAttribute("aria-checked", String(state.on));
      this.button.toggleAttribute("disabled", Boolean(state.impossible) || !state.may_switch);
      this.button.title = state.impossible || (state.may_switch ? "" : "Switched only from the machine that the proxy runs on");
      const limited =
        `at most ${cents(limits.refresh_dollars)} a refresh, ${cents(limits.day_dollars)} a day, ` +
        `${ctxpager.number(limits.most)} refreshes a pause, ${span(limits.longest)} after the latest call`;
      const spent = `${ctxpager.dollars(state.spent)} spent in 24 h`;
      const kept = state.kept ? `, ${ctxpager.number(state.kept)} kept warm now` : "";
      const words = state.on
        ? `on (${state.mode}): ${spent}${kept}; ${limited}`
        : state.impossible || `off: nothing is sent that no client asked for; ${spent}; when on, ${limited}`;
      if (this.facts.textContent !== words) this.facts.textContent = words;
    }

    async turn() {
      const asked = { on: !this.state.on };
      try {
        const headers = { "content-type": "application/json" };
        const response = await fetch("/ctxpager/keep-warm", { method: "POST", headers, body: JSON.stringify(asked) });
        const told = await response.json();
        if (!response.ok) throw new Error(told.error.message);
        this.draw(told);
      } catch (error) {
        this.tell(error.message, true);
      }
    }
  }

  Object.assign(ctxpager, { Live });
}
