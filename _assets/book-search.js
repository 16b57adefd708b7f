// Excerpts below search results from scripts, which also a page opened from a folder may load (_ext/book_search.py).
// A common word is found on every page; an excerpt is loaded when its result comes near the window.
(() => {
  const given = {};
  const loading = {};
  window.bookText = (page, html) => { given[page] = html; };
  const load = (page) => loading[page] ||= new Promise((ok, no) => {
    const script = document.createElement("script");
    script.src = `_static/text/${page}.js`;
    script.onload = ok;
    script.onerror = () => no(new Error("cannot load " + script.src));
    document.head.append(script);
  });
  const waiting = new Map();
  const near = new IntersectionObserver((items) => items.filter((item) => item.isIntersecting).forEach(({ target }) => {
    near.unobserve(target);
    waiting.get(target)();
  }), { rootMargin: "50%" });
  window.fetch = (url) => new Promise((ok) => queueMicrotask(() => {     // the search shows a result once it has asked
    const item = Search.output.lastElementChild;
    waiting.set(item, ok);
    near.observe(item);
  })).then(async () => {
    const page = url.slice(document.documentElement.dataset.content_root.length, -".html".length);
    await load(page);
    return { text: () => `<div role="main">${given[page]}</div>` };
  });
})();
