// The page map: one row a page, one column a call, coloured by the page's state; drawn by the pixel, however large it is.
"use strict";
{
  const ctxpager = (globalThis.ctxpager ??= {});
  const { make, swatch, STATES } = ctxpager;
  const TALLEST = 520,
    AXIS = 20,
    WIDEST_CELL = 28,
    HIGHEST_CELL = 18;
  const ORDERS = [
    ["came", "as they came"],
    ["tokens", "largest first"],
    ["tool", "by tool"],
  ];

  const clamp = (value, least, most) => Math.max(least, Math.min(most, value));

  const stepOf = (seen, wanted) => Math.max(1, Math.round(ctxpager.ticks(seen, Math.max(2, wanted))[1] ?? 1));
  const numbered = (what, at) => (at ? ctxpager.number(at + 1) : `${what} 1`);

  // The last part of a long name tells most: servers' names stand before those of their tools.
  function brief(name) {
    const last = name.split("__").at(-1) || name;
    return last.length > 10 ? `${last.slice(0, 9)}…` : last;
  }

  // The first of all, and every so-manieth.
  function marked(count, every) {
    return [0, ...Array.from({ length: Math.floor(count / every) }, (_, at) => (at + 1) * every - 1)].filter(
      (at, place) => place === 0 || at > 0,
    );
  }

  class PageMap {
    constructor(view) {
      Object.assign(this, { view, zoom: 1, at: { row: 0, column: 0 }, by: "came", reached: false });
      this.canvas = make("canvas", { class: "cx-map-canvas", "aria-hidden": "true" });
      this.sizer = make("div", { class: "cx-map-sizer" }, this.canvas);
      this.scroller = this.reachable(this.sizer);
      this.gutter = make("canvas", { class: "cx-map-gutter", "aria-hidden": "true" });
      this.axis = make("canvas", { class: "cx-map-axis", "aria-hidden": "true" });
      this.legend = make("div", { class: "cx-legend" });
      this.order = ctxpager.picker("Order", ORDERS, (by) => {
        this.by = by;
        this.update();
      });
      this.detail = make("div", { class: "cx-detail", role: "region", "aria-label": "The chosen page", hidden: true });
      this.table = ctxpager.alternative("Pages as a table", () => this.rows());
      this.grid = make("div", { class: "cx-map-grid" }, this.gutter, this.scroller, this.axis);
      this.element = make(
        "div",
        {},
        make("div", { class: "cx-bar" }, this.order, this.zoomBar()),
        this.legend,
        this.grid,
        make(
          "p",
          { class: "cx-note" },
          "Arrow keys move, Home and End go to the first and the last call, Page Up and Page Down ten pages; + and − zoom, 0 shows all, Enter opens the page.",
        ),
        this.detail,
        this.table.element,
      );
      view.cursor.watch(() => this.repaint());
    }

    reachable(content) {
      const acts = {
        onkeydown: (event) => this.key(event),
        onpointermove: (event) => this.point(event),
        onpointerleave: () => this.leave(),
        onclick: (event) => this.click(event),
        onblur: () => this.leave(),
        onfocus: () => this.focus(),
        onscroll: () => this.paint(),
      };
      const told = { tabindex: "0", role: "application", "aria-roledescription": "page map" };
      return make("div", { class: "cx-map-scroller", ...told, ...acts }, content);
    }

    zoomBar() {
      const button = (text, label, act) =>
        make("button", { type: "button", class: "cx-button", "aria-label": label, onclick: act }, text);
      return make(
        "div",
        { class: "cx-group", role: "group", "aria-label": "Zoom" },
        button("−", "Zoom out", () => this.zoomTo(this.zoom / 2)),
        button("+", "Zoom in", () => this.zoomTo(this.zoom * 2)),
        button("all", "Show all", () => this.zoomTo(1)),
      );
    }

    get columns() {
      return this.view.data.calls.length;
    }
    get rowCount() {
      return this.view.data.pages.length;
    }
    page(row) {
      return this.view.data.pages[this.sorted[row]];
    }
    state(row, column) {
      return this.view.data.cells[this.sorted[row] * this.columns + column];
    }

    update() {
      const { data } = this.view;
      const counts = ctxpager.countStates(data);
      this.sort();
      this.at = { row: clamp(this.at.row, 0, this.rowCount - 1), column: clamp(this.at.column, 0, this.columns - 1) };
      this.legend.replaceChildren(
        ...STATES.slice(1).map((state, at) =>
          make(
            "span",
            { class: "cx-key" },
            swatch(state.name),
            `${state.label} `,
            make("b", {}, ctxpager.number(counts[at + 1])),
          ),
        ),
      );
      this.scroller.setAttribute(
        "aria-label",
        `Page map of ${this.rowCount} pages over ${this.columns} calls. Arrow keys move, Enter opens the page.`,
      );
      this.table.update();
      this.draw();
    }

    sort() {
      const { pages } = this.view.data;
      const orders = {
        came: () => 0,
        tokens: (one, other) => pages[other].tokens - pages[one].tokens,
        tool: (one, other) => (pages[one].tool < pages[other].tool ? -1 : pages[one].tool > pages[other].tool ? 1 : 0),
      };
      this.sorted = Int32Array.from([...pages.keys()].sort(orders[this.by]));
    }

    // Sizes first: as large as the window allows at zoom 1, each cell never larger than is of use.
    draw() {
      const width = this.element.clientWidth - this.view.gutter - ctxpager.RIGHT;
      this.viewWidth = this.rowCount && this.columns ? Math.max(0, width) : 0;
      this.grid.hidden = !this.viewWidth;
      if (!this.viewWidth) return;
      const fitHeight = Math.min(14, TALLEST / this.rowCount);
      this.viewHeight = Math.max(40, Math.ceil(Math.min(TALLEST, this.rowCount * fitHeight)));
      const fitWidth = width / this.columns;
      this.cellWidth = Math.max(fitWidth, Math.min(WIDEST_CELL, fitWidth * this.zoom));
      this.cellHeight = Math.max(fitHeight, Math.min(HIGHEST_CELL, fitHeight * this.zoom));
      this.sizer.style.width = `${Math.floor(this.cellWidth * this.columns + 1e-6)}px`;
      this.sizer.style.height = `${Math.floor(this.cellHeight * this.rowCount + 1e-6)}px`;
      this.scroller.style.width = `${width}px`;
      this.scroller.style.height = `${this.viewHeight}px`;
      this.paint();
    }

    // Only what can be seen is drawn.
    paint() {
      if (!this.viewWidth) return;
      const { context, ratio } = ctxpager.fit(this.canvas, this.scroller.clientWidth, this.scroller.clientHeight);
      this.context = context;
      this.colour = ctxpager.palette(this.element);
      const image = context.createImageData(this.canvas.width, this.canvas.height);
      ctxpager.fillCells(image, {
        row: (at) =>
          this.view.data.cells.subarray(this.sorted[at] * this.columns, (this.sorted[at] + 1) * this.columns),
        across: ctxpager.spans(image.width, this.scroller.scrollLeft, this.cellWidth, this.columns, ratio),
        down: ctxpager.spans(image.height, this.scroller.scrollTop, this.cellHeight, this.rowCount, ratio),
        colour: this.colour,
      });
      this.image = image;
      this.repaint();
      this.paintGutter();
      this.paintAxis();
    }

    // The picture again, with the call and, while it is reached, the cell that is looked at.
    repaint() {
      if (!this.viewWidth) return;
      this.context.putImageData(this.image, 0, 0);
      const at = this.view.cursor.at;
      if (at === null) return;
      const left = at * this.cellWidth - this.scroller.scrollLeft,
        wide = Math.max(1, this.cellWidth);
      this.context.fillStyle = this.colour("cursor");
      this.context.fillRect(left, 0, wide, this.viewHeight);
      if (this.reached) this.frame(left, wide);
    }

    frame(left, wide) {
      const top = this.at.row * this.cellHeight - this.scroller.scrollTop,
        high = Math.max(1, this.cellHeight);
      this.context.fillRect(0, top, this.viewWidth, high);
      for (const [colour, out] of [
        ["back", 2.5],
        ["ink", 1.5],
      ]) {
        Object.assign(this.context, { strokeStyle: this.colour(colour), lineWidth: colour === "ink" ? 1.5 : 3 });
        this.context.strokeRect(left - out, top - out, wide + 2 * out, high + 2 * out);
      }
    }

    pen(canvas, width, height) {
      const { context } = ctxpager.fit(canvas, width, height);
      return Object.assign(context, { font: this.view.font, fillStyle: this.colour("quiet"), textBaseline: "middle" });
    }

    // Tools by name where rows are high enough for it, else the numbers of pages.
    paintGutter() {
      const width = this.view.gutter;
      const context = Object.assign(this.pen(this.gutter, width, this.viewHeight), { textAlign: "right" });
      const named = this.cellHeight >= 12;
      const seen = this.viewHeight / this.cellHeight;
      const label = (row) => (named ? brief(this.page(row).tool || this.page(row).kind) : numbered("page", row));
      for (const row of marked(this.rowCount, named ? 1 : stepOf(seen, this.viewHeight / 60))) {
        const y = (row + 0.5) * this.cellHeight - this.scroller.scrollTop;
        const isSeen = y >= (row ? 6 : 0) && y <= this.viewHeight - 3;
        if (isSeen) context.fillText(label(row), width - 6, Math.max(6, y), width - 8);
      }
    }

    paintAxis() {
      const context = this.pen(this.axis, this.viewWidth, AXIS);
      const seen = this.viewWidth / this.cellWidth;
      for (const column of marked(this.columns, stepOf(seen, this.viewWidth > 600 ? 10 : 4))) {
        const x = (column + 0.5) * this.cellWidth - this.scroller.scrollLeft;
        if (x < -1 || x > this.viewWidth) continue;
        context.textAlign = x < 16 ? "left" : x > this.viewWidth - 20 ? "right" : "center";
        context.fillText(numbered("call", column), clamp(x, 0, this.viewWidth), AXIS / 2 + 1);
      }
    }

    // The page and call in the middle of the view stay there; what the keyboard has reached is what matters if it has.
    zoomTo(zoom) {
      if (!this.viewWidth) return;
      const most = Math.max(
        WIDEST_CELL / (this.viewWidth / this.columns),
        HIGHEST_CELL / Math.min(14, TALLEST / this.rowCount),
        1,
      );
      const middle = {
        column: (this.scroller.scrollLeft + this.viewWidth / 2) / this.cellWidth,
        row: (this.scroller.scrollTop + this.viewHeight / 2) / this.cellHeight,
      };
      const kept = this.reached ? { column: this.at.column + 0.5, row: this.at.row + 0.5 } : middle;
      this.zoom = clamp(zoom, 1, 2 ** Math.ceil(Math.log2(most)));
      this.draw();
      this.scroller.scrollLeft = kept.column * this.cellWidth - this.viewWidth / 2;
      this.scroller.scrollTop = kept.row * this.cellHeight - this.viewHeight / 2;
      this.paint();
    }

    cellAt(event) {
      const box = this.scroller.getBoundingClientRect();
      const column = Math.floor((event.clientX - box.left + this.scroller.scrollLeft) / this.cellWidth);
      const row = Math.floor((event.clientY - box.top + this.scroller.scrollTop) / this.cellHeight);
      const inside = column >= 0 && column < this.columns && row >= 0 && row < this.rowCount;
      return inside ? { row, column } : null;
    }

    point(event) {
      const cell = this.cellAt(event);
      if (!cell) return this.leave();
      return this.look(cell, event.clientX, event.clientY, false);
    }

    look(cell, x, y, aloud) {
      Object.assign(this, { at: cell, reached: true });
      this.view.cursor.at = cell.column;
      this.view.cursor.watchers.forEach((watcher) => watcher());
      this.view.tooltip.show(this.told(cell), x, y, aloud);
    }

    told({ row, column }) {
      const page = this.page(row),
        state = STATES[this.state(row, column)];
      const rows = [
        ["tool", page.tool || "–"],
        ["kind", page.kind],
        ["tokens", ctxpager.number(page.tokens)],
        ["call", `${column + 1} · ${ctxpager.named(this.view.data.calls[column])}`],
        ["state", state.label, state.name === "absent" ? "" : swatch(state.name)],
      ];
      return { title: page.name, rows, notes: page.about ? [page.about] : [] };
    }

    leave() {
      this.reached = false;
      this.view.cursor.move(null);
      this.view.tooltip.hide();
    }

    focus() {
      if (this.scroller.matches(":focus-visible") && this.rowCount && this.columns) this.reach(this.at);
    }

    reach(cell) {
      const to = { row: clamp(cell.row, 0, this.rowCount - 1), column: clamp(cell.column, 0, this.columns - 1) };
      const scroller = this.scroller,
        x = to.column * this.cellWidth,
        y = to.row * this.cellHeight;
      scroller.scrollLeft = clamp(scroller.scrollLeft, x + this.cellWidth - this.viewWidth, x);
      scroller.scrollTop = clamp(scroller.scrollTop, y + this.cellHeight - this.viewHeight, y);
      const box = scroller.getBoundingClientRect();
      this.look(
        to,
        box.left + x - scroller.scrollLeft + this.cellWidth,
        box.top + y - scroller.scrollTop + this.cellHeight,
        true,
      );
    }

    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey || !this.rowCount || !this.columns) return;
      const { row, column } = this.at;
      const moves = {
        ArrowLeft: [row, column - 1],
        ArrowRight: [row, column + 1],
        ArrowUp: [row - 1, column],
        ArrowDown: [row + 1, column],
        Home: [row, 0],
        End: [row, this.columns - 1],
        PageUp: [row - 10, column],
        PageDown: [row + 10, column],
      };
      const acts = {
        "+": () => this.zoomTo(this.zoom * 2),
        "=": () => this.zoomTo(this.zoom * 2),
        "-": () => this.zoomTo(this.zoom / 2),
        0: () => this.zoomTo(1),
        Enter: () => this.tell(row),
        Escape: () => this.leave(),
      };
      const act = moves[event.key]
        ? () => this.reach({ row: moves[event.key][0], column: moves[event.key][1] })
        : acts[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    }

    click(event) {
      const cell = this.cellAt(event);
      if (cell) this.tell(cell.row);
    }

    // All that is known of one page; its content only where the story has it, or where whoever shows it can get it.
    async tell(row) {
      const page = this.page(row),
        life = ctxpager.lifeOf(this.view.data, this.sorted[row]);
      const call = (at) => (at < 0 ? "never" : `call ${at + 1}`);
      const facts = [
        ["tool", page.tool || "–"],
        ["kind", page.kind],
        ["branch", String(page.branch)],
        ["tokens", ctxpager.number(page.tokens)],
        ["came", call(life.came)],
        ["last used", call(life.used)],
        ...STATES.slice(1).map((state, at) => [`calls ${state.label}`, ctxpager.number(life.counts[at + 1])]),
      ];
      const list = make(
        "dl",
        {},
        ...facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))),
      );
      const close = make(
        "button",
        {
          type: "button",
          class: "cx-button",
          onclick: () => {
            this.detail.hidden = true;
            this.scroller.focus();
          },
        },
        "Close",
      );
      this.detail.replaceChildren(
        make("div", { class: "cx-bar" }, make("h3", {}, page.name), close),
        ...(page.about ? [make("p", {}, page.about)] : []),
        list,
      );
      this.detail.hidden = false;
      const content = page.content || (this.view.options.content ? await this.view.options.content(page) : "");
      if (content) this.detail.append(make("pre", { tabindex: "0", "aria-label": "Content" }, content));
    }

    rows() {
      const { data } = this.view;
      const heads = [
        "page",
        "tool",
        "kind",
        "tokens",
        "came at call",
        "last used at",
        ...STATES.slice(1).map((state) => `calls ${state.label}`),
      ];
      const cells = (row) => {
        const page = this.page(row),
          life = ctxpager.lifeOf(data, this.sorted[row]);
        return [
          page.name,
          page.tool,
          page.kind,
          ctxpager.number(page.tokens),
          String(life.came + 1),
          life.used < 0 ? "never" : String(life.used + 1),
          ...life.counts.slice(1).map(ctxpager.number),
        ];
      };
      return { heads, count: data.pages.length, cells };
    }
  }

  Object.assign(ctxpager, { PageMap });
}
