// The shell: navigation, and one page at a time. A page is a module with `title` and `show(host, place)`.

import { takeToken } from "./api.js";
import { h, fill, problem } from "./dom.js";

const PAGES = [  // path, name in the navigation (none: reached from another page), module
  ["runs", "Runs"], ["run"], ["compare", "Compare"], ["new", "New run"], ["data", "Data"],
  ["playground", "Playground"], ["xray", "X-ray"], ["tokens", "Tokens"], ["learn", "Learn"],
];
let leaving = new AbortController();

/** Go to another page of the studio. */
export function go(path) {
  history.pushState(null, "", path);
  open();
}

async function open() {
  leaving.abort();
  leaving = new AbortController();
  const signal = leaving.signal, [name, ...rest] = location.pathname.split("/").filter(Boolean).map(decodeURIComponent);
  const page = PAGES.find(([path]) => path === (name || "runs")), host = document.getElementById("page");
  draw(page);
  fill(host);
  if (!page) { fill(host, h("div", { class: "empty" }, h("p", {}, "There is no such page."), h("a", { href: "/" }, "Runs"))); return; }
  try {
    const module = await import(`./pages/${page[0]}.js`);
    if (signal.aborted) return;
    document.title = module.title + " · headway studio";
    await module.show(host, { rest, query: new URLSearchParams(location.search), signal, go });
  } catch (error) {
    if (!signal.aborted) fill(host, problem(error));
    if (error.name !== "AbortError" && error.status === undefined) console.error(error);
  }
}

function draw(current) {
  fill(document.getElementById("nav"), PAGES.filter(([, name]) => name).map(([path, name]) =>
    h("a", { href: "/" + path, "aria-current": current && current[0] === path ? "page" : null }, name)));
}

document.addEventListener("click", event => {
  const link = event.target.closest("a[href]");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  const there = new URL(link.href);
  if (there.origin !== location.origin || link.target || link.hasAttribute("download") || there.pathname.startsWith("/api/")) return;
  if (there.hash && there.pathname === location.pathname) return;
  event.preventDefault();
  go(there.pathname + there.search);
  document.getElementById("page").focus({ preventScroll: false });
});
addEventListener("popstate", open);
takeToken();
open();
