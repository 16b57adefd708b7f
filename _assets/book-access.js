// A formula that is wider than its box scrolls in it: let the keyboard reach it then, and pass it by else (the theme
// does so for code and tables). The button of a folded box says what it folds.
(() => {
  const look = () => {
    for (const box of document.querySelectorAll(".bd-article :is(div.math, mjx-container)")) {
      box.style.overflow = "";
      const over = box.scrollWidth - box.clientWidth;
      if (over > 0 && over < 3) box.style.overflow = "visible";       // an accent, not a formula too wide
      if (over > 2 && /auto|scroll/.test(getComputedStyle(box).overflowX)) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };
  let pause;
  const soon = () => { clearTimeout(pause); pause = setTimeout(look, 200); };
  addEventListener("load", () => {
    for (const button of document.querySelectorAll(".admonition-title > .toggle-button"))
      button.setAttribute("aria-label", `Show or hide: ${button.parentElement.textContent.trim()}`);
    Promise.resolve(window.MathJax?.startup?.promise).then(look);
  });
  addEventListener("resize", soon);
  document.addEventListener("toggle", soon, true);      // what was folded had no width
})();
