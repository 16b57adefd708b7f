// Excerpts below search results from scripts, which also a page opened from a folder may load (_ext/book_search.py).
(() => {
  const given = {};
  window.bookText = (page, html) => { given[page] = html; };
  window.fetch = (url) => new Promise((ok, no) => {
    const page = url.slice(document.documentElement.dataset.content_root.length, -".html".length);
    const script = document.createElement("script");
    script.src = `_static/text/${page}.js`;
    script.onload = () => ok({ text: () => `<div role="main">${given[page]}</div>` });
    script.onerror = () => no(new Error("cannot load " + script.src));
    document.head.append(script);
  });
})();
