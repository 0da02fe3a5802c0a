"use strict";
// All is readable without this: it makes the tooltips appear at once, tells jobs and memory at a moment, and unfolds
// the build that was clicked.
(() => {
  const tip = document.getElementById("tip");
  const time = document.getElementById("time");
  const clock = (s) => {
    s = Math.floor(s);
    const two = (n) => String(n).padStart(2, "0");
    const h = Math.floor(s / 3600), m = Math.floor(s / 60) % 60;
    return h ? `${h}:${two(m)}:${two(s % 60)}` : `${m}:${two(s % 60)}`;
  };
  const unfold = () => {
    const build = location.hash && document.getElementById(location.hash.slice(1));
    if (build && build.tagName === "DETAILS") build.open = true;
  };
  addEventListener("hashchange", unfold);
  unfold();
  if (!time) return;

  for (const step of time.querySelectorAll("rect.step")) {
    const title = step.querySelector("title");
    const text = title.textContent;
    title.remove();
    step.setAttribute("aria-label", text);
    step.addEventListener("mousemove", (e) => {
      tip.textContent = text;
      tip.hidden = false;
      const box = tip.getBoundingClientRect();
      const over = e.clientY + 18 + box.height > innerHeight;
      tip.style.left = Math.max(4, Math.min(e.clientX + 14, innerWidth - box.width - 8)) + "px";
      tip.style.top = (over ? e.clientY - box.height - 12 : e.clientY + 18) + "px";
    });
    step.addEventListener("mouseleave", () => { tip.hidden = true; });
  }

  const plot = time.querySelector("svg.plot");
  const then = document.getElementById("then");
  const wall = Number(time.dataset.wall);
  const curves = [...time.querySelectorAll("svg.curve")].map((c) => ({ id: c.id, label: c.getAttribute("aria-label"), points: JSON.parse(c.dataset.points) }));
  const hair = document.createElement("div");
  hair.id = "hair";
  hair.hidden = true;
  time.append(hair);
  time.addEventListener("mousemove", (e) => {
    const box = plot.getBoundingClientRect();
    const at = wall * (e.clientX - box.left) / box.width;
    hair.hidden = !(at >= 0 && at <= wall);
    if (hair.hidden) { then.textContent = "\u00a0"; return; }
    hair.style.left = e.clientX - time.getBoundingClientRect().left - 1 + "px";
    const values = curves.map((c) => {
      const point = c.points.findLast((p) => p[0] <= at);
      const value = point ? point[1] : 0;
      return `${c.label}: ${c.id === "memory" ? (value / 1e9).toFixed(2) + " GB" : value}`;
    });
    then.textContent = [`at ${clock(at)}`, ...values].join("  ·  ");
  });
  time.addEventListener("mouseleave", () => { hair.hidden = true; then.textContent = "\u00a0"; });
})();
