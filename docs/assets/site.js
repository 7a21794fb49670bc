// What scrolls sideways on a phone (wide tables, code, terminal pictures) can be reached and scrolled by keyboard: WCAG 2.1.1.
const makeReachable = () => {
  for (const region of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code, .md-typeset p:has(> img)")) {
    if (region.scrollWidth > region.clientWidth) region.tabIndex = 0;
  }
};
addEventListener("load", makeReachable);
addEventListener("resize", makeReachable);
