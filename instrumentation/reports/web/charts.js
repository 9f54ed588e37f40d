// Shows a story: `ctxpager.show(root, story, options)` fills an element, and `update(story)` shows a newer state of it.
//
// Options: `content(page)` may fetch the text of a page that is clicked, where the story does not hold it.
"use strict";
{
  const ctxpager = (globalThis.ctxpager ??= {});
  const { make } = ctxpager;

  class View {
    constructor(root, options) {
      Object.assign(this, { root, options, branch: null, font: "11px system-ui, sans-serif" });
      this.tooltip = new ctxpager.Tooltip();
      this.cursor = new ctxpager.Cursor();
      this.data = ctxpager.read({});
      this.top = make("div", {});
      this.waste = make("div", {});
      this.context = new ctxpager.Context(this);
      this.money = new ctxpager.Money(this);
      this.map = new ctxpager.PageMap(this);
      this.events = new ctxpager.Paged("Page-ins, repacks and cache misses", () => ctxpager.eventRows(this.data), 8);
      this.calls = new ctxpager.Paged("Calls", () => ctxpager.callRows(this.data));
      root.classList.add("cx");
      root.replaceChildren(
        this.section("Sums", "sums", this.top),
        this.section("Context over calls", "context", this.context.element),
        this.section("Money over calls", "money", this.money.element),
        this.section("Page map", "map", this.map.element),
        make(
          "div",
          { class: "cx-two" },
          this.section("Waste by cause", "waste", this.waste),
          this.section("Page-ins, repacks and cache misses", "events", this.events.element),
        ),
        this.section("Calls", "calls", this.calls.element),
        this.tooltip.element,
        this.tooltip.said,
      );
      this.watch();
    }

    section(title, name, content) {
      const id = ctxpager.unique(`cx-${name}`);
      return make(
        "section",
        { class: `cx-section cx-${name}`, "aria-labelledby": id },
        make("h2", { id, class: name === "sums" ? "cx-hidden" : null }, title),
        content,
      );
    }

    get gutter() {
      return this.root.clientWidth < 600 ? 46 : 64;
    }

    // Drawn again when the window or the colours change.
    watch() {
      this.scheme = matchMedia("(prefers-color-scheme: dark)");
      this.redraw = () => this.draw();
      this.scheme.addEventListener("change", this.redraw);
      this.sizes = new ResizeObserver(() => {
        if (this.root.clientWidth !== this.width) this.draw();
      });
      this.sizes.observe(this.root);
    }

    update(story) {
      this.story = story;
      this.width = this.root.clientWidth;
      this.data = ctxpager.read(story, this.branch);
      this.top.replaceChildren(...this.branchPicker(), ctxpager.tiles(this.data));
      this.waste.replaceChildren(ctxpager.waste(this.data), ctxpager.inflicted(this.data), ...ctxpager.cache(this.data));
      for (const part of [this.context, this.money, this.map, this.events, this.calls]) part.update();
      return this;
    }

    branchPicker() {
      const { branches } = this.data;
      if (branches.length < 2) return [];
      const options = [["", "all branches"], ...branches.map((branch) => [String(branch), `branch ${branch}`])];
      const picker = ctxpager.picker("Show", options, (value) => {
        this.branch = value === "" ? null : Number(value);
        this.update(this.story);
        this.top.querySelector("select").focus();
      });
      picker.querySelector("select").value = this.branch === null ? "" : String(this.branch);
      return [picker];
    }

    draw() {
      this.width = this.root.clientWidth;
      for (const chart of [this.context, this.money, this.map]) chart.draw();
    }

    close() {
      this.scheme.removeEventListener("change", this.redraw);
      this.sizes.disconnect();
      this.root.replaceChildren();
    }
  }

  ctxpager.show = (root, story, options = {}) => new View(root, options).update(story);
}
